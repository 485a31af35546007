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

// Calls of the model: what each left, what was made beside it, and what the names around it say.

// leastForwards is how many calls must have left something. One is enough of a line that no backward ever
// followed, if what it left is a graph: at least graphBlocks blocks.
const (
	leastForwards = 3
	graphBlocks   = 8
)

// backwardFrees reports whether most of what a call left was freed by a backward.
func (c *evidence) backwardFrees(p *steps.Part) bool {
	return p.Frees >= 0 && p.Frees < len(c.parts) && c.parts[p.Frees].Phase == traces.PhaseBackward
}

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

// callsWord counts calls.
func callsWord(n int) string {
	if n == 1 {
		return "a call"
	}
	return timeline.Count(int64(n)) + " calls"
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
