package autopsy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Batches that wait on the device. The pattern: a place outside of the model makes a block for each step, and
// each ends several steps later, in the order in which they were made, so that there are always about as
// many. Look-alikes: a growing list, none of whose blocks ends; tensors of the model and the loss, which end
// within a step or two; a buffer that at first only fills, none of whose blocks has ended.

const (
	// leastAhead is how many batches must wait beside the one in use.
	leastAhead = 2
	// leastEnded is how many must have come and gone, in order.
	leastEnded = 4
)

func prefetchFault(c *evidence) (fault, bool) {
	a, table := &c.d.Allocs, sites.Of(c.d.Timeline())
	if len(c.parts) == 0 {
		return fault{}, false
	}
	// Only places that hold several blocks are worth a look at all that they made.
	many := map[int32]int{}
	outside := func(id timeline.AllocID) int32 {
		s := a.Stack[id]
		if c.kinds.Of(s).Has(frames.KindModel | frames.KindBackwardPass | frames.KindOptimizer |
			frames.KindModuleInit | frames.KindModuleMove | frames.KindLoad) { // weights are no batches
			return -1
		}
		return table.Number(s)
	}
	for _, id := range c.live {
		if n := outside(id); n >= 0 {
			many[n]++
		}
	}
	made := map[int32][]timeline.AllocID{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if n := outside(id); n >= 0 && many[n] > leastAhead {
			made[n] = append(made[n], id)
		}
	}
	var best []timeline.AllocID
	var from int32
	for n, ids := range made {
		w := waiting(c, ids)
		if w == nil {
			continue
		}
		by := cmp.Compare(c.bytesOf(w), c.bytesOf(best))
		if best == nil || by > 0 || by == 0 && n < from {
			best, from = w, n
		}
	}
	if best == nil {
		return fault{}, false
	}
	line := table.Names[from]
	ahead := best[min(leastAhead, len(best)):] // the one in use and the next are wanted
	f := fault{Cause: Cause{Kind: "prefetch", Bytes: maybe.Known(c.bytesOf(ahead)), Text: fmt.Sprintf(
		"%s batches from %s are on the GPU; each ends %s after it came, in order", count(len(best)), line,
		nSteps(len(best)-1))}}
	f.said = fmt.Sprintf("%s batches from %s are already on the GPU, waiting for their steps: %s.",
		count(len(best)), line, c.u.Bytes(c.bytesOf(best)))
	f.fix = "Keep them in pinned memory on the CPU and move one ahead: batch.to(device, non_blocking=True)."
	f.sure(Likely, "they end in the order in which they came; a window of earlier results would look the "+
		"same")
	f.lever = remedy{name: "prefetch_less", command: at("queue = deque(maxlen=1)", line)}
	for _, id := range made[from] {
		// It may come when the second before it goes.
		k, _ := slices.BinarySearch(made[from], id)
		if k < leastAhead {
			continue
		}
		to := min(a.Requested[made[from][k-leastAhead]], a.Requested[id], timeline.Moment(c.d.Len()))
		if a.Start[id] < to {
			f.lever.changes = append(f.lever.changes, Change{id, a.Start[id], to, a.Rounded[id]})
		}
	}
	return f, true
}

// waiting returns the live blocks of a place, if the place is a queue: they are its newest, older ones ended
// in order, and about as many were always live at once.
func waiting(c *evidence, ids []timeline.AllocID) []timeline.AllocID {
	a := &c.d.Allocs
	n := 0 // ended
	for n < len(ids) && a.Requested[ids[n]] <= c.a.At {
		if n > 0 && a.Requested[ids[n]] < a.Requested[ids[n-1]] {
			return nil
		}
		n++
	}
	there := ids[n:]
	if n < leastEnded || len(there) <= leastAhead || len(c.stillThere(there)) != len(there) {
		return nil
	}
	// How many were made while one was there, of those that ended: the length of the queue.
	for i, id := range ids[:n] {
		k := i
		for k < len(ids) && a.Start[ids[k]] < a.Requested[id] {
			k++
		}
		if k-i < len(there)-1 || k-i > len(there)+1 {
			return nil
		}
	}
	oldest, newest := a.Rounded[there[0]], a.Rounded[there[len(there)-1]]
	if newest > 4*oldest || oldest > 4*newest {
		return nil
	}
	return there
}
