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

// What is too large in a known way. Attention scores are in their own file. Logits: the blocks of a loss
// over classes and their like (see lossBlocks), the one that failed included. Optimizer state: the failed
// request is the optimizer's, and state is still to come. The first device of DataParallel: its frames, and
// another device that holds less than half.

func logitsFault(c *evidence) (fault, bool) {
	set := lossBlocks(c.d, c.a.At)
	if set.bytes == 0 {
		return fault{}, false
	}
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	for _, id := range c.live {
		if set.member(c.d, id) && c.kinds.Of(c.d.Origin(id)).Has(frames.KindLoss) {
			line = sites.Name(c.d, c.d.Origin(id))
		}
	}
	f := fault{Cause: Cause{Kind: "logits", Bytes: maybe.Known(set.bytes), Text: fmt.Sprintf(
		"%s are logits and blocks of their size, each %s, for the loss at %s", c.u.Bytes(set.bytes),
		c.u.Bytes(set.size), line)}}
	f.said = fmt.Sprintf("The logits and what the loss at %s makes of them hold %s, in blocks of %s.", line,
		c.u.Bytes(set.bytes), c.u.Bytes(set.size))
	f.sure(Certain, "a loss over classes made blocks of this size")
	f.fix = "Compute the output layer and the loss in chunks of the tokens, or use a smaller vocabulary."
	f.lever.name = "chunked_loss"
	return f, true
}

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
		return firstStepFault(c, line, whole, state-whole), true
	}
	f := fault{Cause: Cause{Kind: "optimizer_pending", Bytes: maybe.Known(whole - state),
		Text: fmt.Sprintf(
			"%s of about %s of optimizer state was made when it failed, in the first step", c.u.Bytes(state),
			c.u.Bytes(whole))}}
	f.said = fmt.Sprintf("The first step of the optimizer at %s has to make about %s of state, twice the "+
		"gradients, and got %s.", line, c.u.Bytes(whole), c.u.Bytes(state))
	f.sure(Certain, "the request that failed is the optimizer's, and there is no state of an earlier step")
	f.fix = "Use an optimizer with less state (8 bits, or Adafactor), or train fewer parameters (LoRA)."
	f.lever = remedy{name: "optimizer_8bit", command: at("bitsandbytes.optim.Adam8bit(params)", line)}
	return f, true
}

// firstStepFault is that of a first step of Adam that has its state and ran out in what it makes beside it:
// its default implementation, foreach, works on copies as large as the parameters.
func firstStepFault(c *evidence, line string, state, beside int64) fault {
	f := fault{Cause: Cause{Kind: "optimizer_pending", Bytes: maybe.Known(max(state/2-beside, 0)),
		Text: fmt.Sprintf(
			"%s of optimizer state was made in the first step, and %s of up to %s of copies that the step "+
				"works on", c.u.Bytes(state), c.u.Bytes(max(beside, 0)), c.u.Bytes(state/2))}}
	f.said = fmt.Sprintf("The first step of the optimizer at %s made %s of state, twice the gradients, and "+
		"ran out among the copies that it works on, which take up to half of that again.", line,
		c.u.Bytes(state))
	f.sure(Certain, "the request that failed is the optimizer's, and there is no state of an earlier step")
	f.fix = "Pass fused=True, which makes no copies; or use an optimizer with less state (8 bits, or " +
		"Adafactor), or train fewer parameters (LoRA)."
	foreach := func(s traces.StackID) bool { return c.kinds.Of(s).Has(frames.KindForeach) }
	f.lever = remedy{name: "foreach",
		command: at("type(optimizer)(params, fused=True)  # or foreach=False", line),
		changes: c.neverMade(func(id timeline.AllocID) bool { return foreach(c.d.Origin(id)) })}
	if foreach(c.d.Event(c.a.At).Stack) {
		f.lever.request = c.a.Asked.Or(0)
	}
	// The next step needs what this one did before the optimizer's part, beside the state.
	for m := timeline.Moment(0); m < c.parts[len(c.parts)-1].First; m++ {
		f.lever.remains = max(f.lever.remains, c.d.Allocated.At(m)+state)
	}
	return f
}

// frames returns the files of a stack's frames, joined.
func (c *evidence) frames(s traces.StackID) string {
	var b strings.Builder
	if s >= 0 {
		for _, id := range c.d.Timeline().Places().Stacks.At(s) {
			fn, file, _ := c.d.Timeline().Places().FrameText(id)
			b.WriteString(fn + " " + file + "\n")
		}
	}
	return b.String()
}

func firstDeviceFault(c *evidence) (fault, bool) {
	second := int64(-1)
	for _, d := range c.d.Timeline().Devices {
		if d != c.d && d.Info.Kind == traces.DeviceGPU {
			second = max(second, d.Totals.PeakAllocated)
		}
	}
	needed := c.d.Allocated.At(c.a.At) + c.a.Asked.Or(0)
	if !dataParallel(c) || second < 0 || 2*second > needed {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "first_device", Bytes: maybe.Known(needed - second), Text: fmt.Sprintf(
		"%s needs %s, the next GPU at most %s: DataParallel gathers outputs and keeps the model on the first",
		c.d.Label(), c.u.Bytes(needed), c.u.Bytes(second))}}
	f.said = fmt.Sprintf("DataParallel fills its first GPU: it needs %s, the next at most %s.",
		c.u.Bytes(needed), c.u.Bytes(second))
	f.sure(Certain, "DataParallel's frames and the figures of two GPUs show it")
	f.fix = "Use DistributedDataParallel, one process a GPU, with the loss computed on each."
	f.lever = remedy{name: "distributed_data_parallel",
		command: "model = DistributedDataParallel(model, device_ids=[rank])"}
	return f, true
}
