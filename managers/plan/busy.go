package plan

import "slices"

// Busy returns a lower bound on the plan's step time on any target: the time of its busiest queue, in
// nanoseconds, if nothing waits for anything. It needs no places. If the plan's problem has no times it is 0.
func (pl *Plan) Busy(p *Problem) int64 {
	if !p.HasTimes {
		return 0
	}
	busy := make([]int64, p.Queues())
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; st.Kind {
		case Run:
			busy[st.Queue] += p.DurationOf(pl, st.Op)
		case Again:
			busy[st.Queue] += p.DurationOf(pl, st.Op) + p.Hardware.AgainTime
		case Out:
			busy[st.Queue] += p.Hardware.D2H.Time(pl.Instances[st.Instance].Size)
		case In:
			busy[st.Queue] += p.Hardware.H2D.Time(pl.Instances[st.Instance].Size)
		}
	}
	return slices.Max(busy) / int64(max(p.Iterations, 1))
}
