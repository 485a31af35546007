package autopsy

import (
	"context"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
)

// What every lever sees, and how its saving is computed from the recording.

// leverCase is what every lever sees.
type leverCase struct {
	d     *timeline.Device
	ctx   context.Context
	a     *Result
	f     *facts
	live  []timeline.AllocID // allocated at the moment
	total int64              // their bytes
	by    [timeline.NumCategories]int64
	batch int64 // bytes that scale with the batch
	rough bool  // some category was inferred
	err   error
	work  []int64   // of peakWithout
	tried []Change  // what the current lever asked saves for
	shows *evidence // of an out-of-memory on a GPU, nil until it is known
}

func newLeverCase(ctx context.Context, d *timeline.Device, a *Result, f *facts) *leverCase {
	c := &leverCase{d: d, ctx: ctx, a: a, f: f, live: d.LiveAt(a.At, nil)}
	for _, id := range c.live {
		c.total += d.Allocs.Rounded[id]
		c.by[d.Allocs.Category[id]] += d.Allocs.Rounded[id]
		c.rough = c.rough || d.Allocs.Inferred[id]
		if c.ofBatch(id) {
			c.batch += d.Allocs.Rounded[id]
		}
	}
	return c
}

// ofBatch reports whether a block scales with the batch: activations, inputs, and keys and values that the
// model allocates while it runs. A server allocates them before, as many as there is room for.
func (c *leverCase) ofBatch(a timeline.AllocID) bool {
	switch c.d.Allocs.Category[a] {
	case timeline.Activation, timeline.Input:
		return true
	case timeline.Cache:
		return c.d.Timeline().Kinds().Of(c.d.Allocs.Stack[a]).Has(frames.KindModel)
	}
	return false
}

// cutBatch returns what every block that scales with the batch is smaller by if only one of some parts of the
// batch is there at a time.
func (c *leverCase) cutBatch(parts int64) []Change {
	return cutsOf(c.d, func(a timeline.AllocID) int64 {
		if c.ofBatch(a) {
			return allBut(c.d.Allocs.Rounded[a], parts)
		}
		return 0
	})
}

// allBut returns n without one of some equal parts of it.
func allBut(n, parts int64) int64 { return n - (n+parts-1)/parts }

// worthShowing is the share of the peak below which a lever is left out.
const worthShowing = 0.01

// saves computes what cuts take off: off the peak if nothing failed, otherwise off what was allocated at the
// failure. ok is false if it is not worth showing. The cuts become the lever's effect.
func (c *leverCase) saves(cuts []Change) (int64, bool) {
	if len(cuts) == 0 {
		return 0, false
	}
	c.tried = cuts
	var n int64
	switch {
	case c.a.OOM || c.a.Inferred || !c.d.HasLifetimes():
		n = bytesAt(cuts, c.a.At)
	default:
		if c.work == nil {
			c.work = make([]int64, c.d.Len()+2)
		}
		peak, err := peakWithout(c.ctx, c.d, cuts, timeline.Moment(c.d.Len()), c.work)
		if err != nil {
			c.err = err
			return 0, false
		}
		n = c.d.Totals.PeakAllocated - peak
	}
	return n, n > 0 && float64(n) >= worthShowing*float64(c.total)
}

// fits says whether the failed request would have been served with extra free bytes.
func (c *leverCase) fits(extra int64) Fit { return c.serves(c.f.asked, extra) }

// serves says whether a request no larger than the failed one would have been served with extra free bytes:
// Fits only if the contiguous bytes show it.
func (c *leverCase) serves(asked, extra int64) Fit {
	free := c.f.driverFree.Or(0)
	switch { // if the trace does not show a limit, the driver had enough
	case !c.a.OOM, !c.f.known, free >= driverBytes(c.f.asked):
		return FitNotShown
	case asked-c.f.free() > extra:
		return DoesNotFit
	case free+extra >= driverBytes(asked), asked < c.f.asked && c.f.largestHole >= asked:
		return Fits
	}
	return FitNotShown
}

// exactness returns the exactness of a figure that is based on categories.
func (c *leverCase) exactness() timeline.Exactness {
	if c.rough {
		return timeline.Inferred
	}
	return c.d.Totals.Exactness
}
