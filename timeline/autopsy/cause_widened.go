package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Weights that the program casts to a type twice as large before the model runs: a preparation for adapters
// that takes a model of half precision for a quantised one (peft issue 1149). The pattern: one line of the
// user's made blocks, and right after each, a block of half its size ended that was there before the line
// ran. They have several sizes, as the weights of a model do. What looks like it: a data set that is cast
// tensor by tensor, but its parts have one size or a few. A model that .float() casts is told as weights that
// do not fit.

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
		"%s in %d blocks from %s each took the place of one of half their size, before the model ever ran",
		c.u.Bytes(bytes), len(wide), line)}}
	f.said = fmt.Sprintf("The weights are cast to a type twice as large at %s before the model runs: %s so "+
		"far, in place of %s.", line, c.u.Bytes(bytes), c.u.Bytes(bytes/2))
	f.fix = "Leave them in the type that they were loaded in, or cast only what needs it, such as norms " +
		"and what is trained."
	f.sure(Likely, "blocks of many sizes each took the place of one of half their size")
	f.lever = remedy{name: "smaller_weights", command: at("param.data  # not .to(torch.float32)", line)}
	for _, id := range wide {
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]/2))
	}
	if s := c.d.Event(c.a.At).Stack; s >= 0 && c.userLine(s) == line {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}

// replacing returns the blocks of a set that took the place of others: before the next of them was made, a
// block of half the size ended that is older than the set.
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
