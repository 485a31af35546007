package autopsy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
)

// Several forwards without a backward. The pattern: since the last backward the model was called several
// times from one line, and blocks of each call still exist. Many blocks per call are graphs: of a validation
// without no_grad if another line calls the model in training, otherwise of micro-batches that one backward
// is to follow. One block per call is a result that is collected. Look-alike: the layers of one model that
// the loop calls from several lines, each of which has only one call.
//
// Whether a call left a graph or something else keeps tensors is determined elsewhere: see leftGraph.

func openForwardsFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 || c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return fault{}, false
	}
	caller, count, ids := openForwards(c)
	if count == 0 {
		return firstEvaluation(c)
	}
	o := &openCalls{evidence: c, caller: caller, count: count, ids: ids,
		parts: c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]}
	o.call = &o.parts[0]
	for i := range o.parts {
		if o.parts[i].Caller == caller {
			o.call = &o.parts[i]
		}
	}
	trained, trains := c.trainedFrom(o.call), c.lastOf(traces.PhaseBackward) >= 0
	if count < leastForwards && !trains {
		return firstInference(c, o.parts)
	}
	if count < leastForwards && trained {
		return o.skipped()
	}
	if count < leastForwards && (len(ids) < graphBlocks*count ||
		!c.evaluating(o.call) && trainedCalls(c) < leastSteps && !ranTrained(c, o.call)) {
		return fault{}, false
	}
	o.left = leftGraph(c, o.parts)
	o.waits = count >= leastForwards && c.differentiates(o.call) && keepsLoss(c)
	o.others = c.beside(o.parts[0].First, o.parts[len(o.parts)-1].First)
	switch {
	case 2*c.byHooks(ids) > c.bytesOf(ids):
		return o.keptByHooks(), true
	case c.large(ids) < 2*count:
		return o.outputsCollected(), true
	case o.left.known && !o.left.graph && c.outputStays(ids):
		return collected(c, ids, count, firstsOf(o.parts, caller), caller), true
	case o.left.known && !o.left.graph && passedOn(c, o.parts, ids):
		return o.passed(), true
	case o.left.known && !o.left.graph && o.keepsNothing(ids):
		return collected(c, ids, count, firstsOf(o.parts, caller), caller), true
	case o.left.known && !o.left.graph:
		return o.keptByHooks(), true
	case trains && !trained && !o.waits || c.evaluating(o.call) || !trains && o.left.known && !keepsLoss(c):
		return o.evaluation(), true
	case !trains && !keepsLoss(c):
		return o.unclear(), true
	}
	return o.oneBackward(), true
}

// removeHook is the remedy of calls whose tensors a hook keeps.
func (o *openCalls) removeHook() remedy {
	return remedy{name: "remove_hook", command: at("handle.remove()", o.line()),
		changes: nextCall(o.evidence, o.all())}
}

// outputsCollected is the fault of calls that each left one block, their result.
func (o *openCalls) outputsCollected() fault {
	f, from, line := o.begun("collected_outputs"), "", o.line()
	if id := o.outside(o.call); id >= 0 {
		from, line = fmt.Sprintf(" (%s)", line), o.frameText(id)
	}
	f.said = fmt.Sprintf("The results of %s of the model at %s%s are collected on the GPU: %s.",
		nCalls(o.count), line, from, o.bytes())
	f.from = lineCalls{o.caller, o.count}
	f.sure(Likely, "each call leaves one block; a hook on the last module would look the same")
	f.fix = "Move each to the CPU as it comes: outputs.append(out.detach().cpu())."
	f.lever = remedy{name: "move_outputs_to_cpu", command: at("outputs.append(out.detach().cpu())", line),
		changes: nextCall(o.evidence, o.ids)}
	return f
}

// keptByHooks is the fault of calls that left blocks and no graph.
func (o *openCalls) keptByHooks() fault {
	f := o.begun("hook_keeps")
	f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU, though none left a graph: a hook, "+
		"or an attribute of a module, keeps tensors.", callsWord(o.count), o.line(), o.bytes())
	f.sure(Likely, "what a graph keeps of the norms is gone; a list of layers' outputs would look the same")
	if 2*o.byHooks(o.ids) > o.bytesOf(o.ids) {
		f.said = fmt.Sprintf("Hooks keep tensors from %s of the model at %s: %s.", callsWord(o.count),
			o.line(), o.bytes())
		f.sure(Likely, "hooks allocated most of it")
	}
	f.fix = "Remove the hook (handle.remove()), clear what it fills after each call, or set " +
		"model.eval() if it is for training only."
	f.lever = o.removeHook()
	return f
}

// threads ends the path of the file in which every thread but the main one starts.
const threads = "/threading.py\n"

// evaluation is the fault of calls that nothing will differentiate, and that left graphs.
func (o *openCalls) evaluation() fault {
	f := o.begun("eval_with_grad")
	f.said = fmt.Sprintf("The evaluation runs with gradients on: %s of earlier calls of the model at %s "+
		"are kept for a backward that never comes.", o.bytes(), o.line())
	f.sure(Likely, "no backward ever follows these calls; hooks that keep outputs would look the same")
	switch {
	case o.left.why != "":
		f.sure(Likely, o.left.why)
	case o.left.known:
		f.sure(Certain, "no backward follows, and statistics of norms are kept, as by a graph")
	}
	f.fix = "Wrap the evaluation in torch.no_grad()."
	f.lever = o.noGrad()
	if strings.Contains(o.frames(o.d.Origin(o.ids[0])), threads) {
		f.fix = "Enter torch.no_grad() in the thread that runs it: no_grad applies only to that thread."
	}
	if o.asksGradients() {
		f.Kind = "kept_graph"
		f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU: a buffer or a state that each call "+
			"passes to the next keeps all their graphs.", callsWord(o.count), o.line(), o.bytes())
		f.fix = "Detach it between calls: buffer.detach_(), state = state.detach()."
		f.lever = remedy{name: "detach_metric", command: at("state = state.detach()", o.line()),
			changes: nextCall(o.evidence, o.all())}
		return f
	}
	if !o.evaluating(o.call) && o.count >= leastForwards && keepsLoss(o.evidence) {
		f.sure(Likely, "no backward ever followed calls from this line; losses that are to be "+
			"differentiated together would look the same")
		f.elseFix = "if what these calls return is differentiated together later, differentiate each " +
			"and add the gradients up"
		f.instead = remedy{name: "backward_each_micro_batch", changes: nextCall(o.evidence, o.all()),
			command: at("(loss / n).backward()", o.line())}
	}
	return f
}

// asksForGradients matches code that turns gradients on.
var asksForGradients = regexp.MustCompile(
	`requires_grad_\((?:True)?\)|requires_grad\s*=\s*True|enable_grad\(`)

// asksGradients reports whether the model's own code turns gradients on, so no_grad would break it.
func (o *openCalls) asksGradients() bool {
	from := o.sitesOf(o.ids)
	for _, id := range o.ids {
		s := o.d.Origin(id)
		if sites.Of(o.d.Timeline()).Number(s) != from.top {
			continue
		}
		for _, fr := range o.places.Stacks.At(s) {
			if o.kinds.Frames[fr].Has(frames.KindModuleCall) {
				break
			}
			fn, file, line := o.places.FrameText(fr)
			text, ok := o.file(file)
			if ok && o.ofUser(fr) && slices.ContainsFunc(functionOf(text, fn, line), func(l codeLine) bool {
				return asksForGradients.MatchString(l.text)
			}) {
				return true
			}
		}
		return false
	}
	return false
}

// unclear is the fault of calls whose blocks either a graph or hooks may keep.
func (o *openCalls) unclear() fault {
	f := o.begun("leak")
	f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU, and no loss waits for a "+
		"backward.", nCalls(o.count), o.line(), o.bytes())
	f.sure(Possible, "graphs that outputs keep and tensors that hooks keep would look the same here")
	f.fix = "Put them under torch.no_grad() and model.eval(); if they are, a hook or an attribute of a " +
		"module keeps tensors: remove it."
	f.lever, f.instead = o.removeHook(), o.noGrad()
	f.elseFix = "if they keep a graph, put them under torch.no_grad()"
	first, last := o.parts[0].First, o.parts[len(o.parts)-1].First
	_, made := o.forwardBlocks(first, last, first)
	if float64(o.bytesOf(o.ids)) >= keptByCall*float64(made) { // as a graph does, and hooks on every module
		f.lever, f.instead = f.instead, f.lever
		f.elseFix = "if they are under torch.no_grad(), remove the hook or attribute that keeps tensors"
	}
	return f
}

// oneBackward is the fault of calls that one backward is meant to differentiate together.
func (o *openCalls) oneBackward() fault {
	f := o.begun("one_backward_for_many")
	f.said = fmt.Sprintf("The graphs of %s at %s wait for one backward: %s.",
		timeline.Counted(o.count, "forward"), o.line(), o.bytes())
	f.sure(Likely, "calls from the line that trains wait for a backward")
	f.fix = "Call (loss / n).backward() after each micro-batch, not once on their sum."
	f.lever = remedy{name: "backward_each_micro_batch", command: at("(loss / n).backward()", o.line()),
		changes: nextLoss(o.evidence, o.all(), o.parts), beside: gradientsToCome(o.evidence)}
	if o.waits {
		f.sure(Likely, "what the calls return is kept, in a function named as one that differentiates it")
		f.elseFix = "if nothing is differentiated there, wrap it in torch.no_grad()"
		f.instead = o.noGrad()
	}
	scheduled(o.evidence, &f, o.count, o.ids)
	return f
}
