package autopsy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
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

// leastForwards is how many calls must have left something. One is enough of a line that no backward ever
// followed, if what it left is a graph: at least graphBlocks blocks.
const (
	leastForwards = 3
	graphBlocks   = 8
)

// evaluates reports whether a function's name says that it evaluates.
func evaluates(fn string) bool {
	fn = strings.ToLower(fn)
	for _, word := range []string{"valid", "eval", "test", "predict", "infer", "sample", "generate"} {
		if strings.Contains(fn, word) {
			return true
		}
	}
	return false
}

// openForwards returns the line with the most model calls since the last backward, how many calls left
// something, and what they left.
func openForwards(c *evidence) (caller traces.FrameID, calls int, ids []timeline.AllocID) {
	from := c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer) + 1
	count := map[traces.FrameID]int{}
	caller = -1
	for _, p := range c.parts[from:] {
		count[p.Caller]++
		if caller < 0 || count[p.Caller] > count[caller] {
			caller = p.Caller
		}
	}
	if caller < 0 {
		return -1, 0, nil
	}
	k, kept := 0, false
	open := c.parts[from:]
	for _, id := range c.live {
		at := c.d.Allocs.Start[id]
		if at < open[0].First {
			continue
		}
		for k+1 < len(open) && open[k+1].First <= at {
			k, kept = k+1, false
		}
		kind := c.kinds.Of(c.d.Origin(id))
		if k == len(open)-1 || !kind.Has(frames.KindModel) { // the last call is under way
			continue
		}
		ids = append(ids, id)
		if !kept && open[k].Caller == caller {
			calls, kept = calls+1, true
		}
	}
	return caller, calls, ids
}

// callsWord counts calls.
func callsWord(n int) string {
	if n == 1 {
		return "a call"
	}
	return timeline.Count(int64(n)) + " calls"
}

func openForwardsFault(c *evidence) (fault, bool) {
	if len(c.parts) == 0 || c.parts[len(c.parts)-1].Phase != traces.PhaseForward {
		return fault{}, false
	}
	caller, calls, ids := openForwards(c)
	if calls == 0 {
		return firstEvaluation(c)
	}
	trained, trains := c.trained[caller], c.lastOf(traces.PhaseBackward) >= 0
	if calls < leastForwards && (!trains || trained || len(ids) < graphBlocks*calls) {
		return fault{}, false
	}
	fn, _, _ := c.d.Timeline().Places().FrameText(caller)
	line, bytes := c.frameText(caller), c.bytesOf(ids)
	f := fault{Cause: Cause{Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s of the model at %s are still there, and no backward came in between",
		c.u.Bytes(bytes), callsWord(calls), line)}}
	open := c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]
	left := leftGraph(c, open)
	beside := c.beside(open[0].First, open[len(open)-1].First)
	goes := slices.Concat(beside, ids)
	switch {
	case len(ids) < 2*calls:
		f.Kind = "collected_outputs"
		f.said = fmt.Sprintf("The results of %d calls of the model at %s are collected on the GPU: %s.",
			calls, line, c.u.Bytes(bytes))
		f.sure(Likely, "each call leaves one block; a hook on the last module looks the same")
		f.fix = "Move each to the CPU as it comes: outputs.append(out.detach().cpu())."
		f.lever = remedy{name: "move_outputs_to_cpu", command: at("outputs.append(out.detach().cpu())", line),
			changes: nextCall(c, ids)}
	case left.known && !left.graph:
		f.Kind = "hook_keeps"
		f.said = fmt.Sprintf("%s of the model at %s left %s on the GPU, though none left a graph: a hook, "+
			"or an attribute of a module, keeps tensors.", callsWord(calls), line, c.u.Bytes(bytes))
		f.sure(Likely, "what a graph keeps of the norms is gone; a list of layers' outputs looks the same")
		f.fix = "Remove the hook (handle.remove()), clear what it fills after each call, or set " +
			"model.eval() if it is for training only."
		f.lever = remedy{name: "remove_hook", command: at("handle.remove()", line), changes: nextCall(c, goes)}
	case trains && !trained || evaluates(fn) || !trains && left.known && !keepsLoss(c):
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
		if !evaluates(fn) && calls >= leastForwards && keepsLoss(c) {
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
		f.lever = remedy{name: "remove_hook", command: at("handle.remove()", line), changes: nextCall(c, goes)}
		_, made := c.forwardBlocks(open[0].First, open[len(open)-1].First, open[0].First)
		if float64(bytes) >= keptByCall*float64(made) { // as a graph does, and hooks on every module
			f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
				changes: append(nextCall(c, beside), ungraphed(c, open)...)}
		}
	default:
		f.Kind = "one_backward_for_many"
		f.said = fmt.Sprintf("The graphs of %d forwards at %s wait for one backward: %s.", calls, line,
			c.u.Bytes(bytes))
		f.sure(Likely, "calls from the line that trains wait for a backward")
		f.fix = "Call (loss / n).backward() after each micro-batch, not once on their sum."
		f.lever = remedy{name: "backward_each_micro_batch", command: at("(loss / n).backward()", line),
			changes: nextCall(c, goes)}
		scheduled(c, &f, calls, ids)
	}
	return f, true
}

// keptByCall is the share of a call's bytes that are there while it is under way with gradients on. Without,
// each layer's end when the next has run.
const keptByCall = 0.5

// firstEvaluation finds an evaluation that fails within a call: a function that is named as one calls the
// model in a process that trains elsewhere, or the process has called it from there before and never ran a
// backward, and the call keeps most of what it made. What looks like it: a cache of keys and values, which a
// line makes twice a layer, skip connections, which are fewer, and the first step of a training that
// accumulates gradients, whose earlier calls are still there.
func firstEvaluation(c *evidence) (fault, bool) {
	last := c.parts[len(c.parts)-1]
	trains := c.lastOf(traces.PhaseBackward) >= 0
	if last.Caller < 0 || !trains && c.callsFrom(last.Caller) <= leastForwards {
		return fault{}, false
	}
	if fn, _, _ := c.d.Timeline().Places().FrameText(last.Caller); trains && !evaluates(fn) {
		return fault{}, false
	}
	ids, kept := c.forwardBlocks(last.First, c.a.At, c.a.At+1)
	_, made := c.forwardBlocks(last.First, c.a.At, last.First)
	if len(ids) < graphBlocks || float64(kept) < keptByCall*float64(made) {
		return fault{}, false
	}
	line := c.frameText(last.Caller)
	f := fault{Cause: Cause{Kind: "eval_with_grad", Bytes: maybe.Known(kept), Text: fmt.Sprintf(
		"%s of %s that the call of the model at %s made so far are kept", c.u.Bytes(kept), c.u.Bytes(made),
		line)}}
	f.said = fmt.Sprintf("The evaluation runs with gradients on: its first call of the model at %s keeps %s "+
		"for a backward that never comes.", line, c.u.Bytes(kept))
	f.fix = "Wrap the evaluation in torch.no_grad()."
	if !trains {
		f.said = fmt.Sprintf("The model runs with gradients on: the call at %s keeps %s for a backward, and "+
			"no backward followed any of the %s before it.", line, c.u.Bytes(kept),
			callsWord(c.callsFrom(last.Caller)-1))
		f.fix = "Wrap the call in torch.no_grad()."
	}
	f.sure(Likely, "the call keeps most of what it makes, as a graph does; hooks look the same")
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: ungraphed(c, c.parts[len(c.parts)-1:])}
	return f, true
}

// callsFrom counts the calls of the model from a line, the one under way included.
func (c *evidence) callsFrom(caller traces.FrameID) (n int) {
	for i := range c.parts {
		if c.parts[i].Phase == traces.PhaseForward && c.parts[i].Caller == caller {
			n++
		}
	}
	return n
}

// beside returns what the training loop made in [from, to) outside of the model and is still there: inputs,
// targets and parts of a loss, which what keeps a graph keeps too.
func (c *evidence) beside(from, to timeline.Moment) (ids []timeline.AllocID) {
	first, end := c.d.AllocsIn(from, to)
	for id := first; id < end; id++ {
		if k := c.kinds.Of(c.d.Allocs.Stack[id]); c.d.Allocs.Requested[id] > c.a.At &&
			!k.Has(frames.KindModel|frames.KindBackwardPass|frames.KindStep) {
			ids = append(ids, id)
		}
	}
	return ids
}

// keepsLoss reports whether anything that a loss allocated is still there: one of torch's, or a function
// whose name or file says that it is one.
func keepsLoss(c *evidence) bool {
	places := c.d.Timeline().Places()
	return slices.ContainsFunc(c.live, func(id timeline.AllocID) bool {
		s := c.d.Origin(id)
		if c.kinds.Of(s).Has(frames.KindLoss) {
			return true
		}
		return s >= 0 && slices.ContainsFunc(places.Stacks.At(s), func(f traces.FrameID) bool {
			fn, file, _ := places.FrameText(f)
			return c.kinds.Frames[f].Has(frames.KindPython) && (namesLoss(fn) || namesLoss(path.Base(file)))
		})
	})
}

// namesLoss reports whether a function's or file's name says that it computes a loss.
func namesLoss(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "loss") || strings.Contains(name, "criterion")
}

// nextCall ends what calls of the model left when the call after each begins.
func nextCall(c *evidence, ids []timeline.AllocID) []Change {
	return c.endingAt(ids, func(id timeline.AllocID) timeline.Moment {
		if k := steps.PartAt(c.parts, c.d.Allocs.Start[id]) + 1; k < len(c.parts) {
			return c.parts[k].First
		}
		return timeline.Never
	})
}

// ungraphed ends what calls of the model made as it would end without a graph, the last of each line when the
// next call begins.
func ungraphed(c *evidence, calls []steps.Part) (out []Change) {
	for k := range calls {
		after := timeline.Never
		if k+1 < len(calls) {
			after = calls[k+1].First
		}
		out = append(out, ungraphedUntil(c, calls[k], after)...)
	}
	return out
}

// ungraphedUntil ends what a call of the model made as it would end without a graph: a block of a line when
// the line makes its next one, for the next layer, and the last of each at a given moment.
func ungraphedUntil(c *evidence, p steps.Part, after timeline.Moment) []Change {
	a := &c.d.Allocs
	var ids []timeline.AllocID
	next, until := map[traces.StackID]timeline.Moment{}, map[timeline.AllocID]timeline.Moment{}
	first, end := c.d.AllocsIn(p.First, min(p.End, c.a.At+1))
	for id := end - 1; id >= first; id-- {
		s := a.Stack[id]
		if !c.kinds.Of(s).Has(frames.KindModel) {
			continue
		}
		m, ok := next[s]
		if !ok {
			m = after
		}
		ids, until[id] = append(ids, id), m
		next[s] = a.Start[id]
	}
	return c.endingAt(ids, func(id timeline.AllocID) timeline.Moment { return until[id] })
}

// concatenatedFault finds one block that a line makes again, longer each time: torch.cat of what there was
// and what came.
func concatenatedFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	last := map[traces.StackID]timeline.AllocID{}
	rises := map[traces.StackID]int{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		s := a.Stack[id]
		if s == traces.NoStack {
			continue
		}
		// The old block is read while the new one is made, and freed then. A size that just grows is not
		// enough.
		before, ok := last[s]
		if ok && a.Size[id] > a.Size[before] &&
			a.Start[id] < a.Requested[before] && a.Requested[before] < c.a.At {
			rises[s]++
		} else {
			rises[s] = 0
		}
		last[s] = id
	}
	best := timeline.NoAlloc
	for _, id := range c.live {
		s := a.Stack[id]
		if s == traces.NoStack || rises[s] < leastForwards || c.kinds.Of(s).Has(frames.KindModel) {
			continue
		}
		if best == timeline.NoAlloc || a.Rounded[id] > a.Rounded[best] {
			best = id
		}
	}
	if best == timeline.NoAlloc {
		return fault{}, false
	}
	line := sites.Name(c.d, a.Stack[best])
	f := fault{Cause: Cause{Kind: "collected_outputs", Bytes: maybe.Known(a.Rounded[best]), Text: fmt.Sprintf(
		"%s made a block that grew %d times in a row, now %s", line, rises[a.Stack[best]],
		c.u.Bytes(a.Rounded[best]))}}
	f.said = fmt.Sprintf("%s collects results in one tensor on the GPU, which grew %d times in a row to %s; "+
		"each time the old one and the new one are there together.", line, rises[a.Stack[best]],
		c.u.Bytes(a.Rounded[best]))
	f.sure(Certain, "each block is longer than the last, which is freed once the longer one is made")
	f.fix = "Append out.detach().cpu() to a list, and concatenate once at the end."
	if strings.Contains(c.frames(a.Stack[best]), "/transformers/trainer") {
		f.fix = "Pass eval_accumulation_steps=1 to TrainingArguments, which moves them to the CPU, or keep " +
			"less of each with preprocess_logits_for_metrics."
	}
	f.lever = remedy{name: "move_outputs_to_cpu", command: at("outputs.append(out.detach().cpu())", line),
		changes: c.neverMade(func(id timeline.AllocID) bool { return a.Stack[id] == a.Stack[best] })}
	if c.d.Event(c.a.At).Stack == a.Stack[best] {
		f.lever.request = c.a.Asked.Or(0)
	}
	return f, true
}
