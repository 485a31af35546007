package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Results that are appended to one tensor. The pattern: a line outside of the model makes a block again,
// longer each time: torch.cat of the old tensor and the new results. One line may do so for several
// tensors in turn, the outputs of a model or the columns of a table, so each new block belongs to the largest
// shorter one that it replaces. What looks like it: a cache of keys and values, which the model makes;
// batches of growing length; batches of varying length, two of which are live at once.

// joined is a block, the shorter one that it replaced, the first of them, and how many times in a row that
// happened.
type joined struct {
	id, before timeline.AllocID
	first      timeline.AllocID
	rises      int
}

// grows reports whether a block grew too much or too long for that to be chance.
func (j *joined) grows(c *evidence) bool {
	doubled := c.d.Allocs.Size[j.id] >= 2*c.d.Allocs.Size[j.first]
	return j.rises >= leastForwards && doubled || j.rises >= manyRises
}

// manyRises is how many times in a row batches of any length hardly ever become longer.
const manyRises = 8

// joinedBlocks returns the blocks of lines that made them again, longer each time, up to the moment.
func joinedBlocks(c *evidence) map[traces.StackID][]joined {
	a := &c.d.Allocs
	last := map[traces.StackID][]joined{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		s := a.Stack[id]
		if s == traces.NoStack {
			continue
		}
		// The old block is read while the new one is made, and freed then. A size that just grows is not
		// enough.
		there := slices.DeleteFunc(last[s], func(g joined) bool { return a.Requested[g.id] <= a.Start[id] })
		of := -1
		for i, g := range there {
			replaced := g.before == timeline.NoAlloc || a.Requested[g.before] <= a.Start[id]
			if replaced && a.Size[g.id] < a.Size[id] && a.Requested[g.id] < c.a.At &&
				(of < 0 || a.Size[g.id] > a.Size[there[of].id]) {
				of = i
			}
		}
		switch {
		case of >= 0:
			there[of] = joined{id, there[of].id, there[of].first, there[of].rises + 1}
		case len(there) < mostJoined:
			there = append(there, joined{id, timeline.NoAlloc, id, 0})
		}
		last[s] = there
	}
	return last
}

// mostJoined is how many tensors one line may join at once for these to be told apart.
const mostJoined = 16

func concatenatedFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	best, rises := timeline.NoAlloc, 0
	for s, blocks := range joinedBlocks(c) {
		if c.kinds.Of(s).Has(frames.KindModel) {
			continue
		}
		for _, g := range blocks {
			if a.Requested[g.id] <= c.a.At || !g.grows(c) {
				continue
			}
			if best == timeline.NoAlloc || a.Rounded[g.id] > a.Rounded[best] ||
				a.Rounded[g.id] == a.Rounded[best] && g.id < best {
				best, rises = g.id, g.rises
			}
		}
	}
	if best == timeline.NoAlloc {
		return fault{}, false
	}
	line := sites.Name(c.d, a.Stack[best])
	f := fault{Cause: Cause{Kind: "collected_outputs", Bytes: maybe.Known(a.Rounded[best]), Text: fmt.Sprintf(
		"%s made a block that grew %s in a row, now %s", line, timeline.Counted(rises, "time"),
		c.u.Bytes(a.Rounded[best]))}}
	f.said = fmt.Sprintf("%s collects results in one tensor on the GPU, which grew %s in a row to %s; "+
		"each time, the old one and the new one exist together.", line, timeline.Counted(rises, "time"),
		c.u.Bytes(a.Rounded[best]))
	f.sure(Certain, "each block is longer than the last, which is freed once the longer one is made")
	f.fix = "Append out.detach().cpu() to a list, and concatenate once at the end."
	if strings.Contains(c.frames(a.Stack[best]), "/transformers/trainer") {
		f.fix = "Pass eval_accumulation_steps=1 to TrainingArguments, which moves them to the CPU, or keep " +
			"less of each with preprocess_logits_for_metrics."
	}
	f.lever = remedy{name: "move_outputs_to_cpu", command: at("outputs.append(out.detach().cpu())", line),
		changes: neverMade(c, func(id timeline.AllocID) bool { return a.Stack[id] == a.Stack[best] })}
	if c.d.Event(c.a.At).Stack == a.Stack[best] {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
