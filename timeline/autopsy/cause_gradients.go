package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Gradients that outlive the steps. Since PyTorch 2.0 zero_grad() sets gradients to None, and a backward
// makes them again; with set_to_none=False it fills them with zeros, and they exist during the forward, too.
// The pattern: blocks of a backward, with sizes of parameters, that exist after a later optimizer step and a
// later backward. If all gradients are like that, they are zeroed in place (or never). If only some are,
// while others are made again, nobody zeroes them: they belong to parameters that the optimizer does not
// have, so that part of the network is not trained but not frozen either.
//
// Look-alikes: accumulation, where no optimizer step comes in between; two optimizers that take turns, each
// of which zeroes its own, so that blocks of these sizes have ended before; DistributedDataParallel with
// gradient_as_bucket_view, whose buckets have sizes of their own; what a hook keeps of a backward. An
// optimizer that allocates nothing, such as plain SGD, leaves no step in a recording, and then we say
// nothing. Sources: torch.optim.Optimizer.zero_grad, torch.nn.Module.requires_grad_.

// keptRounds is how many later backwards, each after an optimizer's step, gradients must have survived.
const keptRounds = 2

// frozenRounds is the same for gradients that nobody zeroes: turns of several optimizers take longer.
const frozenRounds = 3

// persistent returns live blocks of a backward that survived at least n backwards after optimizers' steps,
// and those that did not.
func persistent(c *evidence, n int) (kept, fresh []timeline.AllocID) {
	// later[i] counts the backwards after part i that come after an optimizer's step after part i.
	later := make([]int, len(c.parts)+1)
	stepped := 0 // backwards since then that an optimizer's step precedes
	backwards := 0
	for i := len(c.parts) - 1; i >= 0; i-- {
		switch c.parts[i].Phase {
		case traces.PhaseBackward:
			backwards++
		case traces.PhaseOptimizer:
			stepped = backwards
		}
		later[i] = stepped
	}
	sizes, _ := c.weights()
	for _, id := range c.live {
		i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		if i < 0 || c.parts[i].Phase != traces.PhaseBackward || sizes[c.d.Allocs.Size[id]] == 0 ||
			c.d.Allocs.Category[id] == timeline.Activation || c.inHook(c.d.Origin(id)) {
			continue
		}
		if later[i] >= n {
			kept = append(kept, id)
		} else {
			fresh = append(fresh, id)
		}
	}
	return kept, fresh
}

func keptGradientsFault(c *evidence) (fault, bool) {
	ended, again := remade(c)
	kept, fresh := persistent(c, keptRounds)
	bytes := c.bytesOf(kept)
	if bytes == 0 {
		return fault{}, false
	}
	if ended == 0 && 10*c.bytesOf(fresh) <= bytes {
		return zeroedInPlace(c, kept, bytes)
	}
	kept, _ = persistent(c, frozenRounds)
	alone := kept[:0]
	for _, id := range kept {
		if !again[c.d.Allocs.Size[id]] {
			alone = append(alone, id)
		}
	}
	if len(alone) < 2 {
		return fault{}, false
	}
	bytes = c.bytesOf(alone)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of gradients are never set to None while others are: no optimizer has their parameters",
		c.u.Bytes(bytes))}}
	f.said = fmt.Sprintf("Parameters that no optimizer updates get gradients, and nothing frees these: %s "+
		"in %s.", c.u.Bytes(bytes), nBlocks(len(alone)))
	f.fix = "Freeze that part before the training: part.requires_grad_(False), and run it under " +
		"torch.no_grad() if nothing before it is trained."
	f.sure(Likely, "other gradients end with each step; an optimizer that is used rarely would look the same")
	var changes []Change
	for _, id := range alone {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{name: "freeze_gradients_off", command: "backbone.requires_grad_(False)",
		changes: changes}
	return f, true
}

// zeroedInPlace is the fault of gradients that are there while a forward runs. In a backward they are needed.
func zeroedInPlace(c *evidence, kept []timeline.AllocID, bytes int64) (fault, bool) {
	if c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return fault{}, false
	}
	line := ""
	if i := c.lastOf(traces.PhaseOptimizer); i >= 0 {
		first, _ := c.d.AllocsIn(c.parts[i].First, c.parts[i].End)
		line = sites.Name(c.d, c.d.Allocs.Stack[first])
	}
	f := fault{Cause: Cause{Kind: "zero_grad_kept", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of gradients have been there for several steps, and now while a forward runs", c.u.Bytes(bytes))}}
	f.said = fmt.Sprintf("Gradients stay in memory during the forward: %s, in the same blocks as %s ago; "+
		"the optimizer steps at %s.", c.u.Bytes(bytes), nSteps(keptRounds), line)
	f.fix = "Call optimizer.zero_grad(set_to_none=True) right after the optimizer's step."
	f.sure(Likely, "blocks that survive steps are zeroed in place; gradients that nobody zeroes would look "+
		"the same")
	var changes []Change
	all := c.rounds()
	for _, id := range kept {
		for i, r := range all {
			if !r.stepped || r.end == timeline.Never || c.d.Allocs.Start[id] >= r.end {
				continue
			}
			to := timeline.Moment(c.d.Len()) // of the round under way
			if i+1 < len(all) && all[i+1].backward != timeline.Never {
				to = all[i+1].backward
			}
			if to = min(to, c.d.Allocs.Requested[id]); r.end < to {
				changes = append(changes, Change{id, r.end, to, c.d.Allocs.Rounded[id]})
			}
		}
	}
	f.lever = remedy{name: "set_to_none", command: at("optimizer.zero_grad(set_to_none=True)", line),
		changes: changes}
	return f, true
}
