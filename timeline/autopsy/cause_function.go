package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One function that works on too much at once. The pattern: the function of the user's that asked holds a few
// large blocks, or none yet; with what it asked for they are most of the memory, and far larger than what
// other functions of the model make. It may be a module's, such as a loss over all pairs. What looks like it:
// weights that a function makes by hand, which only its name tells; a data set, which is data's fault where
// the model runs on parts of it; a batch that is too large, from which the model makes blocks of its size;
// logits and attention scores, which have causes of their own and come first.

const (
	// functionShare is the share of all memory that the function must hold or ask for.
	functionShare = 0.5
	// fewLarge is how many blocks it may hold, each at least a fewLarge-th of what is allocated.
	fewLarge = 8
)

func functionFault(c *evidence) (fault, bool) {
	if s := c.d.Event(c.a.At).Stack; c.ofData(s) {
		return tooMuchAtOnce(c, s, false)
	}
	return fault{}, false
}

// moduleFault is the same of a function that is a module's.
func moduleFault(c *evidence) (fault, bool) {
	if s := c.d.Event(c.a.At).Stack; c.inModel(s) {
		return tooMuchAtOnce(c, s, true)
	}
	return fault{}, false
}

// tooMuchAtOnce looks at the function that a stack ends in, inside or outside of the model.
func tooMuchAtOnce(c *evidence, s traces.StackID, inside bool) (fault, bool) {
	fn, file := c.userFunction(s)
	from := calledFrom(c, s) // forward is the name of many functions
	// What the loop calls is the model, of which this must be a part.
	whole := inside && len(c.parts) > 0 && from == c.parts[len(c.parts)-1].Caller
	if c.a.Asked.Or(0) <= 0 || fn == "" || whole || runsModel(c, fn, file) ||
		len(c.parts) == 0 && (fn == "<module>" || mayBeWeights(c, s)) {
		return fault{}, false
	}
	if c.inPieces() {
		return fault{}, false
	}
	var ids []timeline.AllocID
	smallest := c.a.Asked.Or(0)
	for _, id := range c.live {
		of := c.d.Origin(id)
		if fewLarge*c.d.Allocs.Rounded[id] < c.total || !c.ofData(of) && !(inside && c.inModel(of)) {
			continue
		}
		if f, in := c.userFunction(of); f == fn && in == file && (!inside || calledFrom(c, of) == from) {
			ids, smallest = append(ids, id), min(smallest, c.d.Allocs.Size[id])
		}
	}
	bytes, most := c.bytesOf(ids), int64(0)
	if inside {
		most = largestElsewhere(c, fn, file, from)
	} else {
		most = largestMade(c)
	}
	asked := c.a.Asked.Or(0)
	if len(ids) == 0 && inside || float64(bytes+asked) < functionShare*float64(c.total+asked) ||
		smallest < wholeTimes*most || inside && most == 0 { // nothing to be out of proportion to
		return fault{}, false
	}
	line := c.userLine(s)
	holds, more := fmt.Sprintf("holds %s in %s and ", c.u.Bytes(bytes),
		timeline.Counted(len(ids), "block")), " more"
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s holds %s in %s, beside at most %s that a call of the model makes at once", fn, file,
		c.u.Bytes(bytes), timeline.Counted(len(ids), "block"), c.u.Bytes(most))}}
	if len(ids) == 0 {
		holds, more = "", " in one block"
		f.Bytes, f.Text = c.a.Asked, fmt.Sprintf("%s of %s asked for %s, beside at most %s that a call of "+
			"the model makes at once", fn, file, c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(most))
	}
	f.said = fmt.Sprintf("%s works on too much at once: its function %sasked for %s%s.", line, holds,
		c.u.Bytes(c.a.Asked.Or(0)), more)
	f.fix = "Call it on a part of its input at a time, such as for part in x.split(n), or run it on the CPU."
	f.sure(Likely, "nothing that the model makes is as large; tables that are meant to be there look the "+
		"same")
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, c.d.Allocs.Rounded[id]))
	}
	f.lever = remedy{name: "smaller_input", command: at("for part in x.split(n):", line),
		changes: changes,
		request: c.a.Asked.Or(0)}
	if slicedBefore(c, s) {
		wholeData(c, &f, line)
		f.said = fmt.Sprintf("%s puts all of the data on the GPU at once, and the model runs on parts of "+
			"it: the function %sasked for %s%s.", line, holds, c.u.Bytes(c.a.Asked.Or(0)), more)
	}
	return f, true
}

// largestElsewhere returns the size of the largest block that the model made outside of a function.
func largestElsewhere(c *evidence, fn, file string, from traces.FrameID) (most int64) {
	of := map[traces.StackID]bool{} // stacks of the model that are not in the function
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		s := c.d.Allocs.Stack[id]
		other, known := of[s]
		if !known {
			f, in := c.userFunction(s)
			other = c.inModel(s) && (f != fn || in != file || calledFrom(c, s) != from)
			of[s] = other
		}
		if other {
			most = max(most, c.d.Allocs.Size[id])
		}
	}
	return most
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
