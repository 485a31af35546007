package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// One request that is too large by itself. The pattern: it is more than all that the process could have, and
// several times any block that there is. What looks like it: a batch that is too large throughout, of which
// blocks of that size are there already; a GPU of which another process has nearly all. The line that asked
// is the place to look at: a broadcast makes every pair of its inputs, x[:, None] - x[None] all differences
// at once.

// requestTimes is how many times the largest block there is one request must ask for.
const requestTimes = 4

func requestFault(c *evidence) (fault, bool) {
	if !c.a.Asked.IsKnown() || !c.a.Free.IsKnown() || c.a.State == nil {
		return fault{}, false
	}
	could := c.d.Reserved.At(c.a.At) + c.a.Free.Or(0)
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	var largest int64
	for _, id := range c.live {
		largest = max(largest, c.d.Allocs.Size[id])
	}
	if asked := c.a.Asked.Or(0); could < smallestGPU || asked <= could || asked < requestTimes*largest ||
		line == "" {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "too_large", Bytes: c.a.Asked, Text: fmt.Sprintf(
		"%s asked for %s in one block, and the process could have %s in all", line,
		c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(could))}}
	f.said = fmt.Sprintf("%s asked for a single tensor of %s, and all that this process could have is %s.",
		line, c.u.Bytes(c.a.Asked.Or(0)), c.u.Bytes(could))
	f.fix = "Look at the shapes at that line: a broadcast such as x[:, None] - x[None] makes all pairs at " +
		"once; compute it in chunks, or with a function that does not, such as torch.cdist."
	f.sure(Certain, ownFigures)
	f.lever = remedy{name: "smaller_input", command: at("for part in x.split(n):", line),
		request: c.a.Asked.Or(0)}
	if s := c.d.Event(c.a.At).Stack; c.ofData(s) && slicedBefore(c, s) {
		wholeData(c, &f, c.userLine(s))
		f.said = fmt.Sprintf("%s puts all of the data on the GPU at once, %s, and the model runs on parts "+
			"of it; all that this process could have is %s.", c.userLine(s), c.u.Bytes(c.a.Asked.Or(0)),
			c.u.Bytes(could))
	}
	return f, true
}

// wholeData makes a fault that of data which a line puts on the GPU although the model runs on parts of it.
func wholeData(c *evidence, f *fault, line string) {
	f.Kind = "prefetch"
	f.fix = "Keep it on the CPU and do this to each batch in the loop."
	f.sure(Likely, "the model ran on parts of what the line made before; a buffer that calls fill "+
		"looks the same")
	f.lever.name = "load_each_batch"
	f.lever.command = at("batch = batch.to(device, non_blocking=True)", line)
}

// One function that works on too much at once. The pattern: the function of the user's that asked, outside of
// the model, holds a few large blocks; with what it asked for they are most of the memory, and far larger
// than what the model makes. What looks like it: weights that a function makes by hand, which only its name
// tells; a data set, which is data's fault where the model runs on parts of it; a batch that is too large,
// from which the model makes blocks of its size.

const (
	// functionShare is the share of all memory that the function must hold or ask for.
	functionShare = 0.5
	// fewLarge is how many blocks it may hold, each at least a fewLarge-th of what is allocated.
	fewLarge = 8
)

func functionFault(c *evidence) (fault, bool) {
	s := c.d.Event(c.a.At).Stack
	fn, file := c.userFunction(s)
	if c.a.Asked.Or(0) <= 0 || fn == "" || !c.ofData(s) || runsModel(c, fn, file) ||
		len(c.parts) == 0 && (fn == "<module>" || mayBeWeights(c, s)) {
		return fault{}, false
	}
	if c.d.Reserved.At(c.a.At)-c.total+c.a.Free.Or(0) >= c.a.Asked.Or(0) { // it is there, in pieces
		return fault{}, false
	}
	var ids []timeline.AllocID
	smallest := c.a.Asked.Or(0)
	for _, id := range c.live {
		of := c.d.Origin(id)
		if fewLarge*c.d.Allocs.Rounded[id] < c.total || !c.ofData(of) {
			continue
		}
		if f, in := c.userFunction(of); f == fn && in == file {
			ids, smallest = append(ids, id), min(smallest, c.d.Allocs.Size[id])
		}
	}
	bytes, most := c.bytesOf(ids), largestMade(c)
	if len(ids) == 0 || float64(bytes+c.a.Asked.Or(0)) < functionShare*float64(c.total+c.a.Asked.Or(0)) ||
		smallest < wholeTimes*most {
		return fault{}, false
	}
	line := c.userLine(s)
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of %s holds %s in %s, beside at most %s that a call of the model makes at once", fn, file,
		c.u.Bytes(bytes), timeline.Counted(len(ids), "block"), c.u.Bytes(most))}}
	f.said = fmt.Sprintf("%s works on too much at once: its function holds %s in %s and asked for %s more.",
		line, c.u.Bytes(bytes), timeline.Counted(len(ids), "block"), c.u.Bytes(c.a.Asked.Or(0)))
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
			"it: the function holds %s in %s and asked for %s more.", line, c.u.Bytes(bytes),
			timeline.Counted(len(ids), "block"), c.u.Bytes(c.a.Asked.Or(0)))
	}
	return f, true
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

// userFunction returns the innermost function of a stack that is the user's, and its file.
func (c *evidence) userFunction(s traces.StackID) (fn, file string) {
	if s < 0 {
		return "", ""
	}
	at := c.d.Timeline().Places().Stacks.At(s)
	i := slices.IndexFunc(at, c.ofUser)
	if i < 0 {
		return "", ""
	}
	fn, file, _ = c.d.Timeline().Places().FrameText(at[i])
	return fn, file
}
