package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Autocast's copies of the weights. Under torch.autocast an op such as linear casts fp32 weights to 16 bits,
// and the copy of a weight that needs a gradient is kept until the outermost autocast ends (aten's
// autocast_mode.cpp, cached_cast; torch.autocast, cache_enabled), and longer by the graph that saved it. The
// pattern: blocks of exactly half the size of weights, at most one for each, made in a call of a module
// whose next allocation is in the same call (the cast of the bias, or the output). What looks like it:
// activations that happen to have half the size of a weight; a linear layer in fp32 makes one block a call
// only, which excludes it.

// castShare is the share of the weights' bytes for which copies must exist: the forward may not be finished.
const castShare = 0.25

// leastCast is the size in bytes from which a weight is counted.
const leastCast = 4096

func castsFault(c *evidence) (fault, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return fault{}, false
	}
	weights, _ := c.weights()
	var total int64
	for size, n := range weights {
		if size >= leastCast {
			total += size * int64(n)
		}
	}
	a, last := &c.d.Allocs, all[len(all)-1].first
	found := map[int64][]timeline.AllocID{}
	named := false
	for _, id := range c.live {
		k := c.kinds.Of(a.Stack[id])
		if a.Start[id] < last || weights[2*a.Size[id]] == 0 || 2*a.Size[id] < leastCast ||
			!k.Has(frames.KindModel) || int(id)+1 >= a.Len() || a.Stack[id+1] != a.Stack[id] {
			continue
		}
		found[a.Size[id]] = append(found[a.Size[id]], id)
		named = named || k.Has(frames.KindAutocast)
	}
	var ids []timeline.AllocID
	var covered int64
	for size, cast := range found {
		if len(cast) > weights[2*size] {
			continue // more than there are weights: activations of that size
		}
		covered += 2 * size * int64(len(cast))
		ids = append(ids, cast...)
	}
	if len(ids) < leastCopied || float64(covered) < castShare*float64(total) {
		return fault{}, false
	}
	bytes, line := c.bytesOf(ids), c.frameText(c.parts[all[len(all)-1].from].Caller)
	f := fault{Cause: Cause{Kind: "amp_copies", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s in %s of half the size of weights, made as layers run: autocast's 16-bit copies",
		c.u.Bytes(bytes), nBlocks(len(ids)))}}
	f.said = fmt.Sprintf("Autocast keeps a 16-bit copy of every fp32 weight: %s for the forward at %s.",
		c.u.Bytes(bytes), line)
	f.fix = "Keep the weights themselves in bfloat16, or shard them; for inference use " +
		"model.to(torch.bfloat16) instead of autocast."
	f.sure(Likely, "sizes and order fit")
	if named {
		f.sure(Certain, "autocast's frames are on the stacks")
	}
	var changes []Change
	for _, id := range ids {
		changes = append(changes, life(c.d, id, a.Rounded[id]))
	}
	f.lever = remedy{name: "smaller_weights", command: "model.to(torch.bfloat16)", changes: changes}
	if !keepsGraph(c, bytes) {
		f.fix = "No graph needs them here: torch.autocast(..., cache_enabled=False) casts a weight anew in " +
			"each call; or keep the weights themselves in 16 bits, model.to(torch.bfloat16)."
		f.lever = remedy{name: "autocast_cache_off", changes: untilNext(c, ids),
			command: at("torch.autocast(\"cuda\", cache_enabled=False)", line)}
	}
	return f, true
}

// keepsGraph reports whether there is a graph that keeps copies, whether autocast caches them or not: a
// backward was seen, or the current call keeps most of what it made besides copies of some bytes.
func keepsGraph(c *evidence, copies int64) bool {
	last := c.parts[len(c.parts)-1]
	_, kept := c.forwardBlocks(last.First, c.a.At, c.a.At+1)
	_, made := c.forwardBlocks(last.First, c.a.At, last.First)
	return c.lastOf(traces.PhaseBackward) >= 0 || float64(kept-copies) >= keptByCall*float64(made-copies)
}
