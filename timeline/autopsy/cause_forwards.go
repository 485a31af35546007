package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Several forwards without a backward. The pattern: since the last backward the model was called several
// times from one line, and blocks of each call are still there. Many blocks a call are graphs: of a
// validation without no_grad where another line calls the model in training, else of micro-batches that one
// backward is to follow. One block a call is a result that is collected. What looks like it: the layers of
// one model that the loop calls from several lines, of which each has one call only.
//
// Whether a call left a graph or something else keeps tensors shows elsewhere: see leftGraph.

// openForwards returns the line with the most calls of the model since the last backward that left something,
// how many these are, and what all calls left. A function may call the parts of a model one by one, such as
// its layers in a loop, of which only the last leaves its output. Where nothing was left it is the line with
// the most calls.
func openForwards(c *evidence) (caller traces.FrameID, calls int, ids []timeline.AllocID) {
	open := c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]
	if len(open) == 0 {
		return -1, 0, nil
	}
	left := make([]bool, len(open))
	k := 0
	for _, id := range c.live {
		at := c.d.Allocs.Start[id]
		if at < open[0].First {
			continue
		}
		for k+1 < len(open) && open[k+1].First <= at {
			k++
		}
		// The last call is under way.
		if k < len(open)-1 && c.kinds.Of(c.d.Origin(id)).Has(frames.KindModel) {
			ids, left[k] = append(ids, id), true
		}
	}
	type number struct{ left, all int }
	count, best := map[traces.FrameID]number{}, number{-1, -1}
	caller = -1
	for i, p := range open {
		n := count[p.Caller]
		n.all++
		if left[i] {
			n.left++
		}
		count[p.Caller] = n
		if n.left > best.left || n.left == best.left && n.all > best.all {
			caller, best = p.Caller, n
		}
	}
	if caller < 0 {
		return -1, 0, nil
	}
	return caller, best.left, ids
}

func openForwardsFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 || c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return fault{}, false
	}
	caller, calls, ids := openForwards(c)
	if calls == 0 {
		return firstEvaluation(c)
	}
	open := c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]
	call := &open[0] // one of these
	for i := range open {
		if open[i].Caller == caller {
			call = &open[i]
		}
	}
	trained, trains := c.trainedFrom(call), c.lastOf(traces.PhaseBackward) >= 0
	if calls < leastForwards && (!trains || trained || len(ids) < graphBlocks*calls ||
		!c.evaluating(call) && trainedCalls(c) < leastSteps && !ranTrained(c, call)) {
		return fault{}, false
	}
	line, bytes := c.frameText(c.ownLine(call)), c.bytesOf(ids)
	f := fault{Cause: Cause{Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s of the model at %s are still there, and no backward came in between",
		c.u.Bytes(bytes), callsWord(calls), line)}}
	left := leftGraph(c, open)
	waits := calls >= leastForwards && c.differentiates(call) && keepsLoss(c)
	beside := c.beside(open[0].First, open[len(open)-1].First)
	goes := slices.Concat(beside, ids)
	switch {
	case len(ids) < 2*calls:
		f.Kind = "collected_outputs"
		from := ""
		if id := c.outside(call); id >= 0 {
			from, line = fmt.Sprintf(" (%s)", line), c.frameText(id)
		}
		f.said = fmt.Sprintf("The results of %d calls of the model at %s%s are collected on the GPU: %s.",
			calls, line, from, c.u.Bytes(bytes))
		f.sure(Likely, "each call leaves one block; a hook on the last module looks the same")
		f.fix = "Move each to the CPU as it comes: outputs.append(out.detach().cpu())."
		f.lever = remedy{name: "move_outputs_to_cpu", command: at("outputs.append(out.detach().cpu())", line),
			changes: nextCall(c, ids)}
	case left.known && !left.graph && c.outputStays(ids):
		return collected(c, ids, calls, firstsOf(open, caller), caller), true
	case left.known && !left.graph:
		f.Kind = "hook_keeps"
		f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU, though none left a graph: a hook, "+
			"or an attribute of a module, keeps tensors.", callsWord(calls), line, c.u.Bytes(bytes))
		f.sure(Likely, "what a graph keeps of the norms is gone; a list of layers' outputs looks the same")
		f.fix = "Remove the hook (handle.remove()), clear what it fills after each call, or set " +
			"model.eval() if it is for training only."
		f.lever = remedy{name: "remove_hook", command: at("handle.remove()", line),
			changes: nextCall(c, goes)}
	case trains && !trained && !waits || c.evaluating(call) || !trains && left.known && !keepsLoss(c):
		f.Kind = "eval_with_grad"
		f.said = fmt.Sprintf("The evaluation runs with gradients on: %s of earlier calls of the model at %s "+
			"are kept for a backward that never comes.", c.u.Bytes(bytes), line)
		f.sure(Likely, "no backward ever follows these calls; hooks that keep outputs look the same")
		switch {
		case left.why != "":
			f.sure(Likely, left.why)
		case left.known:
			f.sure(Certain, "no backward follows, and statistics of norms are kept, as by a graph")
		}
		f.fix = "Wrap the evaluation in torch.no_grad()."
		f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
			changes: append(nextCall(c, beside), ungraphed(c, open)...)}
		if !c.evaluating(call) && calls >= leastForwards && keepsLoss(c) {
			f.sure(Likely, "no backward ever followed calls from this line; losses that are to be "+
				"differentiated together look the same")
			f.elseFix = "if what these calls return is differentiated together later, differentiate each " +
				"and add the gradients up"
			f.instead = remedy{name: "backward_each_micro_batch", changes: nextCall(c, goes),
				command: at("(loss / n).backward()", line)}
		}
	case !trains && !keepsLoss(c):
		f.Kind = "leak"
		f.said = fmt.Sprintf("%d calls of the model at %s left %s on the GPU, and no loss waits for a "+
			"backward.", calls, line, c.u.Bytes(bytes))
		f.sure(Possible, "graphs that outputs keep and tensors that hooks keep look the same here")
		f.fix = "Put them under torch.no_grad() and model.eval(); if they are, a hook or an attribute of a " +
			"module keeps tensors: remove it."
		f.lever = remedy{name: "remove_hook", command: at("handle.remove()", line),
			changes: nextCall(c, goes)}
		f.elseFix = "if they keep a graph, put them under torch.no_grad()"
		f.instead = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
			changes: append(nextCall(c, beside), ungraphed(c, open)...)}
		_, made := c.forwardBlocks(open[0].First, open[len(open)-1].First, open[0].First)
		if float64(bytes) >= keptByCall*float64(made) { // as a graph does, and hooks on every module
			f.lever, f.instead = f.instead, f.lever
			f.elseFix = "if they are under torch.no_grad(), remove the hook or attribute that keeps tensors"
		}
	default:
		f.Kind = "one_backward_for_many"
		f.said = fmt.Sprintf("The graphs of %d forwards at %s wait for one backward: %s.", calls, line,
			c.u.Bytes(bytes))
		f.sure(Likely, "calls from the line that trains wait for a backward")
		f.fix = "Call (loss / n).backward() after each micro-batch, not once on their sum."
		f.lever = remedy{name: "backward_each_micro_batch", command: at("(loss / n).backward()", line),
			changes: nextLoss(c, goes, open), beside: gradientsToCome(c)}
		if waits {
			f.sure(Likely, "what the calls return is kept, in a function named as one that differentiates it")
			f.elseFix = "if nothing is differentiated there, wrap it in torch.no_grad()"
			f.instead = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
				changes: append(nextCall(c, beside), ungraphed(c, open)...)}
		}
		scheduled(c, &f, calls, ids)
	}
	return f, true
}

// ranTrained reports whether most lines of the user's modules that a call ran were run by calls that a
// backward followed. In the first steps, what runs others may still come to be trained: the second of several
// networks, or the second half of a step.
func ranTrained(c *evidence, call *steps.Part) bool {
	trained := map[traces.FrameID]bool{}
	for i := range c.parts {
		if p := &c.parts[i]; p.Phase == traces.PhaseForward && c.backwardFrees(p) {
			for id := range modulesOf(c, p) {
				trained[id] = true
			}
		}
	}
	of, both := modulesOf(c, call), 0
	for id := range of {
		if trained[id] {
			both++
		}
	}
	return both > 0 && 2*both >= len(of)
}

// firstsOf returns when the calls from a line began.
func firstsOf(calls []steps.Part, caller traces.FrameID) (out []timeline.Moment) {
	for _, p := range calls {
		if p.Caller == caller {
			out = append(out, p.First)
		}
	}
	return out
}
