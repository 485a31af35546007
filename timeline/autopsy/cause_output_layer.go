package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Logits of every position where no loss needs them: a language model that reads a prompt. The pattern: in a
// call that no backward follows, the outermost module's own last linear layer makes a block several times as
// large as everything that the model made before in the call, and what is made after it is of the same, half
// or double size: copies in another type. Look-alikes: a training, whose loss has a cause of its own; a layer
// that widens inside the model, after which smaller blocks follow; a trainer's training_step, which is no
// module's call.

// outputTimes is how many times the largest block before it the output layer's is at least.
const outputTimes = 4

func outputLayerFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 || !c.kinds.Of(c.d.Event(c.a.At).Stack).Has(frames.KindModuleCall) {
		return fault{}, false
	}
	p := &c.parts[len(c.parts)-1]
	if p.Phase != traces.PhaseForward || c.trainedFrom(p) {
		return fault{}, false
	}
	a := &c.d.Allocs
	size, before, made := int64(0), int64(0), traces.NoStack
	blocks, _ := c.forwardBlocks(p.First, c.a.At, p.First)
	for _, id := range blocks {
		n := a.Size[id]
		switch {
		case size > 0 && a.Stack[id] != made && n < size/2-size/16: // it goes on with smaller ones
			return fault{}, false
		case size == 0 && before > 0 && n >= outputTimes*before && linearOfOutermost(c.d, a.Stack[id]):
			size, made = n, a.Stack[id]
		case size == 0:
			before = max(before, n)
		}
	}
	if size == 0 || !logitsSized(c.a.Asked.Or(0), size) {
		return fault{}, false
	}
	of := map[traces.StackID]bool{}
	logits := func(id timeline.AllocID) bool { // of any call, which may have had shorter input
		s := a.Stack[id]
		is, known := of[s]
		if !known {
			is = c.inModel(s) && (s == made || c.ofOutermost(s))
			of[s] = is
		}
		return is && a.Size[id] >= outputTimes*before
	}
	bytes := int64(0)
	for _, id := range c.live {
		if logits(id) {
			bytes += a.Rounded[id]
		}
	}
	line := sites.Name(c.d, made)
	f := fault{Cause: Cause{Kind: "logits", Bytes: maybe.Known(bytes + c.a.Asked.Or(0)), Text: fmt.Sprintf(
		"the output layer at %s made %s, and its call had made at most %s at once before", line,
		c.u.Bytes(size), c.u.Bytes(before))}}
	f.said = fmt.Sprintf("The logits of every position are made at %s, and no loss needs them: %s with "+
		"their copies, and %s more were asked for.", line, c.u.Bytes(bytes), c.u.Bytes(c.a.Asked.Or(0)))
	f.fix = "Make those of the last position only, lm_head(hidden[:, -1:]) or logits_to_keep=1, and leave " +
		"them in the model's type: no .float() on all of them."
	f.sure(Likely, "the last layer makes a far larger block than any before it, and copies follow; an "+
		"output that is wanted as a whole would look the same")
	f.lever = remedy{name: "logits_to_keep", command: at("lm_head(hidden[:, -1:])", line),
		changes: neverMade(c, logits), request: c.a.Asked.Or(0)}
	return f, true
}
