package managers

import (
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/curves"
	"github.com/gmemtop/gmemtop/tui/planview"
)

// What charts draw for a result.
//
// A measurement holds a sample for every change of memory and a span for everything a queue did: tens of
// thousands of each. The overlay draws about two hundred columns. So a result is reduced once, where it is
// computed, to as many samples as the widest screen has half cells. Each sample is the maximum within it, so
// a peak one microsecond wide stays visible. If the recording has no clock, memory is counted along the
// program's ops instead.

// shape is memory over one measurement, and what the copy engines did during it.
type shape struct {
	span  int64 // nanoseconds, or ops where Ops
	ops   bool
	usage []int64 // curves.Samples values, the greatest within each
	// The share of each sample's time during which copies out and in ran, from 0 to 255; nil if there were
	// none.
	out, in []uint8
}

func blank() []int64 {
	v := make([]int64, curves.Samples)
	for i := range v {
		v[i] = curves.None
	}
	return v
}

func shapeOf(p *plan.Problem, r *replay.Result) *shape {
	m := &r.Measurement
	s := &shape{span: planview.Span(p, r), ops: !planview.Clock(p, r), usage: blank()}
	at := func(t int64) int {
		return int(min(max(float64(t)/float64(s.span)*curves.Samples, 0), curves.Samples-1))
	}
	var held int64
	from := 0
	for _, u := range planview.Usage(p, r) {
		to := at(u.Time)
		for i := from; i <= to; i++ {
			s.usage[i] = max(s.usage[i], held)
		}
		held, from = u.Bytes, to
	}
	for i := from; i < curves.Samples; i++ {
		s.usage[i] = max(s.usage[i], held)
	}
	if s.ops {
		return s
	}
	lane := func(take func(x *plan.Span) bool) []uint8 {
		var busy []float64
		for i := range m.Spans {
			x := &m.Spans[i]
			if !take(x) || x.End <= x.Start {
				continue
			}
			if busy == nil {
				busy = make([]float64, curves.Samples)
			}
			a, b := float64(x.Start)/float64(s.span)*curves.Samples,
				float64(x.End)/float64(s.span)*curves.Samples
			for k := int(a); k < curves.Samples && float64(k) < b; k++ {
				busy[k] += min(b, float64(k+1)) - max(a, float64(k))
			}
		}
		if busy == nil {
			return nil
		}
		share := make([]uint8, curves.Samples)
		for i, b := range busy {
			if b > 0 {
				share[i] = uint8(max(min(b, 1)*255, 1))
			}
		}
		return share
	}
	kind := func(x *plan.Span) plan.StepKind { return r.Plan.Steps[x.Step].Kind }
	s.out = lane(func(x *plan.Span) bool { return !x.Stall && kind(x) == plan.Out })
	s.in = lane(func(x *plan.Span) bool { return !x.Stall && kind(x) == plan.In })
	return s
}
