package steps

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// Leaks per call site. An allocation made in a steady iteration and still there at the end of it, or of later
// ones, is what a site holds at those places; a site whose held bytes grow along a straight line, for
// certain, leaks. What a step keeps for the next one (gradients until they are zeroed) is a constant and no
// leak.
//
// A line alone is not enough. What a cache holds wanders, and since one step's figure is nearly the last's,
// the interval of least squares, which takes them for independent, is too narrow: a cache that drops any of
// its entries was told as a leak. So the blocks themselves are asked: a leak's come from all parts of the
// recording, while a cache's old ones are gone, and those of one that fills up and stays are all old. With
// that no share of the peak is needed as noise, and the smallest tensor a step is found. In fewer than
// [leastQuartered] iterations parts say nothing, and growth must be above noise instead.
//
// Linear in allocations; memory is one number for each site that keeps anything and each iteration.

// Leaks returns the call sites whose live bytes grow with the steady iterations, steepest first; nil where
// there are too few iterations (three) or nothing grows. It is computed once; the result must not be written
// to.
func Leaks(d *timeline.Device) []Leak { return leaks.Of(d) }

var leaks = timeline.NewMemo(findLeaks)

// held is what one site keeps at the ends of the iterations: first differences, summed at the end.
type held struct {
	stack  traces.StackID // the first seen
	bytes  []int64
	blocks int
	// quarters are the bytes that are there at the end, by the quarter of the iterations that made them.
	quarters [4]int64
}

// leastQuartered is the number of iterations from which the quarters decide.
const leastQuartered = 8

// throughout reports whether what is there at the end comes from all quarters alike: the least has at least
// half of an equal share.
func (h *held) throughout() bool {
	var sum int64
	for _, n := range h.quarters {
		sum += n
	}
	return sum > 0 && 8*slices.Min(h.quarters[:]) >= sum
}

func findLeaks(d *timeline.Device) []Leak {
	it := Of(d)
	at := it.SteadyEnds()
	if len(at) < 3 {
		return nil
	}
	ends := make([]timeline.Moment, len(at)) // the last event of each
	for k, i := range at {
		ends[k] = it.List[i].End - 1
	}
	sites, numbers := map[int32]*held{}, sites.Of(d.Timeline())
	first, end := d.AllocsIn(it.List[at[0]].First, it.List[at[len(at)-1]].End)
	k := 0
	for a := first; a < end; a++ {
		for ends[k] < d.Allocs.Start[a] {
			k++
		}
		if d.Allocs.Requested[a] <= ends[k] {
			continue
		}
		site := numbers.Number(d.Origin(a))
		h := sites[site]
		if h == nil {
			h = &held{stack: d.Origin(a), bytes: make([]int64, len(at)+1)}
			sites[site] = h
		}
		gone := sort.Search(len(ends), func(j int) bool { return ends[j] >= d.Allocs.Requested[a] })
		h.bytes[k] += d.Allocs.Rounded[a]
		h.bytes[gone] -= d.Allocs.Rounded[a]
		if gone == len(ends) {
			h.blocks++
			h.quarters[k*4/len(at)] += d.Allocs.Rounded[a]
		}
	}
	var leaks []Leak
	noise := noiseBytes(len(at), d.Totals.PeakAllocated)
	for _, h := range sites {
		y := make([]float64, len(at))
		sum := int64(0)
		for j := range y {
			sum += h.bytes[j]
			y[j] = float64(sum)
		}
		t := fitTrend(y)
		grows := t.leaks(y, noise)
		if len(at) >= leastQuartered {
			grows = h.throughout() && t.leaks(y, 0)
		}
		if grows {
			leaks = append(leaks, Leak{Stack: h.stack, Slope: t.Slope, Low: t.Low, High: t.High, Bytes: sum,
				Blocks: h.blocks})
		}
	}
	slices.SortFunc(leaks, func(a, b Leak) int {
		return cmp.Or(cmp.Compare(b.Slope, a.Slope), cmp.Compare(a.Stack, b.Stack))
	})
	return leaks
}

// Leak is a call site whose live bytes grow with the iterations; Stack is one of its stacks.
type Leak struct {
	Stack            traces.StackID
	Slope, Low, High float64 // bytes an iteration
	Bytes            int64   // its bytes at the end that were allocated in the iterations seen
	Blocks           int
}
