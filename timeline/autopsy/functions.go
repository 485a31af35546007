package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// The user's functions that made a block or a request, and how much of the memory is theirs.

// functionShare is the share of all memory that a function must hold or ask for to be the cause.
const functionShare = 0.5

// partsOfInput is how many parts the input is split into: one of them is processed at a time.
const partsOfInput = 16

// userFunction is a function of the user's.
type userFunction struct{ name, file string }

// callerOf returns a stack from the user's frame on that called the innermost function of the user's.
func callerOf(c *evidence, s traces.StackID) []traces.FrameID {
	at, n := c.d.Timeline().Places().Stacks.At(s), 0
	for i, id := range at {
		if !c.ofUser(id) {
			continue
		}
		if n++; n == 2 {
			return at[i:]
		}
	}
	return nil
}

// partOf returns how many of some bytes are held while one of an input's partsOfInput parts is processed. If
// only the request is left of them, the parts are taken to be small enough to be served.
func partOf(c *evidence, bytes int64, alone bool) int64 {
	part := bytes / partsOfInput
	if alone {
		part = min(part, factsOf(c.d, c.a, c.u).largestPiece()/2)
	}
	return part
}

// runsModel reports whether a function calls the model.
func runsModel(c *evidence, fn, file string) bool {
	return slices.ContainsFunc(c.parts, func(p steps.Part) bool {
		if p.Caller < 0 {
			return false
		}
		f, in, _ := c.d.Timeline().Places().FrameText(p.Caller)
		return f == fn && in == file
	})
}
