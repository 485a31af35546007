package combine

import (
	"context"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// What a candidate costs.
//
// The planners here ask the request's evaluator, hundreds of times, for candidates that differ in a few absences. Placing each one's addresses first
// would take longer than all the rest, so candidates are measured without addresses: swaps are paced (a copy back waits for compute to come to the
// position at which it is issued) and blocking (compute waits at the release for the copy out), and the program is ordered by its data alone. Nothing
// in such a program depends on whose addresses a buffer takes over, and the program that is placed in the end, whose copies out only hold up whoever takes
// their memory, can be faster but for waits on holes.
//
// Without an evaluator the same figures come from one pass in issue order: a step begins when its queue is free and what it waits for is done. That
// estimate lacks what only a simulator knows: copies in both directions that slow each other down.

// profile says when compute gets where, in nanoseconds from the iteration's start: Capuchin's measured execution.
type profile struct {
	// begin and end are those of each op; want is when it would have begun had no copy held it up.
	begin, end, want []int64
	// reach is when compute reaches each position: all ops before it are done. It has one entry more than there are ops.
	reach []int64
	// in is when the copy back of each absence is done; 0 where there is none.
	in []int64
	// step is the step time.
	step int64
}

// draft assembles decisions into a program that can be measured without addresses.
func draft(p *plan.Problem, d plan.Decisions) (*plan.Plan, error) {
	d.Absences = slices.Clone(d.Absences)
	for i := range d.Absences {
		if x := &d.Absences[i]; x.How == plan.Swap {
			x.Blocking, x.Paced = true, true
		}
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	pl.Policy = &plan.Policy{} // whose memory is taken over does not matter yet
	pl.Order(p)
	pl.Policy = nil
	return pl, nil
}

// measure carries decisions out with the evaluator, or by the estimate where there is none, and returns also the most bytes live.
func measure(ctx context.Context, p *plan.Problem, ev plan.Evaluator, d plan.Decisions) (*profile, int64, error) {
	pl, err := draft(p, d)
	if err != nil {
		return nil, 0, err
	}
	live, _ := pl.PeakLive()
	at := newProfile(p, pl)
	if ev == nil {
		at.estimate(p, pl)
		return at, live, ctx.Err()
	}
	m, err := ev.Evaluate(ctx, p, pl)
	if err != nil {
		return nil, 0, fmt.Errorf("evaluate: %w", err)
	}
	if len(m.Spans) > 0 {
		at.observe(p, pl, m.Spans)
	} else {
		at.estimate(p, pl)
	}
	at.step = m.StepTime
	return at, live, nil
}

func newProfile(p *plan.Problem, pl *plan.Plan) *profile {
	n := len(p.Ops)
	return &profile{begin: make([]int64, n), end: make([]int64, n), want: make([]int64, n), reach: make([]int64, n+1), in: make([]int64, len(pl.Absences))}
}

// arrivals returns, for each copy in of the program in order, the absence that it ends.
func arrivals(p *plan.Problem, pl *plan.Plan) map[int32]int32 {
	type key struct {
		b     plan.BufferID
		fetch plan.OpID
	}
	of := make(map[key]int32, len(pl.Absences))
	for i := range pl.Absences {
		if x := &pl.Absences[i]; x.How == plan.Swap {
			of[key{x.Buffer, x.Fetch}] = int32(i)
		}
	}
	if len(of) == 0 {
		return nil
	}
	steps := make(map[int32]int32, len(of))
	for s := range pl.Steps {
		if st := &pl.Steps[s]; st.Kind == plan.In {
			if i, ok := of[key{pl.Instances[st.Instance].Buffer, st.Op}]; ok {
				steps[int32(s)] = i
			}
		}
	}
	return steps
}

// observe fills the profile from what an evaluator recorded.
func (at *profile) observe(p *plan.Problem, pl *plan.Plan, spans []plan.Span) {
	into := arrivals(p, pl)
	for _, x := range spans {
		if st := &pl.Steps[x.Step]; !x.Stall {
			at.ran(st, x.Step, x.Start, x.Start, x.End, into)
		}
	}
	for _, x := range spans {
		if st := &pl.Steps[x.Step]; x.Stall && st.Kind == plan.Run {
			at.want[st.Op] = min(at.want[st.Op], x.Start)
		}
	}
	at.close()
}

func (at *profile) ran(st *plan.Step, s int32, want, start, end int64, into map[int32]int32) {
	switch st.Kind {
	case plan.Run:
		at.want[st.Op], at.begin[st.Op], at.end[st.Op] = want, start, end
	case plan.In:
		if i, ok := into[s]; ok {
			at.in[i] = end
		}
	}
	at.step = max(at.step, end)
}

// close works out reach.
func (at *profile) close() {
	for i, e := range at.end {
		at.reach[i+1] = max(at.reach[i], e)
	}
}

// estimate fills the profile from one pass over the program in issue order.
func (at *profile) estimate(p *plan.Problem, pl *plan.Plan) {
	into := arrivals(p, pl)
	ends := make([]int64, len(pl.Steps))
	type queue struct{ free, held int64 } // when its last step is done; until when waits for copies hold it
	queues := make([]queue, p.Queues())
	var host int64
	for s := range pl.Steps {
		st := &pl.Steps[s]
		if st.Kind == plan.Alloc || st.Kind == plan.Free {
			continue
		}
		q := &queues[st.Queue]
		var takes int64
		switch st.Kind {
		case plan.Wait:
			if on := pl.Steps[st.On].Kind; on == plan.In || on == plan.Out {
				q.held = max(q.held, ends[st.On])
			} else {
				q.free = max(q.free, ends[st.On])
			}
			continue
		case plan.Out:
			takes = p.Hardware.D2H.Time(pl.Instances[st.Instance].Size)
		case plan.In:
			takes = p.Hardware.H2D.Time(pl.Instances[st.Instance].Size)
		default:
			takes = p.DurationOf(pl, st.Op)
			host += p.Ops[st.Op].Gap
		}
		host += p.Hardware.LaunchGap
		want := max(q.free, host)
		start := max(want, q.held)
		ends[s] = start + takes
		q.free = ends[s]
		at.ran(st, int32(s), want, start, ends[s], into)
	}
	at.close()
}
