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

// A few calls whose graphs are chained: an estimate that each iteration computes from gradients and from the
// estimate before it, such as an inverse Hessian times a vector. Each derivative then goes through all graphs
// before it, so the memory runs out after two or three iterations, too few to call it growth. The pattern:
// the last finished calls of the model from one line kept their graphs, although torch.autograd.grad went
// through each of them, and the code on the way to them can be read and has neither a backward() nor an
// optimizer that would need these graphs later. Look-alikes: the inner loop of a meta-learner, which needs
// them and makes new weights in each iteration; the first step of a training with several terms, whose code
// has an optimizer.

// leastChained is how many finished calls must have kept their graphs; from leastSteps on they are growth.
const leastChained = 2

func chainedFault(c *evidence) (fault, bool) {
	ids, in, call := chained(c)
	if in < leastChained || in >= leastSteps || innerLoop(c, ids[0], in) {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.frameText(call.Caller)
	f := fault{Cause: Cause{Kind: "kept_graph", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of the last %s of the model at %s are still there, and nothing runs backward() through "+
			"them", c.u.Bytes(bytes), nBlocks(len(ids)), nCalls(in), line)}}
	f.said = fmt.Sprintf("The graphs of the last %s of the model at %s stay after torch.autograd.grad has "+
		"gone through them: %s.", nCalls(in), line, c.u.Bytes(bytes))
	f.seek = "Find what one iteration hands to the next, such as an estimate that is computed from gradients"
	f.fix = "detach it, or compute it under torch.no_grad()."
	f.sure(Likely, "no code on the way to the calls trains anything; a derivative of several calls at once "+
		"would look the same")
	f.lever = growthRemedy(c, f.Kind, ids, line)
	return f, true
}

// chained returns what the last finished calls of the model left that kept their graphs, how many these are,
// and the call under way.
func chained(c *evidence) (ids []timeline.AllocID, in int, call *steps.Part) {
	all := c.rounds()
	if len(all) <= leastChained || !gradOnly(c) || c.lastOf(traces.PhaseOptimizer) >= 0 {
		return nil, 0, nil
	}
	call = &c.parts[all[len(all)-1].from]
	if call.Caller < 0 || !c.codeTrainsNothing(call) {
		return nil, 0, nil
	}
	for _, r := range slices.Backward(all[:len(all)-1]) {
		if r.backward == timeline.Never || c.parts[r.from].Caller != call.Caller {
			break
		}
		saved, made := c.forwardBlocks(r.first, r.backward, r.backward)
		if kept := c.bytesOf(c.stillThere(saved)); made == 0 || float64(kept) < retainedShare*float64(made) {
			break
		}
		first, end := c.d.AllocsIn(r.first, r.end)
		for id := first; id < end; id++ {
			s := c.d.Origin(id)
			if c.d.Allocs.Requested[id] > c.a.At &&
				(s == traces.NoStack || c.kinds.Of(s).Has(frames.KindModel|frames.KindBackwardPass)) {
				ids = append(ids, id)
			}
		}
		in++
	}
	slices.Sort(ids)
	return ids, in, call
}

// innerLoop reports whether the user's code has left a new set of weights for each of some iterations, as a
// meta-learner's inner loop does.
func innerLoop(c *evidence, first timeline.AllocID, iterations int) bool {
	weights, left := map[int64]int{}, map[int64]int{}
	for _, id := range c.live {
		k := c.kinds.Of(c.d.Origin(id))
		switch {
		case id < first && k.Has(frames.KindModuleInit|frames.KindModuleMove|frames.KindUserInit):
			weights[c.d.Allocs.Size[id]]++
		case id > first && !k.Has(frames.KindModel|frames.KindBackwardPass) && c.d.Origin(id) >= 0:
			left[c.d.Allocs.Size[id]]++
		}
	}
	for size := range left {
		left[size] /= iterations
	}
	return covers(left, weights)
}
