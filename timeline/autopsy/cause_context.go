package autopsy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Tensors that a user's function with its own backward keeps as attributes of its context. An output that is
// an attribute of ctx keeps the node of the graph alive that keeps ctx, and Python's garbage collector does
// not see the cycle (pytorch issue 25340); ctx.save_for_backward exists for this. The pattern: blocks of
// several finished rounds were made in the forward of a torch.autograd.Function. Look-alikes: results of such
// a function, in a list; a graph that something keeps, from which blocks of other lines stay, too.

// leastContexts is in how many rounds a function must have left something.
const leastContexts = 3

// differentiableFiles returns the files in which the user wrote a backward, as for a torch.autograd.Function:
// the engine calls it from there.
func differentiableFiles(c *evidence) map[string]bool {
	files := map[string]bool{}
	for i := range c.places.Frames {
		id := traces.FrameID(i)
		if fn, file, _ := c.places.FrameText(id); fn == "backward" && c.ofUser(id) {
			files[file] = true
		}
	}
	return files
}

// ofFunction reports whether a stack passes through the forward of a torch.autograd.Function, in a file with
// a backward: code of the user's called it by apply, and not as a module. If it is not the user's innermost
// function, as it calls modules itself, the line that called it must say apply.
func ofFunction(c *evidence, s traces.StackID, files map[string]bool) bool {
	if s < 0 || c.kinds.Of(s).Has(frames.KindBackwardPass|frames.KindStep) {
		return false
	}
	at := c.places.Stacks.At(s)
	innermost := slices.IndexFunc(at, c.ofUser)
	for i := max(innermost, 0); innermost >= 0 && i+1 < len(at); i++ {
		fn, file, _ := c.places.FrameText(at[i])
		if fn != "forward" || !files[file] || !c.ofUser(at[i]) {
			continue
		}
		apply, _, _ := c.places.FrameText(at[i+1]) // a frame in some versions of PyTorch
		if apply == "apply" || c.ofUser(at[i+1]) && (i == innermost || c.applies(at[i+1])) {
			return true
		}
	}
	return false
}

// applies reports whether a frame's line calls a function by its apply.
func (c *history) applies(id traces.FrameID) bool {
	lines, own := c.linesAt(id)
	return lines != nil && strings.Contains(lines[own].text, ".apply(")
}

func contextFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) < leastContexts+1 {
		return fault{}, false
	}
	var ids []timeline.AllocID
	var left, others int64
	in, files := map[int]bool{}, differentiableFiles(c)
	for _, id := range c.live {
		s := c.d.Origin(id)
		k, same := slices.BinarySearchFunc(all, c.d.Allocs.Start[id], func(r round, m timeline.Moment) int {
			return cmp.Compare(r.first, m)
		})
		if !same {
			k-- // the round that it is in
		}
		if k < 0 || k == len(all)-1 || all[k].backward == timeline.Never || !c.inModel(s) {
			continue
		}
		if left += c.d.Allocs.Rounded[id]; !ofFunction(c, s, files) {
			others += c.d.Allocs.Rounded[id]
			continue
		}
		ids, in[k] = append(ids, id), true
	}
	if len(in) < leastContexts || 2*others > left {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: "context_keeps", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s that a torch.autograd.Function made in %s outlive their backward, most from "+
			"%s", c.u.Bytes(bytes), nBlocks(len(ids)), nSteps(len(in)), line)}}
	f.said = fmt.Sprintf("A custom autograd function keeps its tensors after the backward: %s from %s, most "+
		"of it from %s.", c.u.Bytes(bytes), nSteps(len(in)), line)
	f.fix = "Keep tensors with ctx.save_for_backward(...), not as attributes of ctx: an output that is an " +
		"attribute keeps itself alive."
	f.sure(Likely, "most of what stays was made in that function; a list of what it returns would look the "+
		"same")
	f.lever = remedy{name: "save_for_backward", command: at("ctx.save_for_backward(y)", line),
		changes: endingAt(c, ids, func(id timeline.AllocID) timeline.Moment {
			return c.afterBackward(c.d.Allocs.Start[id])
		})}
	return f, true
}
