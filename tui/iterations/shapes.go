package iterations

import (
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/curves"
)

// Overlaid steps
//
// Each iteration's allocated bytes become one curve that begins at zero, at the scale of the longest, so that
// slow steps look long. If one step is so long that it would squeeze the others, each curve is stretched to
// the whole axis instead. Steady iterations are alike by definition: they become one band between their least
// and greatest values, and anything outside the band is what differs. If there are very many, the band is
// made from an evenly spread sample, and says so.

// sampled is the most iterations that the band is made of.
const sampled = 256

// shapes are the curves of all iterations that are drawn.
type shapes struct {
	span   int64 // length of the longest, nanoseconds or events
	events bool
	// stretched curves fill the axis whatever their length.
	stretched bool
	low       []int64 // the band
	high      []int64
	of        int           // iterations in the band
	steady    int           // steady iterations there are
	odd       map[int]shape // by index
	d         *timeline.Device
	it        *steps.Iterations
}

type shape []int64

func shapesOf(ctx context.Context, k shapesKey, it *steps.Iterations) (*shapes, error) {
	d := k.d
	s := &shapes{d: d, it: it, odd: map[int]shape{}, events: !d.Timeline().Trace.Clock.HasTime}
	for i := range it.List {
		from, to := s.extent(i)
		s.span = max(s.span, to-from)
		if !it.List[i].Odd && i >= it.Steady {
			s.steady++
		}
	}
	s.stretched = k.fit == stretch || k.fit == automatic && s.uneven()
	s.low, s.high = blank(curves.Samples), blank(curves.Samples)
	skip := max((s.steady+sampled-1)/sampled, 1)
	seen := 0
	for i := range it.List {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		x := &it.List[i]
		switch {
		case x.Odd || i < it.Steady:
			if len(s.odd) < 24 {
				s.odd[i] = s.shape(i)
			}
		default:
			if seen%skip == 0 {
				s.addToBand(s.shape(i))
			}
			seen++
		}
	}
	return s, nil
}

// uneven reports whether one time scale would squeeze the usual iteration into less than half of the axis: a
// first step that compiles takes a hundred times as long as the others.
func (s *shapes) uneven() bool {
	lengths := make([]int64, len(s.it.List))
	for i := range lengths {
		from, to := s.extent(i)
		lengths[i] = to - from
	}
	slices.Sort(lengths)
	return 2*lengths[len(lengths)/2] < s.span
}

func blank(n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = curves.None
	}
	return v
}

// extent returns where iteration i begins and ends on the drawn axis.
func (s *shapes) extent(i int) (from, to int64) {
	x := &s.it.List[i]
	if s.events {
		return int64(x.First), int64(x.End)
	}
	return x.Start, max(x.Finish, x.Start+1)
}

// shape returns the curve of iteration i. It costs O(samples x log events).
func (s *shapes) shape(i int) shape {
	from, to := s.extent(i)
	n := curves.Samples
	if s.span > 0 && !s.stretched {
		n = int(float64(to-from)/float64(s.span)*curves.Samples + 0.5)
	}
	axis := timeline.AxisTime
	if s.events {
		axis = timeline.AxisEvents
	}
	return curves.Sample(s.d, s.d.Allocated, timeline.Window{Axis: axis, From: from, To: to}, 0, n)
}

func (s *shapes) addToBand(v shape) {
	s.of++
	for i, x := range v {
		if x == curves.None {
			continue
		}
		if s.high[i] == curves.None {
			s.low[i], s.high[i] = x, x
			continue
		}
		s.low[i], s.high[i] = min(s.low[i], x), max(s.high[i], x)
	}
}
