package planview

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/traces"
)

// Clock reports whether a result has times, in nanoseconds from the iteration's start. Without them its
// moments are positions in the program, one an op.
func Clock(p *plan.Problem, r *replay.Result) bool {
	return p.HasTimes && r.Measurement.Makespan > 0 && len(r.Measurement.Spans) > 0
}

// Span returns the length of a result's clock.
func Span(p *plan.Problem, r *replay.Result) int64 {
	if Clock(p, r) {
		return r.Measurement.Makespan
	}
	return int64(max(len(p.Ops), 1))
}

// Usage returns the memory held over time: as measured or, if the recording does not say when buffers are
// used, as long as the program holds them.
func Usage(p *plan.Problem, r *replay.Result) []plan.Sample {
	clock := Clock(p, r)
	if clock && p.Kind >= traces.Accesses && len(r.Measurement.Usage) > 0 {
		return r.Measurement.Usage
	}
	pl := r.Plan
	at := make([]int64, len(p.Ops)+1)
	for i := range at {
		at[i] = int64(i)
	}
	if clock {
		clear(at)
		for i := range r.Measurement.Spans {
			if x := &r.Measurement.Spans[i]; !x.Stall && int(x.Step) < len(pl.Steps) &&
				pl.Steps[x.Step].Kind == plan.Run {
				at[pl.Steps[x.Step].Op] = x.Start
			}
		}
		at[len(p.Ops)] = r.Measurement.Makespan
		for i := 1; i < len(at); i++ {
			at[i] = max(at[i], at[i-1])
		}
	}
	var held int64
	for _, i := range pl.Resident {
		held += pl.Instances[i].Size
	}
	usage := []plan.Sample{{Bytes: held}}
	for i := range pl.Steps {
		st := &pl.Steps[i]
		switch st.Kind {
		case plan.Alloc:
			held += pl.Instances[st.Instance].Size
		case plan.Free:
			held -= pl.Instances[st.Instance].Size
		default:
			continue
		}
		usage = append(usage, plan.Sample{Time: at[min(int(st.Op), len(p.Ops))], Bytes: held})
	}
	return usage
}

// sumOf adds up what the boxes of a scene hold over time.
func sumOf(boxes []box) []plan.Sample {
	changes := make([]plan.Sample, 0, 2*len(boxes))
	for _, b := range boxes {
		changes = append(changes, plan.Sample{Time: b.from, Bytes: b.size},
			plan.Sample{Time: b.to, Bytes: -b.size})
	}
	slices.SortFunc(changes, func(a, b plan.Sample) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Bytes, b.Bytes))
	})
	var usage []plan.Sample
	var held int64
	for _, c := range changes {
		held += c.Bytes
		if k := len(usage); k > 0 && usage[k-1].Time == c.Time {
			usage[k-1].Bytes = held
		} else {
			usage = append(usage, plan.Sample{Time: c.Time, Bytes: held})
		}
	}
	return usage
}
