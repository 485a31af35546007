package steps

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// Leaks per call site. An allocation made in a steady iteration and still there at the end of that iteration,
// or of later ones, is held by its site at those moments. A site leaks if its held bytes grow, with
// certainty, along a straight line. Bytes that a step keeps for the next one (gradients until they are
// zeroed) are a constant and no leak.
//
// A line alone is not enough. A cache's size wanders, and since each step's figure is close to the previous
// one, the interval of least squares, which assumes independence, is too narrow: a cache that drops random
// entries was reported as a leak. So the blocks themselves decide: a leak's blocks come from all parts of the
// recording, while a cache's old blocks are gone, and those of a cache that fills up and stays are all old.
// With that no share of the peak has to be written off as noise, and even the smallest tensor a step is
// found. With fewer than [leastQuartered] iterations the parts say nothing, and growth must be above noise
// instead.
//
// Linear in allocations; memory is one number for each iteration and each site that keeps anything.

// Leaks returns the call sites whose live bytes grow with the steady iterations, steepest first; nil if there
// are too few iterations (three) or nothing grows. It is computed once; callers must not modify the result.
func Leaks(d *timeline.Device) []Leak { return leaks.Of(d) }

var leaks = timeline.NewMemo(findLeaks)

// held is what one site keeps at the ends of the iterations: first as differences, summed up at the end.
type held struct {
	stack  traces.StackID // the first seen
	bytes  []int64
	blocks int
	// quarters are the bytes alive at the end, by the quarter of the iterations that allocated them.
	quarters [4]int64
}

// leastQuartered is the number of iterations from which the quarters decide.
const leastQuartered = 8

// throughout reports whether the bytes alive at the end come from all quarters alike: the smallest has at
// least half of an equal share.
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
