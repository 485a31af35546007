package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Optimizer state that a program keeps on the CPU while it does not train, but that is on the GPU when
// something else needs the memory, such as an engine that generates text between the training steps (pull
// request 1159 of NeMo-RL). The pattern: optimizer steps allocated a set of blocks, which were freed later. A
// line of user code then allocated blocks of the same sizes, and the request that failed came from neither a
// backward pass nor an optimizer. Look-alikes: a running average of the weights, but no optimizer step ever
// allocated and freed such a set; state that never moves, but nothing shows that the program can do without
// it.

func idleOptimizerFault(c *evidence) (fault, bool) {
	if c.kinds.Of(c.d.Event(c.a.At).Stack).Has(frames.KindBackwardPass | frames.KindStep) {
		return fault{}, false
	}
	var best *weightSet
	for _, x := range weightSets(c) {
		if x.stack >= 0 && ofOwnLine(c, x.stack) && ofOptimizer(c, x) &&
			(best == nil || c.bytesOf(x.ids) > c.bytesOf(best.ids)) {
			best = x
		}
	}
	if best == nil {
		return fault{}, false
	}
	bytes, line := c.bytesOf(best.ids), c.userLine(best.stack)
	f := fault{Cause: Cause{Kind: "idle_optimizer", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s from %s have the sizes of optimizer state that was freed earlier",
		c.u.Bytes(bytes), nBlocks(len(best.ids)), line)}}
	f.said = fmt.Sprintf("The optimizer state is on the GPU while %s needs the memory: %s, moved back by %s.",
		c.userLine(c.d.Event(c.a.At).Stack), c.u.Bytes(bytes), line)
	f.fix = "Move it to the CPU first, as the program does elsewhere, and back before the next step of " +
		"training."
	f.sure(Likely, "an optimizer step allocated blocks of the same sizes, and they were freed earlier")
	last := timeline.Moment(0) // when the optimizer last ran
	for id := c.d.Begun(c.a.At) - 1; id >= best.ids[0]; id-- {
		if c.kinds.Of(c.d.Allocs.Stack[id]).Has(frames.KindStep) {
			last = c.d.Allocs.Start[id]
			break
		}
	}
	f.lever = remedy{name: "offload_optimizer", command: at("state[key] = value.to(\"cpu\")", line),
		changes: endingAt(c, best.ids, func(id timeline.AllocID) timeline.Moment {
			return max(last, c.d.Allocs.Start[id])
		})}
	return f, true
}
