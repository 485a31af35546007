package autopsy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// A second set of weights. The pattern: blocks made by torch.load or copy.deepcopy, as many and as large as
// those of another place, and there since before the training's parts. What looks like it: a model that was
// itself loaded from a file, which has no twin; two equal models that are both wanted, which is why only
// these two makers are named.

// leastCopied is how many blocks a set of weights has at least.
const leastCopied = 8

func copiesFault(c *faultCase) (fault, bool) {
	type set struct {
		ids   []timeline.AllocID
		sizes map[int64]int
		stack traces.StackID
	}
	sets, table := map[int32]*set{}, sites.Of(c.d.Timeline())
	for _, id := range c.live {
		s := c.d.Origin(id)
		if len(c.parts) > 0 && c.d.Allocs.Start[id] >= c.parts[0].First ||
			c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep) ||
			table.Number(s) < 0 {
			continue
		}
		x := sets[table.Number(s)]
		if x == nil {
			x = &set{sizes: map[int64]int{}, stack: s}
			sets[table.Number(s)] = x
		}
		x.ids = append(x.ids, id)
		x.sizes[c.d.Allocs.Size[id]]++
	}
	best, maker := (*set)(nil), ""
	for _, n := range slices.Sorted(maps.Keys(sets)) {
		x := sets[n]
		how := c.copier(x.stack)
		if how == "" || len(x.ids) < leastCopied {
			continue
		}
		if best != nil && c.bytesOf(best.ids) >= c.bytesOf(x.ids) {
			continue
		}
		for _, y := range sets {
			if x != y && covers(x.sizes, y.sizes) {
				best, maker = x, how
			}
		}
	}
	if best == nil {
		return fault{}, false
	}
	bytes, line := c.bytesOf(best.ids), sites.Name(c.d, best.stack)
	f := fault{Cause: Cause{Kind: "model_copy", Bytes: bytes, Text: fmt.Sprintf(
		"%s in %d blocks from %s (%s) have the sizes of another set of weights on this GPU",
		c.u.Bytes(bytes), len(best.ids), line, maker)}}
	f.said = fmt.Sprintf("A second set of the model's weights is on the GPU: %s made by %s at %s.",
		c.u.Bytes(bytes), maker, line)
	f.fix = "Keep the copy on the CPU, in half precision, or not at all."
	var changes []Change
	for _, id := range best.ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{"drop_copy", at("copy.deepcopy(model).cpu()", line), changes}
	if maker == "torch.load" {
		f.fix = "Load it with torch.load(path, map_location=\"cpu\"), and del the checkpoint after " +
			"load_state_dict."
		f.lever = remedy{"map_location_cpu", at("torch.load(path, map_location=\"cpu\")", line), changes}
	}
	return f, true
}

// copier says what made a block that is a copy, "" where nothing shows it.
func (c *faultCase) copier(s traces.StackID) string {
	if s < 0 {
		return ""
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		switch fn, file, _ := c.d.Timeline().Places().FrameText(id); {
		case strings.HasSuffix(file, "torch/serialization.py"):
			return "torch.load"
		case fn == "deepcopy" || fn == "__deepcopy__":
			return "copy.deepcopy"
		}
	}
	return ""
}

// covers reports whether x has at least four fifths of the bytes of y, block by block, and y is a set of
// weights.
func covers(x, y map[int64]int) bool {
	var all, both int64
	n := 0
	for size, k := range y {
		n += k
		all += size * int64(k)
		both += size * int64(min(k, x[size]))
	}
	return n >= leastCopied && 5*both >= 4*all
}
