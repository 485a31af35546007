package autopsy

import (
	"path"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Calls of the model: what each left, what was allocated alongside it, and what the names around it say.

// leastForwards is how many calls must have left something. One is enough for a line that no backward ever
// followed, if what it left is a graph: at least graphBlocks blocks.
const (
	leastForwards = 3
	graphBlocks   = 8
	// smallGraph is how many are enough if the code shows nothing else that could keep them.
	smallGraph = 4
)

// history is a run up to the moment of an autopsy: its parts, which calls of the model kept a graph, and
// where those came from that a backward followed.
type history struct {
	code
	d     *timeline.Device
	at    timeline.Moment
	parts []steps.Part // those that begin at or before the moment
	// trainedLines are the lines whose calls of the model a backward followed, trainedPaths the ways that
	// these came: see pathOf.
	trainedLines map[traces.FrameID]bool
	trainedPaths [][]traces.FrameID
	// graphs says of each part whether it is a call of the model that kept a graph: see keptGraph.
	graphs []bool
	says   saidByCode
}

// historyOf returns the history of a device up to a moment.
func historyOf(d *timeline.Device, at timeline.Moment) history {
	c := history{code: codeOf(d), d: d, at: at, trainedLines: map[traces.FrameID]bool{},
		says: nothingSaid()}
	all := steps.Parts(d)
	c.parts = all[:steps.PartAt(all, at)+1]
	c.graphs = make([]bool, len(c.parts))
	for i := range c.parts {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward {
			continue
		}
		c.graphs[i] = c.keptGraph(p)
		if c.backwardFrees(p) {
			if !c.trainedFrom(p) {
				c.trainedPaths = append(c.trainedPaths, c.pathOf(p))
			}
			c.trainedLines[p.Caller] = true
		}
	}
	return c
}

// lastOf returns the index of the last part of some phases, -1 for none.
func (c *history) lastOf(phases ...traces.Phase) int {
	for i := len(c.parts) - 1; i >= 0; i-- {
		if slices.Contains(phases, c.parts[i].Phase) {
			return i
		}
	}
	return -1
}

// backwardFrees reports whether most of what a call left was freed by a backward.
func (c *history) backwardFrees(p *steps.Part) bool {
	return p.Frees >= 0 && p.Frees < len(c.parts) && c.parts[p.Frees].Phase == traces.PhaseBackward
}

// evaluates reports whether a function's name says that it evaluates.
func evaluates(fn string) bool {
	fn = strings.ToLower(fn)
	for _, word := range []string{"valid", "eval", "test", "predict", "infer", "sample", "generate",
		"calibrat", "quantiz", "extract"} {
		if strings.Contains(fn, word) {
			return true
		}
	}
	return false
}

// differentiated are parts of the names of functions whose results are differentiated although nothing is
// trained there: measures of how much weights matter, and what explains or attacks a model.
var differentiated = []string{"fisher", "grad", "hessian", "jacobian", "influence", "importance", "saliency",
	"attribut", "sensitiv", "penalty"}

// differentiates reports whether a function on a call's path has the name of one whose results are
// differentiated.
func (c *history) differentiates(p *steps.Part) bool {
	return slices.ContainsFunc(c.pathOf(p), func(id traces.FrameID) bool {
		fn, _, _ := c.d.Timeline().Places().FrameText(id)
		fn = strings.ToLower(fn)
		return c.ofUser(id) && !strings.Contains(fn, "no_grad") &&
			slices.ContainsFunc(differentiated, func(word string) bool { return strings.Contains(fn, word) })
	})
}

// callsWord counts calls.
func callsWord(n int) string {
	if n == 1 {
		return "a call"
	}
	return timeline.Count(int64(n)) + " calls"
}

// callsFrom counts the calls of the model from a line, the one under way included.
func callsFrom(c *evidence, caller traces.FrameID) int { return callsIn(c.parts, caller) }

// callsIn counts the calls of the model from a line among some parts.
func callsIn(parts []steps.Part, caller traces.FrameID) (n int) {
	for i := range parts {
		if parts[i].Phase == traces.PhaseForward && parts[i].Caller == caller {
			n++
		}
	}
	return n
}

// beside returns what the training loop made in [from, to) outside of the model that is still live: inputs,
// targets and parts of a loss. Whatever keeps a graph keeps these too.
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

// keepsLoss reports whether anything that a loss allocated is still live: one of torch's losses, or a
// function whose name or file says that it is one.
func keepsLoss(c *evidence) bool {
	return slices.ContainsFunc(c.live, func(id timeline.AllocID) bool { return c.ofLoss(c.d.Origin(id)) })
}

// ofLoss reports whether a stack is of a loss: see keepsLoss.
func (c *code) ofLoss(s traces.StackID) bool {
	return c.kinds.Of(s).Has(frames.KindLoss) ||
		s >= 0 && slices.ContainsFunc(c.places.Stacks.At(s), func(f traces.FrameID) bool {
			fn, file, _ := c.places.FrameText(f)
			return c.kinds.Frames[f].Has(frames.KindPython) && (namesLoss(fn) || namesLoss(path.Base(file)))
		})
}

// namesLoss reports whether a function's or file's name says that it computes a loss.
func namesLoss(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "loss") || strings.Contains(name, "criterion")
}

// keptGraph reports whether a call of the model kept a graph: a backward freed what it left, or most of what
// it made was live when it ended. A call without a graph leaves only its results; what its layers made is
// gone by then. A small call leaves too few blocks to tell, unless the code says that only a graph keeps
// them. A backward that follows frees such a graph, so that what stays after it is results.
func (c *history) keptGraph(p *steps.Part) bool {
	if c.backwardFrees(p) {
		return true
	}
	to := min(p.End, c.at)
	_, made := c.forwardBlocks(p.First, to, p.First)
	left, bytes := c.forwardBlocks(p.First, to, to)
	if c.mostly(left) == gradientsOff {
		return false
	}
	if len(left) >= graphBlocks && float64(bytes) >= keptByCall*float64(made) {
		return true
	}
	i := steps.PartAt(c.parts, p.First)
	differentiated := i+1 < len(c.parts) && c.parts[i+1].Phase == traces.PhaseBackward
	return len(left) >= smallGraph && !differentiated && c.onlyGraphs(left)
}

// graphless returns the call of the model from which a block comes if that call kept no graph, so that the
// block cannot be part of one: the call that made it, or the last one before it, with no backward and no
// optimizer step in between. It returns -1 if there is none, or the call kept a graph.
func (c *history) graphless(id timeline.AllocID) int {
	i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
	if i < 0 || c.parts[i].Phase != traces.PhaseForward || c.graphs[i] {
		return -1
	}
	return i
}

// early returns the stacks that made something before the first call of the model: those of inputs, not of
// anything computed from outputs.
func early(c *evidence) map[traces.StackID]bool {
	first := map[traces.StackID]bool{}
	if len(c.parts) > 0 {
		for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.parts[0].First); id++ {
			first[c.d.Allocs.Stack[id]] = true
		}
	}
	return first
}

// betweenSteps reports whether a block was made after the last backward or optimizer and before the next call
// of the model: a batch, or what is computed from the previous step's outputs.
func betweenSteps(c *evidence, id timeline.AllocID) bool {
	at := c.d.Allocs.Start[id]
	i := steps.PartAt(c.parts, at)
	return i >= 0 && c.parts[i].Phase != traces.PhaseForward && at >= c.parts[i].End &&
		!c.kinds.Of(c.d.Origin(id)).Has(frames.KindBackwardPass|frames.KindStep|frames.KindLoss)
}

// lastMade is how many of the blocks that a call made last count as its output: a norm makes its statistics
// after it.
const lastMade = 4

// smallOutput is the ratio to the largest block that calls left from which another block is too small to tell
// what they are.
const smallOutput = 64

// large counts the blocks that are not much smaller than the largest of them.
func (c *evidence) large(ids []timeline.AllocID) (n int) {
	largest := int64(0)
	for _, id := range ids {
		largest = max(largest, c.d.Allocs.Size[id])
	}
	for _, id := range ids {
		if smallOutput*c.d.Allocs.Size[id] >= largest {
			n++
		}
	}
	return n
}

// outputStays reports whether, in most calls that left some blocks, these are results: they include the
// call's output, which it made last or in the outermost module itself, and no line left more than one block
// of significant size. What a hook keeps comes from the middle of a call, or from every layer. Blocks that
// the failed request was about to join are results as well.
func (c *evidence) outputStays(ids []timeline.AllocID) bool {
	if putTogether(c, ids) > 0 {
		return true
	}
	left := map[int]map[timeline.AllocID]bool{}
	for _, id := range ids {
		i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		if i < 0 || c.parts[i].Phase != traces.PhaseForward || !c.inModel(c.d.Origin(id)) {
			continue
		}
		if left[i] == nil {
			left[i] = map[timeline.AllocID]bool{}
		}
		left[i][id] = true
	}
	outputs := 0
	for i, blocks := range left {
		first, end := c.d.AllocsIn(c.parts[i].First, c.parts[i].End)
		lines, largest := map[traces.StackID]bool{}, int64(0)
		for id := range blocks {
			largest = max(largest, c.d.Allocs.Size[id])
		}
		n, large, last := 0, 0, false
		for id := range blocks {
			if smallOutput*c.d.Allocs.Size[id] < largest {
				continue
			}
			large++
			lines[c.d.Origin(id)] = true
			last = last || c.ofOutermost(c.d.Origin(id))
		}
		for id := end - 1; id >= first && n < lastMade; id-- {
			if c.inModel(c.d.Allocs.Stack[id]) {
				last = last || blocks[id]
				n++
			}
		}
		if last && len(lines) == large {
			outputs++
		}
	}
	return 2*outputs > len(left)
}

// keptByCall is the share of a call's bytes that are live while it is under way with gradients on. Without
// gradients, a layer's blocks are freed once the next has run.
const keptByCall = 0.5

// putTogether returns the size of the failed request if it is as large as everything that one line left, as
// in torch.cat, 0 otherwise.
func putTogether(c *evidence, ids []timeline.AllocID) int64 {
	asked := c.a.Asked.Or(0)
	if c.inModel(c.d.Event(c.a.At).Stack) {
		return 0
	}
	for _, bytes := range c.sitesOf(ids).bytes {
		if 20*max(asked, bytes) <= 21*min(asked, bytes) {
			return asked
		}
	}
	return 0
}

// ranTrained reports whether most of the lines of the user's modules that a call ran were also run by calls
// that a backward followed. In the first steps, other lines may still be trained later: the second of several
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
