package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A network beside the trained one that keeps a graph although no optimizer has its weights: a teacher, a
// target network, the features that a loss compares. Its gradients give it away, and its graph is most of its
// cost. The pattern: gradients of weights' sizes that existed through an optimizer step and the zeroing after
// it, while others of the same backward ended; and the optimizer made less state of their sizes than there
// are gradients. The backward shows which call of the model is theirs: it frees what a call left while it
// makes the gradients of that call's weights. Look-alikes: two optimizers that take turns, each of which has
// state for its own; an optimizer without any state, for which we rely on gradients that nobody zeroes in
// several rounds.

// freedShare is the share of what a call left that a backward must free while making some gradients for these
// to be gradients of the call's weights.
const freedShare = 0.6

// stateBySize counts the blocks of the optimizer's state by size, and says how many there are for a
// parameter.
func stateBySize(c *evidence) (count map[int64]int, each int) {
	count, each = map[int64]int{}, 1
	for _, id := range c.live {
		s := c.d.Origin(id)
		k := c.kinds.Of(s)
		if !k.Has(frames.KindStep) || k.Has(frames.KindForeach) {
			continue
		}
		count[c.d.Allocs.Size[id]]++
		if each == 1 && strings.Contains(strings.ToLower(c.frames(s)), "adam") {
			each = 2
		}
	}
	return count, each
}

// untrained returns gradients that no optimizer frees or has state for, and the round that made them.
func untrained(c *evidence, all []round) (ids []timeline.AllocID, made round) {
	a := &c.d.Allocs
	weights, _ := c.weights()
	state, each := stateBySize(c)
	last := -1 // the last round that is over and had an optimizer's step
	for i, r := range all {
		if r.stepped && r.backward != timeline.Never && r.end != timeline.Never {
			last = i
		}
	}
	if last < 0 || len(state) == 0 {
		return nil, round{}
	}
	for i, r := range all[:last+1] {
		if r.backward == timeline.Never || r.after == timeline.Never {
			continue
		}
		var kept []timeline.AllocID
		bySize, ended := map[int64]int{}, false
		first, end := c.d.AllocsIn(r.backward, r.after)
		for id := first; id < end; id++ {
			size := a.Size[id]
			if weights[size] == 0 || a.Requested[id] < r.after || a.Category[id] == timeline.Activation {
				continue
			}
			bySize[size]++
			if a.Requested[id] > c.a.At {
				kept = append(kept, id)
			} else {
				ended = true
			}
		}
		kept = slices.DeleteFunc(kept, func(id timeline.AllocID) bool {
			return each*bySize[a.Size[id]] <= state[a.Size[id]]
		})
		if !ended && i == last { // nothing was zeroed yet: only sizes without any state tell
			kept = slices.DeleteFunc(kept, func(id timeline.AllocID) bool { return state[a.Size[id]] > 0 })
		}
		if len(kept) >= leastCopied {
			return kept, r
		}
	}
	return nil, round{}
}

// callsOf returns the indices of a round's calls whose graphs a backward freed while it made some gradients.
func callsOf(c *evidence, r round, gradients []timeline.AllocID) (calls []int) {
	a := &c.d.Allocs
	lo, hi := a.Start[gradients[0]], a.Start[gradients[len(gradients)-1]]
	for i := r.from; i < r.to; i++ {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward || p.First >= r.backward || p.Caller < 0 {
			continue
		}
		var left, freed int64
		blocks, _ := c.forwardBlocks(p.First, min(p.End, r.backward), r.backward)
		for _, id := range blocks {
			left += a.Rounded[id]
			if q := a.Requested[id]; q >= lo && q <= hi {
				freed += a.Rounded[id]
			}
		}
		if left > 0 && float64(freed) >= freedShare*float64(left) {
			calls = append(calls, i)
		}
	}
	return calls
}

func untrainedFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return fault{}, false
	}
	gradients, made := untrained(c, all)
	if len(gradients) == 0 {
		return fault{}, false
	}
	calls := callsOf(c, made, gradients)
	if len(calls) == 0 {
		return fault{}, false
	}
	callers := map[traces.FrameID]bool{}
	for _, i := range calls {
		callers[c.parts[i].Caller] = true
	}
	var graph []timeline.AllocID
	var changes []Change
	for i := range c.parts {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward || !callers[p.Caller] {
			continue
		}
		blocks, _ := c.forwardBlocks(p.First, min(p.End, c.a.At), p.First)
		graph = append(graph, c.stillThere(blocks)...)
		changes = append(changes, ungraphedUntil(c, *p, p.End)...)
	}
	for _, id := range gradients {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	bytes, line := c.bytesOf(gradients)+c.bytesOf(graph), c.frameText(c.parts[calls[0]].Caller)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of gradients that no optimizer has state for, and %s of the graph of the call at %s, whose "+
			"weights they belong to", c.u.Bytes(c.bytesOf(gradients)), c.u.Bytes(c.bytesOf(graph)), line)}}
	f.said = fmt.Sprintf("No optimizer trains the network called at %s, and yet it keeps a graph and gets "+
		"gradients: %s.", line, c.u.Bytes(bytes))
	f.sure(Likely, "no optimizer has its weights; one that has not stepped yet would look the same")
	before := slices.ContainsFunc(c.parts[made.from:calls[0]], func(p steps.Part) bool {
		return p.Phase == traces.PhaseForward && !callers[p.Caller] && c.backwardFrees(&p)
	})
	if before { // what was called first may need gradients that pass through it
		f.elseFix = "if no output of a trained network goes into it, run it under torch.no_grad(), which " +
			"drops its graph, too"
		f.fix = "Call requires_grad_(False) on its weights before the training."
		f.lever = remedy{name: "freeze_gradients_off", command: at("network.requires_grad_(False)", line),
			changes: changes[len(changes)-len(gradients):]}
		f.instead = remedy{name: "no_grad", command: at("with torch.no_grad():", line), changes: changes}
		return f, true
	}
	f.fix = "Run it under torch.no_grad(), and call requires_grad_(False) on its weights."
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line), changes: changes}
	return f, true
}
