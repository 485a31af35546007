package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// dual holds the weights at which a moment's Lagrangian was largest: the prices there of a nanosecond of each
// copy engine and of compute.
type dual struct {
	value float64
	at    plan.OpID
	// the rows out, summed from the first on: the price of a copy out of a value written there
	out []float64
	// the rows in, summed from the last back: the price of a copy in of a value needed there
	in      []float64
	outAt   []plan.OpID
	inAt    []plan.OpID
	compute float64
	// serial says that reruns are in the rows of copies in as well.
	serial bool
}

// costs returns the dual's price of copying gap g out and in, and of recomputing it, in nanoseconds; ok is
// false if the gap does not span the dual's moment.
func (d *dual) costs(x *gap) (copies, rerun float64, ok bool) {
	if d.value <= 0 || x.after >= d.at || d.at >= x.before {
		return 0, 0, false
	}
	a, okA := slices.BinarySearch(d.outAt, x.writer)
	c, okB := slices.BinarySearch(d.inAt, x.before)
	if !okA || !okB {
		return 0, 0, false
	}
	rerun = d.compute
	if d.serial {
		rerun += d.in[c]
	}
	copies = float64(x.evictTime)*d.out[a] + float64(x.prefetchTime)*d.in[c]
	return copies, float64(x.producersTime) * rerun, true
}
