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

// Optimizer state that is still to come. The pattern: the failed request is the optimizer's, in its first
// step, and the gradients show how much Adam will allocate. Look-alikes: copies that the foreach
// implementation works on, which are a fault of their own; a later step, which has state from earlier ones.
// If one table makes most of the gradients, and a weight of its size has none, adapters train a whole
// embedding for a few new tokens. Look-alikes: a small language model, whose output layer shares the table's
// weights or is trained as well.

func pendingStateFault(c *evidence) (fault, bool) {
	e := c.d.Event(c.a.At)
	if !c.kinds.Of(e.Stack).Has(frames.KindStep) {
		return fault{}, false
	}
	first := c.lastOf(traces.PhaseBackward)
	var gradients, state int64
	for _, id := range c.live {
		k := c.kinds.Of(c.d.Origin(id))
		switch {
		case k.Has(frames.KindStep):
			if first < 0 || c.d.Allocs.Start[id] < c.parts[first].First {
				return fault{}, false // state of an earlier step: this is not the first
			}
			state += c.d.Allocs.Rounded[id]
		case c.d.Allocs.Category[id] == timeline.Gradient:
			gradients += c.d.Allocs.Rounded[id]
		}
	}
	line := sites.Name(c.d, e.Stack)
	if !strings.Contains(strings.ToLower(c.frames(e.Stack)), "adam") || gradients == 0 {
		return fault{}, false // how much other optimizers keep is not known
	}
	whole := 2 * gradients
	if 20*state >= 19*whole {
		f := firstStepFault(c, line, whole, state-whole)
		fewRows(c, &f, gradients)
		return f, true
	}
	f := fault{Cause: Cause{Kind: "optimizer_pending", Bytes: maybe.Known(whole - state),
		Text: fmt.Sprintf(
			"%s of about %s of optimizer state was made when it failed, in the first step", c.u.Bytes(state),
			c.u.Bytes(whole))}}
	f.said = fmt.Sprintf("The optimizer's first step at %s allocates about %s of state, twice the "+
		"gradients, and ran out after %s.", line, c.u.Bytes(whole), c.u.Bytes(state))
	f.sure(Certain, "the request that failed is the optimizer's, and there is no state of an earlier step")
	f.fix = "Use an optimizer with less state (8 bits, or Adafactor), or train fewer parameters (LoRA)."
	f.lever = remedy{name: "optimizer_8bit", command: at("bitsandbytes.optim.Adam8bit(params)", line)}
	fewRows(c, &f, gradients)
	return f, true
}

// fewRows adds to a fault of optimizer state what to change if one embedding has most of it.
func fewRows(c *evidence, f *fault, gradients int64) {
	table, n := int64(0), map[int64]int{}
	for _, id := range c.live {
		if c.d.Allocs.Category[id] == timeline.Gradient {
			size := c.d.Allocs.Size[id]
			n[size]++
			table = max(table, size)
		}
	}
	weights, _ := c.weights()
	if n[table] != 1 || 2*table < gradients || weights[table] < 2 || !looksUp(c) {
		return
	}
	ofTable := func(size int64, s traces.StackID) bool {
		return size == table &&
			(s == traces.NoStack || c.kinds.Of(s).Has(frames.KindBackwardPass|frames.KindStep))
	}
	f.elseFix = fmt.Sprintf("if the weight of %s is an embedding that gets new tokens, train only their "+
		"rows (trainable_token_indices in PEFT), or make it with sparse=True and use SparseAdam",
		c.u.Bytes(table))
	f.instead = remedy{name: "sparse_gradients", command: "nn.Embedding(rows, width, sparse=True)",
		changes: neverMade(c, func(id timeline.AllocID) bool {
			return c.d.Allocs.Start[id] >= c.parts[0].First &&
				ofTable(c.d.Allocs.Size[id], c.d.Allocs.Stack[id])
		})}
	if e := c.d.Event(c.a.At); ofTable(c.a.Asked.Or(0), e.Stack) {
		f.instead.request = c.a.Asked.Or(0)
	}
}

// firstStepFault is the fault of a first step of Adam that has its state and ran out in what it makes
// besides: its default implementation, foreach, works on copies as large as the parameters.
func firstStepFault(c *evidence, line string, state, beside int64) fault {
	f := fault{Cause: Cause{Kind: "optimizer_pending", Bytes: maybe.Known(max(state/2-beside, 0)),
		Text: fmt.Sprintf(
			"%s of optimizer state was made in the first step, and %s of up to %s of copies that the step "+
				"works on", c.u.Bytes(state), c.u.Bytes(max(beside, 0)), c.u.Bytes(state/2))}}
	f.said = fmt.Sprintf("The optimizer's first step at %s allocated %s of state, twice the gradients, and "+
		"then ran out of memory for its temporary copies, which take up to half as much again.", line,
		c.u.Bytes(state))
	f.sure(Certain, "the request that failed is the optimizer's, and there is no state of an earlier step")
	f.fix = "Pass fused=True, which makes no copies; or use an optimizer with less state (8 bits, or " +
		"Adafactor), or train fewer parameters (LoRA)."
	foreach := func(s traces.StackID) bool { return c.kinds.Of(s).Has(frames.KindForeach) }
	f.lever = remedy{name: "foreach",
		command: at("type(optimizer)(params, fused=True)  # or foreach=False", line),
		changes: neverMade(c, func(id timeline.AllocID) bool { return foreach(c.d.Origin(id)) })}
	if foreach(c.d.Event(c.a.At).Stack) {
		f.lever.request = c.a.Asked.Or(0)
	}
	// The next step needs what this one did before the optimizer's part, beside the state.
	for m := timeline.Moment(0); m < c.parts[len(c.parts)-1].First; m++ {
		f.lever.remains = max(f.lever.remains, c.d.Allocated.At(m)+state)
	}
	return f
}
