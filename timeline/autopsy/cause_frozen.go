package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Activations of a frozen network. If weights need no gradient but the input does, autograd keeps what the
// gradient of the input requires: the scores of attention, the inputs of norms and activation functions. A
// hook that lets gradients through (enable_input_require_grads) causes that in a network that nobody trains.
// The pattern: a call keeps the statistics of its layer_norms, as only a graph does, but none of their
// outputs, which the linear layer after a norm saves if its weight gets a gradient (derivatives.yaml: addmm
// saves mat1 for mat2's gradient). Look-alikes: LoRA, whose own linear layers save the norms' outputs, or a
// dropout's result of them; autocast, where a 16-bit copy is saved instead of the output; a norm without a
// linear layer after it; a frozen network after a trained one (textual inversion, prompt tuning), whose
// activations are needed. The last cannot be distinguished, so the sentence leaves it to the reader. But a
// frozen network that one line calls again and again for one backward is a simulator through which something
// is optimised.

// leastNorms is how many norms a call must have.
const leastNorms = 4

// frozenCall reports whether a call kept a graph of weights that get no gradients.
func frozenCall(c *evidence, p steps.Part, alive timeline.Moment) bool {
	a := &c.d.Allocs
	largest := map[traces.StackID]int64{}
	first, end := c.d.AllocsIn(p.First, min(p.End, alive))
	for id := first; id < end; id++ {
		s := a.Stack[id]
		if _, known := largest[s]; !known {
			largest[s] = 0
			if normNamed(c, s, "layer_norm") {
				largest[s] = a.Size[id]
			}
		} else if largest[s] > 0 {
			largest[s] = max(largest[s], a.Size[id])
		}
	}
	var statistics, kept, outputs, keptOutputs int
	half := map[int64]bool{}    // what casts of outputs have, of blocks that are kept
	dropped := map[int64]bool{} // sizes of what dropouts made, of blocks that are kept
	sizes := map[int64]bool{}
	for id := first; id < end; id++ {
		there := a.Requested[id] > alive
		most := largest[a.Stack[id]]
		switch {
		case most == 0 && there:
			half[2*a.Size[id]] = true
			dropped[a.Size[id]] = dropped[a.Size[id]] || normNamed(c, a.Stack[id], "dropout")
		case most == 0:
		case 8*a.Size[id] <= most:
			statistics++
			if there {
				kept++
			}
		default:
			outputs++
			sizes[a.Size[id]] = true
			if there {
				keptOutputs++
			}
		}
	}
	for size := range sizes {
		// Autocast may have saved copies, and a linear layer that is trained what a dropout made of it.
		if half[size] || dropped[size] {
			return false
		}
	}
	// The last norm's output may be in use.
	return outputs >= leastNorms && statistics >= leastNorms && 4*kept >= 3*statistics && keptOutputs <= 1
}

// calledAgain returns how often a line called the model in some parts. Calls with nothing in between are one
// part: then the outermost module's own lines tell, of which one in a loop over layers does not.
func calledAgain(c *evidence, parts []steps.Part, caller traces.FrameID) (n int) {
	for i := range parts {
		p := &parts[i]
		if p.Phase != traces.PhaseForward || p.Caller != caller {
			continue
		}
		count := map[traces.StackID]int{}
		first, end := c.d.AllocsIn(p.First, min(p.End, c.a.At))
		for id := first; id < end; id++ {
			if s := c.d.Allocs.Stack[id]; s >= 0 && c.inModel(s) && c.ofOutermost(s) {
				count[s]++
			}
		}
		least := 0
		for _, k := range count {
			if least == 0 || k < least {
				least = k
			}
		}
		n += max(least, 1)
	}
	return n
}

func frozenFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return fault{}, false
	}
	r := all[len(all)-1]
	alive := min(r.backward, c.a.At)
	var ids []timeline.AllocID
	caller := traces.FrameID(-1)
	for _, p := range c.parts[r.from:] {
		if p.Phase != traces.PhaseForward || p.First >= alive || !frozenCall(c, p, alive) {
			continue
		}
		made, _ := c.forwardBlocks(p.First, min(p.End, alive), c.a.At+1)
		ids = append(ids, made...)
		caller = p.Caller
	}
	if len(ids) < graphBlocks || calledAgain(c, c.parts[r.from:], caller) > leastForwards {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.frameText(caller)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of the call at %s are kept for gradients of its input, and none for gradients of "+
			"its weights", c.u.Bytes(bytes), nBlocks(len(ids)), line)}}
	f.said = fmt.Sprintf("The network called at %s is frozen, and yet it keeps its activations for a "+
		"backward: %s.", line, c.u.Bytes(bytes))
	f.fix = "Run it under torch.no_grad(), and drop the requires_grad_() on its input or embeddings; if " +
		"something before it is trained, checkpoint it."
	f.sure(Likely, "norms keep their statistics, as in a graph, and no linear layer keeps its input for the "+
		"gradient of a weight")
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line), changes: untilNext(c, ids)}
	return f, true
}
