package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// firstEvaluation finds an evaluation that fails within a call: a function with the name of one calls the
// model in a process that trains elsewhere, or the process has called it from there before and never ran a
// backward, and the call keeps most of what it made. Look-alikes: a cache of keys and values, which a line
// makes twice per layer; skip connections, which are fewer; and the first step of a training that accumulates
// gradients, whose earlier calls still exist.
func firstEvaluation(c *evidence) (fault, bool) {
	last := c.parts[len(c.parts)-1]
	hasTrained := c.lastOf(traces.PhaseBackward) >= 0
	if last.Caller < 0 {
		return fault{}, false
	}
	if !hasTrained && callsFrom(c, last.Caller) <= leastForwards {
		return firstInference(c, c.parts)
	}
	fn, _, _ := c.d.Timeline().Places().FrameText(last.Caller)
	named := evaluates(fn) || c.evaluating(&last)
	if hasTrained && !named && !untrainedLine(c, last.Caller) {
		return fault{}, false
	}
	kept, made, ok := keepsAll(c, &last)
	if !ok {
		return fault{}, false
	}
	line := c.frameText(c.ownLine(&last))
	f := fault{Cause: Cause{Kind: "eval_with_grad", Bytes: maybe.Known(kept), Text: fmt.Sprintf(
		"%s of %s that the call of the model at %s made so far are kept", c.u.Bytes(kept), c.u.Bytes(made),
		line)}}
	f.said = fmt.Sprintf("The evaluation runs with gradients on: its first call of the model at %s keeps %s "+
		"for a backward that never comes.", line, c.u.Bytes(kept))
	f.fix = "Wrap the evaluation in torch.no_grad()."
	if !hasTrained {
		f.said = fmt.Sprintf("The model runs with gradients on: the call at %s keeps %s for a backward, and "+
			"no backward followed any of the %s before it.", line, c.u.Bytes(kept),
			callsWord(callsFrom(c, last.Caller)-1))
		f.fix = "Wrap the call in torch.no_grad()."
	}
	f.sure(Likely, "the call keeps most of what it makes, as a graph does; hooks would look the same")
	if hasTrained && !named {
		f.said = fmt.Sprintf("The call of the model at %s keeps %s for a backward, and no backward has "+
			"followed a call from there, while %s from other lines were trained.", line, c.u.Bytes(kept),
			callsWord(trainedCalls(c)))
		f.fix = "If nothing is trained there, wrap it in torch.no_grad()."
		f.sure(Possible, "the call keeps most of what it makes, as a graph does; a training that begins "+
			"there would look the same")
	}
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: ungraphed(c, c.parts[len(c.parts)-1:])}
	return f, true
}

// firstInference finds an inference whose author forgot no_grad, in its first calls: the program's code, the
// names of the functions that they come through, or the mode of the modules say that nothing is trained. What
// looks like it: what explains or attacks a model, which differentiates in evaluation mode and has names that
// say so; a training that is too large and has neither such a name nor a dropout or a batch_norm, which the
// lever for first calls leaves open.
func firstInference(c *evidence, calls []steps.Part) (fault, bool) {
	last := &calls[len(calls)-1]
	if purpose(c, last) != modeEvaluation || c.differentiates(last) || keepsLoss(c) {
		return fault{}, false
	}
	if _, cached := cacheFault(c); cached { // keys and values stay without a graph
		return fault{}, false
	}
	before := c.graphs[len(c.parts)-len(calls) : len(c.parts)-1] // of the calls before the last
	if _, _, keeps := keepsAll(c, last); !keeps && !slices.Contains(before, true) {
		return fault{}, false
	}
	there, kept := c.forwardBlocks(calls[0].First, c.a.At, c.a.At+1)
	for len(there) > 0 && len(calls) > 1 && c.d.Allocs.Start[there[0]] >= calls[1].First {
		calls = calls[1:] // nothing that it made is left
	}
	_, made := c.forwardBlocks(calls[0].First, c.a.At, calls[0].First)
	line := c.frameText(c.ownLine(last))
	f := fault{Cause: Cause{Kind: "eval_with_grad", Bytes: maybe.Known(kept), Text: fmt.Sprintf(
		"%s of %s that calls of the model made so far, the last at %s, are kept", c.u.Bytes(kept),
		c.u.Bytes(made), line)}}
	f.said = fmt.Sprintf("The model runs with gradients on: the call at %s keeps %s for a backward, and "+
		"nothing is trained here.", line, c.u.Bytes(kept))
	if len(calls) > 1 {
		f.said = fmt.Sprintf("The model runs with gradients on: %s, the last of them at %s, keep %s "+
			"for a backward, and nothing is trained here.", nCalls(len(calls)), line, c.u.Bytes(kept))
	}
	f.fix = "Wrap the call in torch.no_grad()."
	f.sure(Likely, "the names of the functions around the call say so; hooks that keep outputs would look "+
		"the same")
	switch {
	case c.namedMode(last) != modeUnknown:
	case c.codeMode(last) == modeEvaluation:
		f.sure(Possible, "no file on the way to the call has to do with training; a training that runs its "+
			"backward pass elsewhere would look the same")
	default:
		f.said = fmt.Sprintf("The model is in evaluation mode, and yet the call at %s keeps %s for a "+
			"backward.", line, c.u.Bytes(kept))
		f.sure(Possible, "its batch norms use the statistics of their buffers; a training that keeps them "+
			"fixed would look the same")
	}
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: ungraphed(c, calls)}
	return f, true
}

// untrainedLine reports whether a line that calls the model is in a function after whose calls no backward
// ever came and whose name does not say that it trains, while other lines have been trained for some steps.
func untrainedLine(c *evidence, caller traces.FrameID) bool {
	fn, file, _ := c.d.Timeline().Places().FrameText(caller)
	for other := range c.trainedLines {
		if f, in, _ := c.d.Timeline().Places().FrameText(other); f == fn && in == file {
			return false
		}
	}
	return !trains(fn) && trainedCalls(c) >= leastSteps
}

// trainedCalls counts the calls of the model that a backward followed.
func trainedCalls(c *evidence) (n int) {
	for i := range c.parts {
		if p := &c.parts[i]; p.Phase == traces.PhaseForward && c.backwardFrees(p) {
			n++
		}
	}
	return n
}
