package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights that the program casts to a type twice as large before the model runs, such as a preparation for
// adapters that treats a half-precision model as a quantised one (peft issue 1149). The pattern: one line of
// user code allocated blocks, and right after each, an older block of half its size was freed. The blocks
// have many sizes, as a model's weights do. Look-alike: a data set that is cast tensor by tensor, but its
// parts have one size or a few. A model cast by .float() is reported as weights that do not fit.

func widenedFault(c *evidence) (fault, bool) {
	if len(c.parts) > 0 {
		return fault{}, false
	}
	a := &c.d.Allocs
	var best *weightSet
	var wide []timeline.AllocID
	for _, x := range weightSets(c) {
		if len(x.sizes) < leastSizes || x.stack < 0 || !ofOwnLine(c, x.stack) ||
			c.kinds.Of(x.stack).Has(frames.KindModuleInit|frames.KindModuleMove|frames.KindUserInit) {
			continue
		}
		if ids := replacing(c, x); 5*len(ids) >= 4*len(x.ids) && c.bytesOf(ids) > c.bytesOf(wide) {
			best, wide = x, ids
		}
	}
	if best == nil {
		return fault{}, false
	}
	bytes, line := c.bytesOf(wide), c.userLine(best.stack)
	f := fault{Cause: Cause{Kind: "weights_too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s from %s: each replaced a block of half its size, before the model ever ran",
		c.u.Bytes(bytes), nBlocks(len(wide)), line)}}
	f.said = fmt.Sprintf("Before the model runs, %s casts its weights to a type of twice the size: %s so "+
		"far, up from %s.", line, c.u.Bytes(bytes), c.u.Bytes(bytes/2))
	f.fix = "Keep the type that they were loaded in, or cast only what needs it: norms and trained weights."
	f.sure(Likely, "blocks of many sizes each replaced one of half their size")
	f.lever = remedy{name: "smaller_weights", command: at("param.data  # not .to(torch.float32)", line)}
	for _, id := range wide {
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]/2))
	}
	if s := c.d.Event(c.a.At).Stack; s >= 0 && c.userLine(s) == line {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}

// replacing returns the blocks of a set that replaced others: before the next block of the set was allocated,
// a block of half the size, older than the set, was freed.
func replacing(c *evidence, x *weightSet) (ids []timeline.AllocID) {
	a, ends := &c.d.Allocs, map[int64][]timeline.Moment{} // of older blocks, by size
	for id := c.d.Begun(timeline.Start); id < x.ids[0]; id++ {
		if a.Requested[id] > a.Start[x.ids[0]] && a.Requested[id] <= c.a.At {
			ends[a.Size[id]] = append(ends[a.Size[id]], a.Requested[id])
		}
	}
	for _, ended := range ends {
		slices.Sort(ended)
	}
	for i, id := range x.ids {
		next := c.a.At
		if i+1 < len(x.ids) {
			next = a.Start[x.ids[i+1]]
		}
		ended := ends[a.Size[id]/2]
		k, _ := slices.BinarySearch(ended, a.Start[id]+1)
		if k < len(ended) && ended[k] <= next {
			ids = append(ids, id)
		}
	}
	return ids
}
