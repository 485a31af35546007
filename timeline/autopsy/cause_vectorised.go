package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// torch.func's vmap, and what is built on it: jacrev, jacfwd, hessian. It does for all samples, or all rows
// of a Jacobian, at once what a loop would do one after another. The pattern: the current call is inside one
// of these, and its blocks, together with those that a backward's thread made without a stack since it began,
// are most of the memory. Look-alikes: a call that is already divided, which the dividing functions show; a
// model that is too large by itself, which then holds most. Source: torch.func's docs, chunk_size.

// chunksOfVmap is in how many chunks the lever divides the call.
const chunksOfVmap = 8

// vectorised returns the line that calls vmap or what is built on it, and the function's name; ok is false if
// the stack is in none, or in one that works in chunks.
func vectorised(c *evidence, s traces.StackID) (caller traces.FrameID, fn string, ok bool) {
	caller = -1
	if s < 0 {
		return caller, "", false
	}
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		name, file, _ := c.d.Timeline().Places().FrameText(id)
		switch {
		case strings.Contains(name, "chunked_vmap") || strings.Contains(name, "preallocate_and_copy"):
			return -1, "", false
		case strings.HasSuffix(file, "torch/_functorch/vmap.py"):
			ok, fn = true, "vmap"
			caller = -1
		case strings.HasSuffix(file, "torch/_functorch/eager_transforms.py") && ok:
			fn = "jacobian"
			caller = -1
		case ok && caller < 0 && c.ofUser(id):
			caller = id
		}
	}
	return caller, fn, ok && caller >= 0
}

func vectorisedFault(c *evidence) (fault, bool) {
	if c.inPieces() {
		return fault{}, false
	}
	a := &c.d.Allocs
	began, caller, name := timeline.NoAlloc, traces.FrameID(-1), ""
	var ids []timeline.AllocID
	for _, id := range c.live {
		s := c.d.Origin(id)
		if line, fn, ok := vectorised(c, s); ok {
			if began == timeline.NoAlloc {
				began, caller, name = id, line, fn
			}
			ids = append(ids, id)
		} else if began != timeline.NoAlloc && s == traces.NoStack && a.Start[id] > a.Start[began] {
			ids = append(ids, id)
		}
	}
	bytes, asked := c.bytesOf(ids), c.a.Asked.Or(0)
	if len(ids) == 0 || float64(bytes+asked) < functionShare*float64(c.total+asked) {
		return fault{}, false
	}
	line := c.frameText(caller)
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s belong to one call of torch.func (%s) at %s, which works in one piece", c.u.Bytes(bytes),
		nBlocks(len(ids)), name, line)}}
	f.said = fmt.Sprintf("torch.func.vmap at %s works on all samples at once: it holds %s and asked for %s "+
		"more.", line, c.u.Bytes(bytes), c.u.Bytes(asked))
	if name == "jacobian" {
		f.said = fmt.Sprintf("%s computes all rows of the Jacobian at once: they take %s, and it asked for "+
			"%s more.", line, c.u.Bytes(bytes), c.u.Bytes(asked))
	}
	f.fix = "Give it chunk_size=n: it then works on n of them at a time."
	f.sure(Certain, "the call's own functions are on the stacks, and none of those that divide it")
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, a.Rounded[id]/chunksOfVmap*(chunksOfVmap-1)))
	}
	f.lever = remedy{name: "smaller_input", command: at("chunk_size=n", line), changes: changes,
		request: asked / chunksOfVmap * (chunksOfVmap - 1)}
	return f, true
}
