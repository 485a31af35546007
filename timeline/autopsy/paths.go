package autopsy

import (
	"path"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Where a call of the model comes from. The line that calls it may be in a function that the training and the
// evaluation share, such as one that runs an encoder. They differ in their path: the stack frames outside
// that line.

// pathOf returns the frames of a call from the line that calls the model outward.
func (c *history) pathOf(p *steps.Part) []traces.FrameID {
	id, end := c.d.AllocsIn(p.First, p.End)
	if p.Caller < 0 || id == end || c.d.Allocs.Stack[id] < 0 {
		return nil
	}
	at := c.d.Timeline().Places().Stacks.At(c.d.Allocs.Stack[id])
	if i := slices.Index(at, p.Caller); i >= 0 {
		return at[i:]
	}
	return nil
}

// trainedFrom reports whether a backward followed a call that came the same way.
func (c *history) trainedFrom(p *steps.Part) bool {
	path := c.pathOf(p)
	return c.trainedLines[p.Caller] && (path == nil || slices.ContainsFunc(c.trainedPaths,
		func(x []traces.FrameID) bool { return slices.Equal(x, path) }))
}

// ownLine returns the innermost line of a call's path that is on no trained path: where an evaluation calls
// what the training calls, too. It is the line that calls the model if that differs.
func (c *history) ownLine(p *steps.Part) traces.FrameID {
	for _, id := range c.pathOf(p) {
		on := func(x []traces.FrameID) bool { return slices.Contains(x, id) }
		if c.ofUser(id) && !slices.ContainsFunc(c.trainedPaths, on) {
			return id
		}
	}
	return p.Caller
}

// outside returns the innermost line of a call's path in another file than the line that calls the model, -1
// for none: that is a method of the model, and the user's loop is elsewhere. What calls a module's own code
// is not the user's: it runs or imports the program.
func (c *history) outside(p *steps.Part) traces.FrameID {
	_, model, _ := c.d.Timeline().Places().FrameText(p.Caller)
	for _, id := range c.pathOf(p) {
		fn, file, _ := c.d.Timeline().Places().FrameText(id)
		if c.ofUser(id) && file != model {
			return id
		}
		if fn == moduleLevel {
			break
		}
	}
	return -1
}

// evaluating reports whether the function that a call came through says by its name that it evaluates: the
// innermost whose name says anything.
func (c *history) evaluating(p *steps.Part) bool { return c.namedMode(p) == modeEvaluation }

// namedMode returns the mode according to the innermost function on a call's path whose name says anything.
func (c *history) namedMode(p *steps.Part) mode {
	for _, id := range c.pathOf(p) {
		if !c.ofUser(id) && id != p.Caller {
			continue
		}
		switch fn, _, _ := c.d.Timeline().Places().FrameText(id); {
		case evaluates(fn):
			return modeEvaluation
		case trains(fn):
			return modeTraining
		}
	}
	return modeUnknown
}

// trains reports whether a function's name says that it trains.
func trains(fn string) bool {
	fn = strings.ToLower(fn)
	for _, word := range []string{"train", "tune", "fit", "step", "epoch", "loss", "optim", "update",
		"learn"} {
		if strings.Contains(fn, word) {
			return true
		}
	}
	return false
}

// codeTrainsNothing reports whether all files on the way to a call of the model can be read, and none runs
// backward() or has to do with training. Derivatives that torch.autograd.grad returns train nothing by
// themselves.
func (c *history) codeTrainsNothing(p *steps.Part) bool {
	read := false
	for _, id := range c.pathOf(p) {
		if c.kinds.Frames[id].Has(frames.KindTorch) || !c.kinds.Frames[id].Has(frames.KindPython) {
			continue
		}
		_, file, _ := c.places.FrameText(id)
		if slices.Contains(launchers, path.Base(file)) {
			break
		}
		text, ok := c.file(file)
		if !ok || slices.ContainsFunc(linesOf(text), func(l codeLine) bool {
			return mayTrain.MatchString(l.text) || callsBackward.MatchString(l.text)
		}) {
			return false
		}
		read = true
	}
	return read
}
