package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A call of the model that fails as it begins, because it gets all of the data at once: the values of a whole
// rollout, the features of a whole set. The pattern: in a process that trains, the first request of a call
// from a line that trains nothing is most of the memory, and many times what the same line of the model asked
// for in any training call. inferenceFault knows such calls by what they hold; this one holds nothing yet.
// Look-alikes: a validation with a batch of the usual size, beside what the training left; a training step
// with a larger batch, whose line trains.

// requestTimesMore is how many times what its line asked for before a request must be for the batch to be
// larger: the layers of one line may differ by the factor between their widths.
const requestTimesMore = 8

func beginsFault(c *evidence) (fault, bool) {
	s, asked := c.d.Event(c.a.At).Stack, c.a.Asked.Or(0)
	if asked <= 0 || s < 0 || !c.inModel(s) || c.lastOf(traces.PhaseBackward) < 0 ||
		float64(asked) < functionShare*float64(c.total+asked) || c.inPieces() {
		return fault{}, false
	}
	caller := c.modelCaller(s)
	if last := c.parts[len(c.parts)-1]; caller < 0 || c.trainedLines[caller] ||
		last.Phase == traces.PhaseForward && last.Caller == caller {
		return fault{}, false
	}
	trained, calls := trainedRequest(c, s)
	if calls < leastSteps || asked < requestTimesMore*trained {
		return fault{}, false
	}
	line, times := c.frameText(caller), float64(asked)/float64(trained)
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(asked), Text: fmt.Sprintf(
		"the call of the model at %s begins with a request of %s; in %s the same line asked for at most %s",
		line, c.u.Bytes(asked), nCalls(calls), c.u.Bytes(trained))}}
	f.said = fmt.Sprintf("The call of the model at %s gets too large a batch: it begins with a request of "+
		"%s, %.0f times that of a training step.", line, c.u.Bytes(asked), times)
	f.fix = "Call it on a part of its batch at a time, for part in batch.split(n), and move each result to " +
		"the CPU."
	f.sure(Likely, "the same line of the model asked for far less in every training step; one large sample "+
		"would look the same")
	f.lever = remedy{name: "smaller_input", command: at("for part in batch.split(n):", line),
		request: asked - trained}
	return f, true
}

// modelCaller returns the frame of a stack that calls the outermost module, -1 if there is none.
func (c *code) modelCaller(s traces.StackID) traces.FrameID {
	at := c.places.Stacks.At(s)
	for i := len(at) - 1; i >= 0; i-- {
		if !c.kinds.Frames[at[i]].Has(frames.KindModel) {
			continue
		}
		for _, id := range at[i+1:] {
			if c.ofUser(id) {
				return id
			}
		}
		break
	}
	return -1
}

// lineOf returns the frames of a stack down to the innermost one of the user's own: an operator and the line
// that calls it, wherever that is called from.
func (c *code) lineOf(s traces.StackID) []traces.FrameID {
	if s < 0 {
		return nil
	}
	at := c.places.Stacks.At(s)
	if i := slices.IndexFunc(at, c.ofUser); i >= 0 {
		return at[:i+1]
	}
	return at
}

// sameLine returns a function that reports whether a stack has the same line as a given one.
func (c *code) sameLine(s traces.StackID) func(traces.StackID) bool {
	line, same := c.lineOf(s), map[traces.StackID]bool{}
	return func(other traces.StackID) bool {
		is, known := same[other]
		if !known {
			is = slices.Equal(c.lineOf(other), line)
			same[other] = is
		}
		return is
	}
}

// trainedRequest returns the most that the line of a stack asked for in one block in a call that a backward
// followed, and in how many such calls.
func trainedRequest(c *evidence, s traces.StackID) (most int64, calls int) {
	same := c.sameLine(s)
	for i := range c.parts {
		p := &c.parts[i]
		if p.Phase != traces.PhaseForward || !c.trainedFrom(p) {
			continue
		}
		asked := false
		first, end := c.d.AllocsIn(p.First, p.End)
		for id := first; id < end; id++ {
			if same(c.d.Allocs.Stack[id]) {
				most, asked = max(most, c.d.Allocs.Size[id]), true
			}
		}
		if asked {
			calls++
		}
	}
	return most, calls
}
