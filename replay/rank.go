package replay

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
)

// Rank compares two results for a reader who needs memory; it is negative if a comes first. Under a budget,
// results that fit come first, the fastest at the top, and then the others, the one closest to fitting first.
// Without one, results that cost no time come first, the smallest at the top, and then the rest by time.
// Results without a plan come last.
func Rank(a, b *Result, budget bool) int {
	last := func(x bool) int {
		if x {
			return 1
		}
		return 0
	}
	if d := last(!a.Available) - last(!b.Available); d != 0 || !a.Available {
		return d
	}
	x, y := &a.Measurement, &b.Measurement
	footprint, step := cmp.Compare(x.Footprint, y.Footprint), cmp.Compare(x.StepTime, y.StepTime)
	first := func(r *Result) bool { return r.Fits }
	if !budget {
		first = func(r *Result) bool { return r.Overhead <= free }
	}
	if d := last(!first(a)) - last(!first(b)); d != 0 {
		return d
	}
	if first(a) == budget {
		return cmp.Or(step, footprint)
	}
	return cmp.Or(footprint, step)
}

// ranked returns the results in the order of [Rank], except that the first baseline opens the list.
func (c *Comparison) ranked() []*Result {
	list := pointers(c.Results)
	slices.SortStableFunc(list, func(a, b *Result) int {
		if x, y := a.isToday(), b.isToday(); x != y {
			if x {
				return -1
			}
			return 1
		}
		return Rank(a, b, c.Budget > 0)
	})
	return list
}

// FootprintColumn returns a unit for a whole column of footprints, and a function that prints one in it: the
// unit of the largest, or the next smaller one if the smallest would have fewer than three digits.
func FootprintColumn(u timeline.Units, footprints []int64) (unit string, f func(int64) string) {
	if len(footprints) == 0 {
		return u.Column(0)
	}
	small, large := slices.Min(footprints), slices.Max(footprints)
	coarse, f := u.Column(large)
	if fine, g := u.Column(small); small > 0 && fine != coarse && large/small < 10 {
		// they are on both sides of a unit
		return fine, g
	}
	return coarse, f
}
