package autopsy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The ways in which steps leave something behind, distinguished by what made it: the backward pass, the
// forward pass, the initialisation of weights, or code between the steps.

// growthKind is one such way.
type growthKind struct {
	holds     func(*growth) bool
	results   bool   // what grows are results of calls without a graph, a cause of its own
	cause     string // its stable name
	why       string // a clause that says what happens
	seek, fix string // what to look for, and what to change
	certainty Certainty
	because   string // why it is as certain as that
	elseFix   string // what to change if the program means to keep it
}

// anyGrowth is what no other kind describes.
var anyGrowth = growthKind{
	cause: "leak", why: "they are never freed",
	seek:      "Find what keeps them: a list, a dictionary, a hook or an attribute",
	fix:       "keep numbers, or tensors after .detach().",
	certainty: Possible, because: "the recording does not show what keeps a block",
}

// kindOf returns the first kind that matches a growth. Fields that the kind leaves empty are as for any
// growth.
func kindOf(g *growth) growthKind {
	for _, k := range growthKinds {
		if !k.holds(g) {
			continue
		}
		k.cause, k.why = cmp.Or(k.cause, anyGrowth.cause), cmp.Or(k.why, anyGrowth.why)
		if k.fix == "" {
			k.seek, k.fix = anyGrowth.seek, anyGrowth.fix
		}
		if k.because == "" {
			k.certainty, k.because = anyGrowth.certainty, anyGrowth.because
		}
		return k
	}
	return anyGrowth
}

// ofBackward reports whether backward passes made at least a quarter of what stays. Gradients take that share
// of a graph that is kept.
func (g *growth) ofBackward() bool { return 4*g.backward >= g.bytes }

// growthKinds lists the kinds, the more specific first.
var growthKinds = []growthKind{
	{
		holds: func(g *growth) bool { return 4*g.weights >= g.bytes },
		why:   "each step makes weights, and they stay with their gradients",
	},
	{
		holds: func(g *growth) bool { return 2*g.byHooks(g.ids) > g.bytes },
		cause: "hook_keeps", why: "what hooks allocate in each step is kept",
		fix: "After each step, delete what the hooks put on modules or into lists: handle.remove() leaves " +
			"it there.",
		certainty: Likely,
		because:   "hooks allocated most of it",
	},
	{
		holds: func(g *growth) bool {
			return g.ofBackward() && 10*g.forward < g.bytes && keepsWeights(g.evidence, g.ids, g.in)
		},
		why: "the gradients of each step stay, without a graph",
		fix: "Add them up as they come, or move each to the CPU: keep no list of them on the GPU.",
	},
	{
		holds: func(g *growth) bool {
			return g.ofBackward() && gradOnly(g.evidence) && keepsWeights(g.evidence, g.ids, g.in)
		},
		cause: "double_backward",
		why:   "each step of an inner loop keeps its forward and the graph of its gradients",
		fix: "Leave create_graph=True out of torch.autograd.grad (first order), or take fewer inner " +
			"steps: a second derivative needs all of them at once.",
		certainty: Likely,
		because: "a set of weights or of gradients stays from each step; a list of them would look the " +
			"same",
	},
	{
		holds: func(g *growth) bool {
			return 10*g.backward >= 9*g.bytes && !gradOnly(g.evidence) && oncePerWeight(g.evidence, g.ids)
		},
		cause: "zero_grad_kept", why: "each step trains weights of its own, and their gradients stay",
		fix: "Set gradients to None as soon as their weights are trained: " +
			"optimizer.zero_grad(set_to_none=True) after each optimizer's last step.",
		certainty: Likely,
		because: "there are no more blocks of a size than weights of that size; a graph that is kept would " +
			"leave a set of gradients for each step",
	},
	{
		holds: func(g *growth) bool {
			return g.ofBackward() && g.forward > 0 && !wholeGraphStays(g.evidence, g.ids) &&
				!g.keepsNothing(g.ids)
		},
		cause: "hook_keeps", why: "something keeps an output of a module from each step, and its gradient",
		fix: "Clear what the hooks fill before each step, or keep it on the CPU without its graph: " +
			"kept.append(output.detach().cpu()).",
		certainty: Likely,
		because:   "a few of the blocks that each backward needs stay, and with a graph they all would",
	},
	{
		holds: func(g *growth) bool { return g.ofBackward() && gradOnly(g.evidence) },
		cause: "kept_graph", why: "a value that is kept from step to step keeps the graph of its gradient",
		fix: "Detach what one step hands to the next, and what a list or a history keeps; pass " +
			"create_graph=True only where the result is differentiated.",
		certainty: Likely, because: "blocks of torch.autograd.grad stay, and backward() is never called",
	},
	{
		holds: func(g *growth) bool { return g.ofBackward() && freedElsewhere(g.evidence, g.ids) },
		cause: "kept_graph", why: "a value that is kept from step to step keeps the graph of its gradient",
		fix: "Detach what a list or a history keeps, such as the loss of an evaluation that needs " +
			"derivatives: losses.append(loss.detach()).",
		certainty: Likely,
		because: "blocks of calls from one line stay, and backward passes free what calls from " +
			"others leave",
	},
	{
		holds: (*growth).ofBackward,
		cause: "double_backward", why: "the backward pass keeps its graph with every gradient",
		fix: "Drop create_graph=True from backward(); where second derivatives are needed, use " +
			"torch.autograd.grad and zero_grad(set_to_none=True).",
		certainty: Likely,
		because:   "blocks of the backward pass itself stay, and with them most of what the forward made",
	},
	{
		holds:   func(g *growth) bool { return 2*g.bytesOf(g.results) > g.bytes },
		results: true,
	},
	{
		holds: func(g *growth) bool { return 2*g.batches > g.bytes },
		why:   "the batch of each step stays",
		seek:  "Find what keeps the batches, such as the results of a step that a list or a trainer gathers",
		fix:   "leave them out, or keep them on the CPU.",
	},
	{
		// of a graph, what leads to a result would stay
		holds: func(g *growth) bool { return 2*g.after > g.bytes && len(g.ids) <= g.in*g.functions },
		why:   "what is made of the outputs after each step stays",
	},
	{
		holds: func(g *growth) bool { return g.functions == 1 && ofOneCache(g.evidence, g.ids) },
		why:   "all that this function makes stays, as a cache keeps it",
		fix: "Limit the cache (maxsize), key it by something that repeats, or drop it; if a list keeps " +
			"what the " +
			"function returns, empty it.",
	},
	{
		holds: func(g *growth) bool { return len(g.ids) >= 2*g.in && keptDetached(g.evidence, g.ids) },
		why:   "what each step returns is kept until the end",
		seek:  "Return only what is needed",
		fix:   "return the loss alone, or keep the rest on the CPU: kept.append(output.detach().cpu()).",
	},
	{
		holds: func(g *growth) bool { return len(g.ids) >= 2*g.in && madeDetached(g.evidence, g.ids) },
		why:   "what each step makes of detached outputs is kept",
		seek:  "Find what keeps it, such as the results of a step that a list or a trainer gathers",
		fix:   "return the loss alone, or keep the rest on the CPU: kept.append(output.detach().cpu()).",
	},
	{
		holds: func(g *growth) bool { return len(g.ids) >= 2*g.in },
		cause: "kept_graph", why: "a value that is kept from step to step keeps its graph",
		fix:       "Add up numbers, not tensors with a graph: .item() or .detach() on what is kept.",
		certainty: Likely,
		because:   "several blocks a step outlive the backward; hooks on several modules would look the same",
		elseFix:   "if a cache or a list keeps them on purpose, without a graph, empty it or keep fewer",
	},
	{
		holds: func(g *growth) bool { return 2*g.forward > g.bytes && g.outputStays(g.ids) },
		cause: "collected_outputs", why: "one output of each step is kept",
		fix: "Keep it on the CPU without its graph, kept.append(output.detach().cpu()), or do not keep " +
			"it.",
		certainty: Likely,
		because: "one output a step stays and its graph does not; a hook on that module would look the " +
			"same",
	},
	{
		holds: func(g *growth) bool {
			return g.forward > 0 && g.lastOf(traces.PhaseBackward) >= 0 && !g.keepsNothing(g.ids)
		},
		cause: "hook_keeps", why: "something keeps one output of a module from each step",
		fix:       "Keep it on the CPU without its graph: output.detach().cpu(), and clear the list.",
		certainty: Likely, because: "one output a step stays and its graph does not",
	},
}

// madeDetached reports whether modules made none of some blocks, and the line that made the largest of them
// detaches what it works on: neither it nor a batch has a graph.
func madeDetached(c *evidence, ids []timeline.AllocID) bool {
	if slices.ContainsFunc(ids, func(id timeline.AllocID) bool {
		return c.kinds.Of(c.d.Origin(id)).Has(frames.KindModuleCall)
	}) {
		return false
	}
	largest := slices.MaxFunc(ids, func(x, y timeline.AllocID) int {
		return cmp.Compare(c.d.Allocs.Size[x], c.d.Allocs.Size[y])
	})
	if c.d.Origin(largest) == traces.NoStack {
		return false
	}
	for _, id := range c.places.Stacks.At(c.d.Origin(largest)) {
		if c.ofUser(id) {
			lines, own := c.linesAt(id)
			return lines != nil && detaches.MatchString(lines[own].text)
		}
	}
	return false
}

// ofOneCache reports whether the one function of the user's that made some blocks runs in calls of the model
// before anything else in them, so none has a graph, and almost everything that it made is still there.
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

// freedElsewhere reports whether blocks are of calls of the model from some lines, while backward passes
// freed what calls from others had left: create_graph=True in backward() would keep that, too.
func freedElsewhere(c *evidence, ids []timeline.AllocID) bool {
	leave, freed := map[traces.FrameID]bool{}, map[traces.FrameID]int{}
	for _, id := range ids {
		if i := steps.PartAt(c.parts, c.d.Allocs.Start[id]); i >= 0 && c.inModel(c.d.Origin(id)) {
			leave[c.parts[i].Caller] = true
		}
	}
	most := 0
	for i := range c.parts {
		if p := &c.parts[i]; p.Phase == traces.PhaseForward && !leave[p.Caller] && c.backwardFrees(p) {
			freed[p.Caller]++
			most = max(most, freed[p.Caller])
		}
	}
	return len(leave) > 0 && most >= leastSteps
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

// wholeShare is the share of what a backward needs that stays if the whole graph does: something holds it
// from its end, and everything that leads there stays. A hook keeps what some modules made.
const wholeShare = 0.5

// oneLayer is how many blocks a layer that is called by itself leaves for its backward at most.
const oneLayer = 3

// wholeGraphStays reports whether the steps that left some blocks left most of what their calls of the model
// had made and still existed when their backward passes began. An evaluation whose graph stays may precede a
// training's call that leaves nothing, so a call that left nothing does not count, unless it made so little
// that it may be one layer of several.
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
		type call struct {
			blocks      int
			made, stays int64
		}
		calls := map[int]call{}
		saved, _ := c.forwardBlocks(r.first, r.backward, r.backward)
		kept := int64(0)
		for _, id := range saved {
			i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
			x, n := calls[i], c.d.Allocs.Rounded[id]
			x.blocks, x.made = x.blocks+1, x.made+n
			if left[id] {
				x.stays, kept = x.stays+n, kept+n
			}
			calls[i] = x
		}
		for _, x := range calls {
			if kept > 0 && (x.stays > 0 || x.blocks <= oneLayer) {
				needed, stay = needed+x.made, stay+x.stays
			}
		}
	}
	return float64(stay) >= wholeShare*float64(needed)
}

// growth is what steps left behind, and the origin of its bytes.
type growth struct {
	*evidence
	ids   []timeline.AllocID
	in    int // how many steps left something
	bytes int64

	backward  int64 // of backward passes
	weights   int64
	forward   int64              // of calls of the model
	batches   int64              // made between steps, as before the first one
	after     int64              // made between steps from what the model returned
	results   []timeline.AllocID // of calls without a graph
	functions int                // of the user's that made them
}

func growthOf(c *evidence, ids []timeline.AllocID, in int) *growth {
	g := &growth{evidence: c, ids: ids, in: in, bytes: c.bytesOf(ids)}
	early, functions := early(c), map[userFunction]bool{}
	for _, id := range ids {
		s, bytes := c.d.Origin(id), c.d.Allocs.Rounded[id]
		name, file := c.userFunction(s)
		functions[userFunction{name, file}] = true
		switch {
		case !betweenSteps(c, id):
		case early[s]:
			g.batches += bytes
		case !c.inModel(s):
			g.after += bytes
		}
		if c.graphless(id) >= 0 {
			g.results = append(g.results, id)
		}
		k := c.kinds.Of(s)
		if k.Has(frames.KindBackwardPass) || s == traces.NoStack {
			g.backward += bytes
		}
		if k.Has(frames.KindModuleInit | frames.KindModuleMove) {
			g.weights += bytes
		}
		if c.inModel(s) {
			g.forward += bytes
		}
	}
	g.functions = len(functions)
	return g
}
