package autopsy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A loop outside of the model whose every iteration keeps tensors for the backward: the soft skeleton of a
// loss, iterations of a solver, steps of a renderer. The pattern: since the last backward, one function of
// the user's that is not part of a module made most of what exists, in many blocks of one size, and most of
// what it made stays, or a part of what each iteration made. A module that the training calls after its
// network may have the loop, too, in code of its own: a loss over the images of a batch. Look-alikes: a model
// written without modules, whose layers are such a loop, and for which the same advice holds; data in a list,
// which exists before the model runs; a loop without a graph, whose iterations free what earlier ones made.
// This detector is not asked if another one finds something.

// leastIterations is how many blocks of one size the function must have left.
const leastIterations = 16

func loopFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	from := timeline.Moment(0)
	if i := c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer); i >= 0 {
		from = c.parts[i].End
	}
	found, of := map[userFunction]*loopMade{}, map[traces.StackID][]*loopMade{}
	first, end := c.d.AllocsIn(from, c.a.At)
	behind := behindNetwork(c, c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:])
	for id := first; id < end; id++ {
		s := a.Stack[id]
		if c.inModel(s) && a.Start[id] < behind {
			continue
		}
		functions, known := of[s]
		if !known {
			for depth, f := range loopFunctions(c, s) {
				if found[f] == nil {
					found[f] = &loopMade{userFunction: f, sizes: map[int64]int{}}
				}
				found[f].depth = max(found[f].depth, depth)
				functions = append(functions, found[f])
			}
			of[s] = functions
		}
		for _, m := range functions {
			m.all += a.Rounded[id]
			m.made = append(m.made, a.Requested[id] > c.a.At)
			if a.Requested[id] > c.a.At {
				m.ids, m.bytes = append(m.ids, id), m.bytes+a.Rounded[id]
				m.sizes[a.Size[id]]++
			}
		}
	}
	best := innermost(found)
	if best == nil || float64(best.bytes) < functionShare*float64(c.total+c.a.Asked.Or(0)) ||
		float64(best.bytes) < keptByCall*float64(best.all) && !best.throughout() {
		return fault{}, false
	}
	most, size := 0, int64(0)
	for n, k := range best.sizes {
		more := cmp.Or(cmp.Compare(int64(k)*n, int64(most)*size), cmp.Compare(n, size))
		if k >= leastIterations && more > 0 {
			most, size = k, n
		}
	}
	if most < leastIterations {
		return fault{}, false
	}
	line := place(best.name, best.file, 0)
	where := ", outside of the model,"
	if c.inModel(c.d.Origin(best.ids[0])) {
		where = ""
	}
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(best.bytes), Text: fmt.Sprintf(
		"%s of a loop in %s%s are kept for the backward in %s, %s of them of %s",
		c.u.Bytes(best.bytes), line, where, nBlocks(len(best.ids)), count(most), c.u.Bytes(size))}}
	f.said = fmt.Sprintf("Every iteration of the loop in %s keeps tensors for the backward: %s in %s, "+
		"%s of them of %s.", line, c.u.Bytes(best.bytes), nBlocks(len(best.ids)), count(most),
		c.u.Bytes(size))
	f.fix = "Do fewer iterations, give it a smaller input (a crop, or a lower resolution), or checkpoint " +
		"each iteration."
	f.elseFix = "if it goes on until nothing changes, as Sinkhorn's and other fixed points do, run all " +
		"iterations but the last under torch.no_grad(): the gradient at the end needs no others"
	f.sure(Likely, "most of what the function made stays until the backward; layers of a model that is "+
		"written without modules would look the same")
	var changes []Change
	for _, id := range best.ids { // for an input half as large, or half as many iterations
		changes = append(changes, life(c.d, id, a.Rounded[id]/2))
	}
	f.lever = remedy{name: "smaller_input", command: at("iterations //= 2", line), changes: changes,
		scale: 0.5}
	f.instead = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: untilNext(c, best.ids), unsure: true}
	return f, true
}

// behindNetwork returns when the last of some calls, which is still running, began, if it is the call of a
// module that runs after the network whose output it gets: another line called that before, or the same line
// alone, and they have no module in common. Otherwise it is Never.
func behindNetwork(c *evidence, open []steps.Part) timeline.Moment {
	if len(open) == 0 || open[len(open)-1].Phase != traces.PhaseForward {
		return timeline.Never
	}
	last := &open[len(open)-1]
	own := modulesOf(c, last)
	for i := range open[:len(open)-1] {
		p := &open[i]
		if p.Phase != traces.PhaseForward || p.Caller == last.Caller && len(open) > 2 || !c.keptGraph(p) {
			continue // a line that calls more than a network and its loss calls layers
		}
		common := false
		for id := range modulesOf(c, p) {
			common = common || own[id]
		}
		if !common {
			return last.First
		}
	}
	return timeline.Never
}

// loopMade is what one function made, with all that it calls.
type loopMade struct {
	userFunction
	depth      int // how many functions of the user's it calls, one within the other
	ids        []timeline.AllocID
	bytes, all int64         // what is there, and with what has ended
	sizes      map[int64]int // blocks that are there, by size
	made       []bool        // for each block that it made, in order: whether it is live
}

// throughoutShare is the share of what a function made that must be live, where its operators also need
// temporaries, as logsumexp does.
const throughoutShare = 0.125

// throughout reports whether blocks of all iterations are live, of the first as well as of the last. Without
// a graph, each iteration frees what the one before it made.
func (m *loopMade) throughout() bool {
	var most int64 // bytes of one size: layers of a model that is written without modules differ in theirs
	for size, n := range m.sizes {
		most = max(most, int64(n)*size)
	}
	if float64(m.bytes) < throughoutShare*float64(m.all) || 2*most < m.bytes {
		return false
	}
	const quarters = 4
	for q := range quarters {
		part, there := m.made[q*len(m.made)/quarters:(q+1)*len(m.made)/quarters], 0
		for _, live := range part {
			if live {
				there++
			}
		}
		if 2*quarters*there < len(m.ids) {
			return false
		}
	}
	return true
}

// innermost returns the function that holds about as much as any other and has the fewest blocks: the one
// with the loop, not its caller. It is nil if there is none.
func innermost(found map[userFunction]*loopMade) (best *loopMade) {
	var most int64
	for _, m := range found {
		most = max(most, m.bytes)
	}
	for _, m := range found {
		if 10*m.bytes < 9*most {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(len(m.ids), len(best.ids)), cmp.Compare(m.depth, best.depth),
			cmp.Compare(m.file, best.file), cmp.Compare(m.name, best.name)) < 0 {
			best = m
		}
	}
	return best
}

// loopFunctions returns the user's functions on a stack outside of the model, or in the code of the one
// module that the training calls, each once, the innermost first.
func loopFunctions(c *evidence, s traces.StackID) (out []userFunction) {
	if !ofLoop(c, s) {
		return nil
	}
	for _, fr := range c.d.Timeline().Places().Stacks.At(s) {
		if c.kinds.Frames[fr].Has(frames.KindModuleCall) {
			break // what is further out calls the module
		}
		name, file, _ := c.d.Timeline().Places().FrameText(fr)
		if f := (userFunction{name, file}); name != "<module>" && c.ofUser(fr) && !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// ofLoop reports whether a stack is the user's own code outside of any module but the outermost, and of any
// backward or optimizer.
func ofLoop(c *evidence, s traces.StackID) bool {
	const others = frames.KindBackwardPass | frames.KindStep | frames.KindOptimizer | frames.KindModuleInit |
		frames.KindModuleMove | frames.KindUserInit | frames.KindLoad
	return s >= 0 && !c.kinds.Of(s).Has(others) && (!c.inModel(s) || c.ofOutermost(s))
}
