package autopsy

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// What grows from step to step. The pattern: blocks that one step after the other made and none gave back,
// spread over the whole recording. What looks like it: a buffer that fills up once (only early steps'
// blocks are there) and one that keeps the last few (only late ones'); both lack blocks of some third of
// the steps. Blocks of a backward that stay are graphs kept by create_graph=True, if backward() makes them: a
// gradient that torch.autograd.grad returns is nobody's .grad, so that only a value that is kept holds its
// graph. Several blocks a step are a graph; one block a step is a result that a list keeps. Where weights
// stay, whole models do, and their gradients with them.

// leastSteps is how many steps must have left something.
const leastSteps = 4

// place returns a frame as the tables name it.
func place(fn, file string, line int) string {
	s := fn + " " + path.Base(strings.ReplaceAll(file, `\`, "/"))
	if line > 0 {
		s += ":" + strconv.Itoa(line)
	}
	return s
}

// ticks returns the moments at which a step's work begins: the first forward after a backward or an
// optimizer, of the last phase that the steps have.
func ticks(c *evidence) []timeline.Moment {
	var out []timeline.Moment
	for i, p := range c.parts {
		if p.Phase == traces.PhaseForward && (i == 0 || c.parts[i-1].Phase != traces.PhaseForward) {
			out = append(out, p.First)
		}
	}
	return out
}

// grown returns the live blocks of sites that left something in steps all over the recording, and in how
// many steps.
func grown(c *evidence) (ids []timeline.AllocID, in int) { return leftSince(c, ticks(c), c.live) }

// leftSince returns those of some live blocks whose stacks left something in steps all over a stretch, and in
// how many of its steps, which begin at ticks.
func leftSince(c *evidence, ticks []timeline.Moment, live []timeline.AllocID) (ids []timeline.AllocID,
	in int,
) {
	n := len(ticks) - 1 // the last step is under way
	if n < leastSteps {
		return nil, 0
	}
	type stack struct {
		ids  []timeline.AllocID
		seen map[int]bool
	}
	found := map[traces.StackID]*stack{}
	for _, id := range live {
		at := c.d.Allocs.Start[id]
		if at < ticks[0] || at >= ticks[n] {
			continue
		}
		k, ok := slices.BinarySearch(ticks, at)
		if !ok {
			k--
		}
		s := found[c.d.Origin(id)]
		if s == nil {
			s = &stack{seen: map[int]bool{}}
			found[c.d.Origin(id)] = s
		}
		s.ids, s.seen[k] = append(s.ids, id), true
	}
	all := map[int]bool{}
	for _, s := range found {
		var third [3]bool
		for k := range s.seen {
			third[k*3/n] = true
		}
		if len(s.seen) < leastSteps || !third[0] || !third[1] || !third[2] {
			continue
		}
		ids = append(ids, s.ids...)
		for k := range s.seen {
			all[k] = true
		}
	}
	slices.Sort(ids)
	return ids, len(all)
}

// growth is how many bytes blocks that outlive their steps hold.
type growth struct {
	backward  int64 // of backward passes
	weights   int64
	forward   int64              // of calls of the model
	batches   int64              // made between steps, as before the first one
	after     int64              // made between steps of what the model returned
	results   []timeline.AllocID // of calls without a graph
	functions int                // of the user's that made them
}

func growthOf(c *evidence, ids []timeline.AllocID) (n growth) {
	early, functions := early(c), map[userFunction]bool{}
	for _, id := range ids {
		s, bytes := c.d.Origin(id), c.d.Allocs.Rounded[id]
		name, file := c.userFunction(s)
		functions[userFunction{name, file}] = true
		switch {
		case !betweenSteps(c, id):
		case early[s]:
			n.batches += bytes
		case !c.inModel(s):
			n.after += bytes
		}
		if c.graphless(id) >= 0 {
			n.results = append(n.results, id)
		}
		k := c.kinds.Of(s)
		if k.Has(frames.KindBackwardPass) || s == traces.NoStack {
			n.backward += bytes
		}
		if k.Has(frames.KindModuleInit | frames.KindModuleMove) {
			n.weights += bytes
		}
		if c.inModel(s) {
			n.forward += bytes
		}
	}
	n.functions = len(functions)
	return n
}

func growthFault(c *evidence) (fault, bool) {
	ids, in := grown(c)
	if len(ids) == 0 {
		return fault{}, false
	}
	bytes, from := c.bytesOf(ids), c.sitesOf(ids)
	n := growthOf(c, ids)
	each := bytes / int64(in)
	f := fault{Cause: Cause{Kind: "leak", Bytes: maybe.Known(bytes)}}
	f.sure(Possible, "the recording does not show what keeps a block")
	why := "they are never freed"
	f.fix = "Find what keeps them there: a list, a dictionary, a hook or an attribute; keep numbers, or " +
		"tensors after .detach()."
	switch {
	case 4*n.weights >= bytes:
		why = "each step makes weights, and they stay with their gradients"
	case 4*n.backward >= bytes && 10*n.forward < bytes && keepsWeights(c, ids, in):
		why = "the gradients of each step stay, without a graph"
		f.fix = "Add them up as they come, or move each to the CPU: keep no list of them on the GPU."
	case 4*n.backward >= bytes && gradOnly(c) && keepsWeights(c, ids, in):
		f.Kind = "double_backward"
		why = "each step of an inner loop keeps its forward and the graph of its gradients"
		f.fix = "Leave create_graph=True out of torch.autograd.grad (first order), or take fewer inner " +
			"steps: a second derivative needs all of them at once."
		f.sure(Likely, "a set of weights or of gradients stays from each step; a list of them looks the same")
	case 10*n.backward >= 9*bytes && !gradOnly(c) && oncePerWeight(c, ids):
		f.Kind, why = "zero_grad_kept", "each step trains weights of its own, and their gradients stay"
		f.fix = "Set gradients to None as soon as their weights are trained: " +
			"optimizer.zero_grad(set_to_none=True) after each optimizer's last step."
		f.sure(Likely, "of each weight's size there are no more blocks than weights; gradients with a "+
			"graph, of which each step of a training leaves a set, are more")
	case 4*n.backward >= bytes && n.forward > 0 && !wholeGraphStays(c, ids):
		f.Kind, why = "hook_keeps", "something keeps an output of a module from each step, and its gradient"
		f.fix = "Clear what the hooks fill before each step, or keep it on the CPU without its graph: " +
			"kept.append(output.detach().cpu())."
		f.sure(Likely, "a few of the blocks that each backward needs stay, and with a graph they all would")
	case 4*n.backward >= bytes && gradOnly(c):
		f.Kind, why = "kept_graph", "a value that is kept from step to step keeps the graph of its gradient"
		f.fix = "Detach what one step hands to the next, and what a list or a history keeps: .detach() at " +
			"that line; pass create_graph=True only where the result is differentiated."
		f.sure(Likely, "blocks of torch.autograd.grad stay, and backward() is never called")
	case 4*n.backward >= bytes:
		f.Kind, why = "double_backward", "the backward pass keeps its graph with every gradient"
		f.fix = "Drop create_graph=True from backward(); where second derivatives are needed, use " +
			"torch.autograd.grad and zero_grad(set_to_none=True)."
		f.sure(Likely, "blocks of the backward pass itself stay, and with them most of what the forward made")
	case 2*c.bytesOf(n.results) > bytes:
		return growingResults(c, ids, n.results), true
	case 2*n.batches > bytes:
		why = "the batch of each step stays"
		f.fix = "Find what keeps the batches, such as the results of a step that a list or a trainer " +
			"gathers: leave them out, or keep them on the CPU."
	case 2*n.after > bytes && len(ids) <= in*n.functions: // of a graph, what leads to a result would stay
		why = "what is made of the outputs after each step stays"
	case n.functions == 1 && ofOneCache(c, ids):
		why = "all that this function makes stays, as a cache keeps it"
		f.fix = "Bound the cache (maxsize), key it by what recurs, or do without it; if a list keeps what " +
			"the function returns, empty it."
	case len(ids) >= 2*in:
		f.Kind, why = "kept_graph", "a value that is kept from step to step keeps its graph"
		f.fix = "Add up numbers, not tensors with a graph: .item() or .detach() on what is kept at that line."
		f.sure(Likely, "several blocks a step outlive the backward; hooks on several modules look the same")
		f.elseFix = "if a cache or a list keeps them on purpose, without a graph, empty it or keep fewer"
		f.instead = growthRemedy(c, "leak", ids, c.topName(from))
	case 2*n.forward > bytes && c.outputStays(ids):
		f.Kind, why = "collected_outputs", "one output of each step is kept"
		f.fix = "Keep it on the CPU without its graph, kept.append(output.detach().cpu()), or do not keep it."
		f.sure(Likely, "one output a step stays and its graph does not; a hook on that module looks the same")
	case n.forward > 0 && c.lastOf(traces.PhaseBackward) >= 0:
		f.Kind, why = "hook_keeps", "something keeps one output of a module from each step"
		f.fix = "Keep it on the CPU without its graph: output.detach().cpu(), and clear the list."
		f.sure(Likely, "one output a step stays and its graph does not")
	}
	f.lever = growthRemedy(c, f.Kind, ids, c.topName(from))
	f.said = fmt.Sprintf("Memory grew by %s a step in %d steps, to %s, most of it from %s: %s.",
		c.u.Bytes(each), in, c.u.Bytes(bytes), c.topName(from), why)
	f.Text = fmt.Sprintf("%s in %d blocks of %d steps are still there, %s a step, most from %s",
		c.u.Bytes(bytes), len(ids), in, c.u.Bytes(each), c.topName(from))
	return f, true
}

// ofOneCache reports whether the one function of the user's that made some blocks runs in calls of the model
// before anything else in them, so that none has a graph, and next to nothing of what it made has ended.
func ofOneCache(c *evidence, ids []timeline.AllocID) bool {
	name, file := c.userFunction(c.d.Origin(ids[0]))
	of, made := map[traces.StackID]bool{}, int64(0)
	call, before := -1, false // whether the call made something else before
	for id := ids[0]; id <= ids[len(ids)-1]; id++ {
		s := c.d.Origin(id)
		if _, known := of[s]; !known {
			fn, in := c.userFunction(s)
			of[s] = fn == name && in == file
		}
		if i := steps.PartAt(c.parts, c.d.Allocs.Start[id]); i != call {
			call, before = i, false
		}
		switch {
		case !of[s]:
			before = before || c.inModel(s)
		case before || !c.inModel(s):
			return false
		default:
			made += c.d.Allocs.Rounded[id]
		}
	}
	return name != "" && name != "forward" && made > 0 && 20*c.bytesOf(ids) >= 19*made
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

// gradOnly reports whether torch.autograd.grad is all that runs backward passes, and not backward(), which
// adds to .grad.
func gradOnly(c *evidence) (only bool) {
	for i := range c.d.Timeline().Places().Frames {
		fn, file, _ := c.d.Timeline().Places().FrameText(traces.FrameID(i))
		own := strings.HasSuffix(file, "torch/autograd/__init__.py")
		switch {
		case fn == "backward" && (own || strings.HasSuffix(file, "torch/_tensor.py")):
			return false
		case fn == "grad" && own:
			only = true
		}
	}
	return only
}

// keepsWeights reports whether blocks of the weights' sizes are among those that steps left, a set for each
// step: what torch.autograd.grad returned for them, or weights that a step made of it.
func keepsWeights(c *evidence, ids []timeline.AllocID, in int) bool {
	weights, left := map[int64]int{}, map[int64]int{}
	for _, id := range c.live {
		if c.kinds.Of(c.d.Origin(id)).Has(frames.KindModuleInit|frames.KindModuleMove|frames.KindUserInit) &&
			(len(c.parts) == 0 || c.d.Allocs.Start[id] < c.parts[0].First) {
			weights[c.d.Allocs.Size[id]]++
		}
	}
	for _, id := range ids {
		left[c.d.Allocs.Size[id]]++
	}
	for size := range left {
		left[size] /= in
	}
	return covers(left, weights)
}

// oncePerWeight reports whether blocks can be gradients of different weights: of each size there are at most
// as many as weights. Gradients that are made again for the same weights are more, after a few steps.
func oncePerWeight(c *evidence, ids []timeline.AllocID) bool {
	weights, _ := c.weights()
	left := map[int64]int{}
	for _, id := range ids {
		left[c.d.Allocs.Size[id]]++
	}
	return covers(weights, left)
}

// wholeShare is the share of what a backward needs that stays where the graph does: something holds it from
// its end, and all that leads there stays. A hook keeps what some modules made.
const wholeShare = 0.5

// wholeGraphStays reports whether steps that left some blocks left most of what was there, of what their
// calls of the model had made, when their backward passes began.
func wholeGraphStays(c *evidence, ids []timeline.AllocID) bool {
	left := map[timeline.AllocID]bool{}
	for _, id := range ids {
		left[id] = true
	}
	var needed, stay int64
	for _, r := range c.rounds() {
		if r.backward == timeline.Never || r.after == timeline.Never {
			continue
		}
		saved, bytes := c.forwardBlocks(r.first, r.backward, r.backward)
		kept := int64(0)
		for _, id := range saved {
			if left[id] {
				kept += c.d.Allocs.Rounded[id]
			}
		}
		if kept > 0 {
			needed, stay = needed+bytes, stay+kept
		}
	}
	return float64(stay) >= wholeShare*float64(needed)
}

// growthRemedy ends what a step left with the step's backward.
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
