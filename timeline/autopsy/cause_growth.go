package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What grows from step to step. The pattern: blocks that successive steps made and none freed, spread over
// the whole recording. Look-alikes: a buffer that fills up once (only early steps' blocks remain) and one
// that keeps the last few (only late ones'); both lack blocks from some third of the steps. Blocks of a
// backward that stay are graphs kept by create_graph=True, if backward() makes them: a gradient that
// torch.autograd.grad returns is nobody's .grad, so only a value that is kept holds its graph. Several blocks
// per step are a graph; one block per step is a result that a list keeps. If weights stay, whole models do,
// and their gradients with them. If functions named as hooks allocated most of it, hooks keep it.

// grown returns the live blocks of sites that left something in steps all over the recording, and in how
// many steps.
func grown(c *evidence) (ids []timeline.AllocID, in int) { return leftSince(c, ticks(c), c.live) }

// grownSinceStep is grown for the calls of the model since an optimizer's last step. It finds an evaluation
// that runs backward passes of its own, such as for the forces of each structure or to adapt to each task.
// These look like steps, but are too few for grown, which looks at the whole recording.
// Look-alike: micro-batches before the optimizer's next step. Backward passes followed such calls before.
func grownSinceStep(c *evidence) (ids []timeline.AllocID, in int) {
	last := c.lastOf(traces.PhaseOptimizer)
	if last < 0 {
		return nil, 0
	}
	for i := range c.parts[last:] {
		if p := &c.parts[last+i]; p.Phase == traces.PhaseForward && c.trainedFrom(p) {
			return nil, 0
		}
	}
	all := ticks(c)
	first, _ := slices.BinarySearch(all, c.parts[last].End)
	return leftSince(c, all[first:], c.live)
}

func growthFault(c *evidence) (fault, bool) {
	ids, in := grown(c)
	span, every := nSteps(in), "step"
	if len(ids) == 0 {
		ids, in = grownSinceStep(c)
		every = "round"
		span = timeline.Counted(in, every) + " of evaluation since the optimizer's last step"
	}
	if len(ids) == 0 {
		return fault{}, false
	}
	g := growthOf(c, ids, in)
	kind := kindOf(g)
	if kind.results {
		return growingResults(c, ids, g.results), true
	}
	if kind.cause == "kept_graph" && c.onlyGraphs(ids) {
		kind.because = onlyGraphsWhy
	}
	each, line := g.bytes/int64(in), c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: kind.cause, Bytes: maybe.Known(g.bytes)}, seek: kind.seek, fix: kind.fix}
	f.sure(kind.certainty, kind.because)
	if kind.elseFix != "" {
		f.elseFix, f.instead = kind.elseFix, growthRemedy(c, "leak", ids, line)
	}
	f.lever = growthRemedy(c, kind.cause, ids, line)
	f.said = fmt.Sprintf("Memory grew by %s a %s in %s, to %s, most of it from %s: %s.",
		c.u.Bytes(each), every, span, c.u.Bytes(g.bytes), line, kind.why)
	f.Text = fmt.Sprintf("%s in %s of %s are still there, %s a %s, most from %s",
		c.u.Bytes(g.bytes), nBlocks(len(ids)), timeline.Counted(in, every), c.u.Bytes(each), every, line)
	return f, true
}

// growingResults is the fault of what calls of the model without a graph leave from step to step: the
// predictions of each validation, the steps of a simulation.
func growingResults(c *evidence, ids, results []timeline.AllocID) fault {
	calls := map[traces.FrameID]int{}
	caller, in := traces.FrameID(-1), map[int]bool{}
	for _, id := range results {
		i := c.graphless(id)
		if in[i] {
			continue
		}
		in[i] = true
		p := c.parts[i].Caller
		if calls[p]++; calls[p] > calls[caller] || calls[p] == calls[caller] && p < caller {
			caller = p
		}
	}
	var ticks []timeline.Moment
	for _, p := range c.parts {
		if p.Phase == traces.PhaseForward {
			ticks = append(ticks, p.First)
		}
	}
	return collected(c, ids, len(in), ticks, caller)
}

// growthRemedy ends what a step left together with the step's backward.
func growthRemedy(c *evidence, kind string, ids []timeline.AllocID, line string) remedy {
	r := remedy{changes: endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
		return c.afterBackward(c.d.Allocs.Start[id])
	})}
	switch kind {
	case "kept_graph":
		r.name, r.command = "detach_metric", at("total += value.detach()", line)
	case "double_backward":
		r.name, r.command = "drop_create_graph", "loss.backward()"
	case "zero_grad_kept":
		all := c.rounds()
		r.name, r.command = "set_to_none", "optimizer.zero_grad(set_to_none=True)"
		r.changes = endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
			for _, x := range all { // the optimizer needs it until its round is over
				if x.end > c.d.Allocs.Start[id] {
					return x.end
				}
			}
			return timeline.Never
		})
	case "collected_outputs":
		r.name, r.command = "move_outputs_to_cpu", at("kept.append(output.detach().cpu())", line)
	case "hook_keeps":
		r.name, r.command = "remove_hook", at("handle.remove()", line)
	default:
		r.name, r.command = "drop_references", at("del value", line)
	}
	return r
}
