package autopsy

import (
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// Whether a call that keeps its graph ran modules in training mode. A recording has no flags of modules, but
// two layers behave differently: a dropout makes an output and a mask in training mode and nothing at all
// otherwise; and a graph keeps a batch_norm's statistics of the batch in training mode, while those of its
// buffers are used otherwise (aten's native_batch_norm). Networks that have neither, such as those with only
// layer_norm, do not show it.

// mode is the mode of the modules that a call ran.
type mode uint8

const (
	modeUnknown mode = iota
	modeTraining
	modeEvaluation
)

// leastEvalNorms is how many outputs of batch_norm without statistics show evaluation mode.
const leastEvalNorms = 3

// modeOf returns the mode of what a call of the model that keeps its graph ran on stacks that of selects, up
// to the autopsy's moment.
func modeOf(c *evidence, p *steps.Part, of func(traces.StackID) bool) mode {
	return modeUntil(c, p, of, c.a.At)
}

// modeUntil is modeOf for a call whose graph is kept up to a moment.
func modeUntil(c *evidence, p *steps.Part, of func(traces.StackID) bool, kept timeline.Moment) mode {
	a := &c.d.Allocs
	type layer struct{ batchNorm, dropout bool }
	layers := map[traces.StackID]layer{}
	outputs, output := 0, int64(0) // of batch_norms, and the size of the last
	first, end := c.d.AllocsIn(p.First, min(p.End, c.a.At+1))
	for id := first; id < end; id++ {
		s := a.Stack[id]
		l, seen := layers[s]
		if !seen && of(s) {
			l = layer{normNamed(c, s, "batch_norm"), normNamed(c, s, "dropout")}
			layers[s] = l
		}
		statistics := id > first && a.Stack[id-1] == s && 8*a.Size[id] <= output
		switch {
		case l.dropout, l.batchNorm && statistics && a.Requested[id] > kept:
			return modeTraining
		case l.batchNorm && !statistics:
			outputs, output = outputs+1, a.Size[id]
		}
	}
	if outputs >= leastEvalNorms {
		return modeEvaluation
	}
	return modeUnknown
}

// anyStack picks all stacks.
func anyStack(traces.StackID) bool { return true }

// purpose tells whether a call of the model trains or evaluates, before any training step has shown it. The
// program's code counts first: a function that runs a backward pass trains, even if its name says otherwise.
// Then come the names of the functions around the call, then code without any sign of training, and last the
// mode of the modules.
func purpose(c *evidence, p *steps.Part) mode {
	code := c.codeMode(p)
	if code == modeTraining {
		return code
	}
	if m := c.namedMode(p); m != modeUnknown {
		return m
	}
	if code != modeUnknown {
		return code
	}
	return modeOf(c, p, anyStack)
}
