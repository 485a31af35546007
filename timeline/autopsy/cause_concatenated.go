package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Results that are put together in one tensor as they come. The pattern: a line outside of the model makes a
// block again, longer each time: torch.cat of what there was and what came. What looks like it: a cache of
// keys and values, which the model makes; batches of growing length.

func concatenatedFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	last := map[traces.StackID]timeline.AllocID{}
	rises := map[traces.StackID]int{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		s := a.Stack[id]
		if s == traces.NoStack {
			continue
		}
		// The old block is read while the new one is made, and freed then. A size that just grows is not
		// enough.
		before, ok := last[s]
		if ok && a.Size[id] > a.Size[before] &&
			a.Start[id] < a.Requested[before] && a.Requested[before] < c.a.At {
			rises[s]++
		} else {
			rises[s] = 0
		}
		last[s] = id
	}
	best := timeline.NoAlloc
	for _, id := range c.live {
		s := a.Stack[id]
		if s == traces.NoStack || rises[s] < leastForwards || c.kinds.Of(s).Has(frames.KindModel) {
			continue
		}
		if best == timeline.NoAlloc || a.Rounded[id] > a.Rounded[best] {
			best = id
		}
	}
	if best == timeline.NoAlloc {
		return fault{}, false
	}
	line := sites.Name(c.d, a.Stack[best])
	f := fault{Cause: Cause{Kind: "collected_outputs", Bytes: maybe.Known(a.Rounded[best]), Text: fmt.Sprintf(
		"%s made a block that grew %d times in a row, now %s", line, rises[a.Stack[best]],
		c.u.Bytes(a.Rounded[best]))}}
	f.said = fmt.Sprintf("%s collects results in one tensor on the GPU, which grew %d times in a row to %s; "+
		"each time the old one and the new one are there together.", line, rises[a.Stack[best]],
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
