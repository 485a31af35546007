package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A copy of the network that may be a target or a teacher. In the first step of a training no gradient shows
// yet which network nobody trains (see untrainedFault), so this is a lever with an "if", and a cause only if
// nothing else is found. The pattern: copy.deepcopy made a second set of the weights, no optimizer has
// stepped, and calls of the model from several lines keep their graphs. Look-alikes: two critics, one copied
// from the other, that are both trained; a pair of encoders that see the two halves of a pair. The recording
// does not show which of the calls is the copy's: the saving is that of the call that keeps least.

// copied is such a copy, and the call that may be its.
type copied struct {
	made  string // where copy.deepcopy made it
	call  steps.Part
	keeps int64 // what the call keeps for a backward, bytes
	calls int   // of the model since the last backward
	all   bool  // each of them keeps a graph
}

// copiedNetwork finds a copy of the network in the first step of a training.
func copiedNetwork(of *evidence) (copied, bool) {
	x := copied{all: true}
	if len(of.parts) == 0 || of.lastOf(traces.PhaseOptimizer) >= 0 {
		return x, false
	}
	sets := weightSets(of)
	for _, s := range sets {
		if copier(of, s) == "copy.deepcopy" && len(twins(of, s, sets)) >= leastCopied {
			x.made = sites.Name(of.d, s.stack)
		}
	}
	if x.made == "" {
		return x, false
	}
	first := of.lastOf(traces.PhaseBackward) + 1
	lines, best := map[traces.FrameID]bool{}, -1
	for i := first; i < len(of.parts); i++ {
		p := &of.parts[i]
		if p.Phase != traces.PhaseForward || p.Caller < 0 {
			continue
		}
		lines[p.Caller] = true
		x.calls++
		if i == len(of.parts)-1 { // under way
			break
		}
		x.all = x.all && of.graphs[i]
		left, kept := of.forwardBlocks(p.First, p.End, of.a.At+1)
		_, made := of.forwardBlocks(p.First, p.End, p.First)
		if len(left) >= leastCopied && float64(kept) >= keptByCall*float64(made) &&
			(best < 0 || kept < x.keeps) {
			best, x.keeps = i, kept
		}
	}
	if best < 0 || len(lines) < 2 {
		return x, false
	}
	x.call = of.parts[best]
	return x, true
}

func copiedNetworkLever(c *leverCase, u timeline.Units) (Lever, bool) {
	if !c.a.OOM || c.d.Info.Kind != traces.DeviceGPU {
		return Lever{}, false
	}
	of := evidenceOf(c.d, c.a, u)
	x, ok := copiedNetwork(of)
	if !ok {
		return comparedLever(c, of)
	}
	n, ok := c.saves(ungraphedUntil(of, x.call, x.call.End))
	line := of.frameText(x.call.Caller)
	l := Lever{
		Name: "no_grad", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: at("with torch.no_grad():", line),
		Text: fmt.Sprintf("if the network that copy.deepcopy made at %s is a target or a teacher, which "+
			"nobody trains, call it under torch.no_grad(): the call at %s keeps %s for a backward",
			x.made, line, u.Bytes(x.keeps)),
	}
	l.Effect.Changes = c.tried
	return l, ok
}

// leastCopiedCalls is how many calls of the model a step must have had for the copy to be the likely cause: a
// network that is trained together with its copy is called once for each.
const leastCopiedCalls = 3

// copiedNetworkFault is the cause if nothing else is found and every call of the step keeps a graph although
// one of the networks is a copy: a training with its target or teacher under no_grad has calls without one.
func copiedNetworkFault(c *evidence) (fault, bool) {
	x, ok := copiedNetwork(c)
	if !ok || !x.all || x.calls < leastCopiedCalls {
		return fault{}, false
	}
	line := c.frameText(x.call.Caller)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(x.keeps), Text: fmt.Sprintf(
		"copy.deepcopy made a second network at %s, and all %s of the model in this step keep a "+
			"graph, that at %s %s", x.made, nCalls(x.calls), line, c.u.Bytes(x.keeps))}}
	f.said = fmt.Sprintf("copy.deepcopy made a second network at %s, and all %s of the model in this "+
		"step keep a graph: a target or a teacher needs none.", x.made, nCalls(x.calls))
	f.fix = "Call the copy under torch.no_grad(), and whatever else is not differentiated."
	f.sure(Possible, "no optimizer has stepped yet; a copy that is trained, too, would look the same")
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: ungraphedUntil(c, x.call, x.call.End)}
	return f, true
}
