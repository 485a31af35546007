package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One function that works on too much at once. The pattern: the user's function that made the request holds a
// few large blocks, or none yet; together with the request they are most of the memory, and far larger than
// what other functions of the model make. It may be a module's, such as a loss over all pairs. Look-alikes:
// weights that a function makes by hand, which only its name shows; a data set, which is data's fault if the
// model runs on parts of it; a batch that is too large, from which the model makes blocks of its size; logits
// and attention scores, which have causes of their own and come first.

const (
	// farShare is what is enough instead of functionShare where the function's blocks are farTimes as large
	// as any that the model makes elsewhere.
	farShare = 0.3
	farTimes = 8
	// fewLarge is how many blocks it may hold, each at least a fewLarge-th of what is allocated.
	fewLarge = 8
	// veryFew is how many these may be where the model has made nothing else to compare them with.
	veryFew = 2
)

func functionFault(c *evidence) (fault, bool) {
	if s := c.d.Event(c.a.At).Stack; c.ofFunction(s) {
		return tooMuchAtOnce(c, s, false)
	}
	return fault{}, false
}

// moduleFault is the same of a function that is a module's, or of the one that calls it.
func moduleFault(c *evidence) (fault, bool) {
	s := c.d.Event(c.a.At).Stack
	if !c.inModel(s) {
		return fault{}, false
	}
	if f, ok := tooMuchAtOnce(c, s, true); ok {
		return f, true
	}
	if outer := callerOf(c, s); len(outer) > 0 {
		return tooMuchIn(c, s, outer, true)
	}
	return fault{}, false
}

// tooMuchAtOnce looks at the function that a stack ends in, inside or outside of the model.
func tooMuchAtOnce(c *evidence, s traces.StackID, inside bool) (fault, bool) {
	return tooMuchIn(c, s, c.d.Timeline().Places().Stacks.At(s), inside)
}

// calledAs returns the frame that called a function in a stack: the next one of the user's, -1 if there is
// none. ok is false if the function is not in the stack.
func calledAs(c *evidence, frames []traces.FrameID, fn, file string) (from traces.FrameID, ok bool) {
	for _, id := range frames {
		if !c.ofUser(id) {
			continue
		}
		if ok {
			return id, true
		}
		f, in, _ := c.d.Timeline().Places().FrameText(id)
		ok = f == fn && in == file
	}
	return -1, ok
}

// endsIn reports whether a function is the innermost one of the user's on some frames.
func endsIn(c *evidence, frames []traces.FrameID, fn, file string) bool {
	i := slices.IndexFunc(frames, c.ofUser)
	if i < 0 {
		return false
	}
	f, in, _ := c.d.Timeline().Places().FrameText(frames[i])
	return f == fn && in == file
}

// writtenOut reports whether a line of the user's itself computes what it asks for, and no function of a
// library that it calls, such as a loss.
func writtenOut(c *evidence, s traces.StackID) bool {
	for _, id := range c.places.Stacks.At(s) {
		if k := c.kinds.Frames[id]; k.Has(frames.KindPython) && !k.Has(frames.KindNoise) {
			return c.ofUser(id)
		}
	}
	return false
}

// tooMuchIn looks at the innermost function of the user's on the frames of a stack.
func tooMuchIn(c *evidence, s traces.StackID, frames []traces.FrameID, inside bool) (fault, bool) {
	i := slices.IndexFunc(frames, c.ofUser)
	if i < 0 {
		return fault{}, false
	}
	fn, file, _ := c.d.Timeline().Places().FrameText(frames[i])
	from, _ := calledAs(c, frames, fn, file) // forward is the name of many functions
	// The loop calls the model, of which this must be a part.
	whole := inside && len(c.parts) > 0 && from == c.parts[len(c.parts)-1].Caller
	// Code that calls the model works on a training batch or, if nothing is trained, on everything it got.
	// Its own tensors count if they are out of all proportion to what the model makes of that batch.
	runs := runsModel(c, fn, file) && (inside || c.lastOf(traces.PhaseBackward) >= 0 || fn == "<module>")
	if c.a.Asked.Or(0) <= 0 || whole || runs && inside ||
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
		if fewLarge*c.d.Allocs.Rounded[id] < c.total || !c.ofFunction(of) && !c.inModel(of) {
			continue
		}
		stack := c.d.Timeline().Places().Stacks.At(of)
		as, ok := calledAs(c, stack, fn, file)
		if ok && (!inside || as == from) && (!runs || endsIn(c, stack, fn, file)) {
			ids, smallest = append(ids, id), min(smallest, c.d.Allocs.Size[id])
		}
	}
	bytes, most := c.bytesOf(ids), int64(0)
	if runs { // all that the model makes is made in it
		most = largestInModel(c)
	} else {
		most = largestElsewhere(c, fn, file, from, inside)
	}
	if inside && most == 0 && len(ids) <= veryFew && !checkpointed(c, s) {
		most = largestBeside(c, ids) // all that the model made is this function's
	}
	// the loop's own business is to move batches, and to compute a loss of all that the model makes
	if runs && (!farAbove(smallest, most) || movesWhole(c, s) || !writtenOut(c, s)) {
		return fault{}, false
	}
	asked := c.a.Asked.Or(0)
	share := functionShare
	if farAbove(smallest, most) {
		share = farShare
	}
	of, original := traces.NoStack, int64(0)
	if len(ids) == 0 {
		of, original = originalOf(c)
	}
	if len(ids) == 0 && inside || float64(bytes+original+asked) < share*float64(c.total+asked) ||
		smallest < wholeTimes*most || inside && most == 0 { // nothing to be out of proportion to
		return fault{}, false
	}
	line := c.userLine(s)
	holds, more := fmt.Sprintf("holds %s in %s and ", c.u.Bytes(bytes),
		nBlocks(len(ids))), " more"
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s holds %s in %s, while a call of the model makes at most %s at once", fn, file,
		c.u.Bytes(bytes), nBlocks(len(ids)), c.u.Bytes(most))}}
	if len(ids) == 0 {
		holds, more = "", " in one block"
		f.Bytes, f.Text = c.a.Asked, fmt.Sprintf("%s of %s asked for %s", fn, file, c.u.Bytes(asked))
		if most > 0 {
			f.Text += fmt.Sprintf(", while a call of the model makes at most %s at once", c.u.Bytes(most))
		}
	}
	if original > 0 {
		more += ", as large as the tensor from " + sites.Name(c.d, of)
	}
	f.said = fmt.Sprintf("%s works on too much at once: its function %sasked for %s%s.", line, holds,
		c.u.Bytes(c.a.Asked.Or(0)), more)
	f.fix = "Call it on a part of its input at a time, such as for part in x.split(n), or run it on the CPU."
	if runs {
		f.said = fmt.Sprintf("%s makes %s at once, and the largest tensor that the model makes of a batch "+
			"is %s.", line, c.u.Bytes(asked), c.u.Bytes(most))
		f.fix = "Check the shapes that meet there: (n, 1) and (n,) give n by n. If it has to be that " +
			"large, make it in parts, such as for part in x.split(n)."
	}
	f.sure(Likely, "nothing that the model makes is as large; tables that are meant to be there would look "+
		"the same")
	all := slicedBefore(c, s, true) // of the data: the model runs on parts of it
	buffer := !all && reservesBuffer(c, s) && !slices.ContainsFunc(ids, func(id timeline.AllocID) bool {
		return !reservesBuffer(c, c.d.Origin(id))
	})
	less := func(n int64) int64 {
		if all || buffer {
			return n
		}
		return n - partOf(c, n, len(ids) == 0)
	}
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, less(c.d.Allocs.Rounded[id])))
	}
	f.lever = remedy{name: "smaller_input", command: at("for part in x.split(n):", line),
		changes: changes, request: less(c.a.Asked.Or(0))}
	if buffer {
		reservedBuffer(c, &f, line)
	} else if all {
		wholeData(c, &f, line)
		f.said = fmt.Sprintf("%s puts all of the data on the GPU at once, and the model runs on parts of "+
			"it: the function %sasked for %s%s.", line, holds, c.u.Bytes(c.a.Asked.Or(0)), more)
	} else if len(ids) == 0 && movesWhole(c, s) {
		movedWhole(c, &f, line)
	}
	return f, true
}

// originalOf returns where the largest part of what is allocated was made and its bytes, if the request that
// failed is as large: a function that copies all of its input asks for it. Weights are copied as weights.
func originalOf(c *evidence) (of traces.StackID, bytes int64) {
	const weights = frames.KindModel | frames.KindBackwardPass | frames.KindStep | frames.KindOptimizer |
		frames.KindModuleInit | frames.KindModuleMove | frames.KindUserInit | frames.KindLoad
	for _, id := range c.live {
		s := c.d.Origin(id)
		if 2*c.d.Allocs.Rounded[id] >= c.total && c.asLarge(id) && s >= 0 && !c.kinds.Of(s).Has(weights) &&
			c.d.Allocs.Category[id] != timeline.Parameter {
			return s, c.d.Allocs.Rounded[id]
		}
	}
	return traces.NoStack, 0
}

// farAbove reports whether blocks are out of all proportion to the largest that the model made, if it made
// any.
func farAbove(smallest, most int64) bool { return most > 0 && smallest >= farTimes*most }

// largestInModel returns the size of the largest block that calls of the model made.
func largestInModel(c *evidence) (most int64) {
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if n := c.d.Allocs.Size[id]; n > most && c.inModel(c.d.Allocs.Stack[id]) {
			most = n
		}
	}
	return most
}

// largestElsewhere returns the size of the largest block that the model made outside of a function.
func largestElsewhere(c *evidence, fn, file string, from traces.FrameID, inside bool) (most int64) {
	of := map[traces.StackID]bool{} // stacks that are not in the function
	other := func(s traces.StackID) bool {
		is, known := of[s]
		if !known {
			as, in := calledAs(c, c.d.Timeline().Places().Stacks.At(s), fn, file)
			is = !in || inside && as != from
			of[s] = is
		}
		return is
	}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if n, s := c.d.Allocs.Size[id], c.d.Allocs.Stack[id]; n > most && s >= 0 && c.inModel(s) && other(s) {
			most = n
		}
	}
	return most
}

// largestBeside returns the size of the largest live block other than the given ones.
func largestBeside(c *evidence, ids []timeline.AllocID) (most int64) {
	for _, id := range c.live {
		if !slices.Contains(ids, id) {
			most = max(most, c.d.Allocs.Size[id])
		}
	}
	return most
}
