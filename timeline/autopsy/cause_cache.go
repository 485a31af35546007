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

// A key-value cache that grows with each token. The pattern: one place inside the model makes several equal
// blocks per call, and in the next call as many that are larger by the same amount, while the earlier ones
// end: torch.cat of the past and the new keys and values in each layer (as in transformers' DynamicCache).
// The old and the new block of a layer exist together while it is copied. Look-alikes: results that are
// collected, which is one block per call and outside of the model; batches of growing length, where all other
// blocks grow as well; a static cache, which is made once and cannot be distinguished from weights.

// leastTokens is how many successive sizes a cache must have had.
const leastTokens = 8

// leastLayers is how many equal blocks a cache has: keys and values of two layers.
const leastLayers = 4

// growingCache follows one stack's sizes: how many different ones came one after the other, each larger than
// the last by the same amount.
type growingCache struct {
	last, by int64
	sizes    int
	blocks   int // of the last size
	least    int // blocks of a size, the last one excepted
}

func (g *growingCache) add(size int64) {
	if size == g.last {
		g.blocks++
		return
	}
	by := size - g.last
	if g.sizes == 0 || by <= 0 || g.sizes > 1 && by != g.by {
		*g = growingCache{last: size, sizes: 1, blocks: 1}
		return
	}
	if g.sizes == 1 || g.blocks < g.least {
		g.least = g.blocks
	}
	g.last, g.by, g.blocks = size, by, 1
	g.sizes++
}

func cacheFault(c *evidence) (fault, bool) {
	a := &c.d.Allocs
	seen := map[traces.StackID]*growingCache{}
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		s := a.Stack[id]
		if k := c.kinds.Of(s); !k.Has(frames.KindModel) || k.Has(frames.KindBackwardPass|frames.KindStep) {
			continue
		}
		g := seen[s]
		if g == nil {
			g = &growingCache{}
			seen[s] = g
		}
		g.add(a.Size[id])
	}
	var ids []timeline.AllocID
	widest := traces.NoStack
	held := map[traces.StackID]int64{}
	for _, id := range c.live {
		s := a.Stack[id]
		g := seen[s]
		if g == nil || g.sizes < leastTokens || g.least < leastLayers ||
			a.Size[id] != g.last && a.Size[id] != g.last-g.by {
			continue
		}
		ids = append(ids, id)
		held[s] += a.Rounded[id]
		if widest == traces.NoStack || held[s] > held[widest] {
			widest = s
		}
	}
	var f fault
	var line string
	var replaced []timeline.AllocID // of which there is a longer copy
	if widest == traces.NoStack {
		old, joined := joinedFirst(c)
		if len(joined) == 0 {
			return fault{}, false
		}
		line = sites.Name(c.d, a.Stack[joined[0]])
		replaced = old[:len(joined)]
		bytes := c.bytesOf(old) + c.bytesOf(joined)
		f.Cause = Cause{Kind: "kv_cache", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
			"the call before left %s of %s and nothing else; this one copies them into larger ones at %s, "+
				"%s so far", nBlocks(len(old)), c.u.Bytes(a.Size[old[0]]), line, count(len(joined)))}
		f.said = fmt.Sprintf("Each token copies the key-value cache into a larger one at %s, and the old "+
			"one stays until the copy is done: %s together.", line, c.u.Bytes(bytes))
		f.sure(Likely, "the blocks that the call before left are made again with a little more at their end")
	} else {
		g, bytes := seen[widest], c.bytesOf(ids)
		replaced = copiedBlocks(c, ids, g)
		line = sites.Name(c.d, widest)
		f.Cause = Cause{Kind: "kv_cache", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
			"%s of %s at %s grew in %s, each time by %s", nBlocks(len(ids)), c.u.Bytes(g.last), line,
			nCalls(g.sizes), c.u.Bytes(g.by))}
		f.said = fmt.Sprintf("A key-value cache grows with each token at %s: %s in %s, %s more a token.",
			line, c.u.Bytes(bytes), nBlocks(len(ids)), c.u.Bytes(g.by*int64(g.least)))
		f.sure(Certain, "equal blocks grow by the same amount with each call, and the shorter ones end")
	}
	f.fix = "Limit it: fewer new tokens or sequences at once, or a static or quantised cache " +
		"(cache_implementation=\"static\"), which is not copied with each token."
	f.lever = remedy{name: "static_kv_cache", unsure: true,
		command: at("model.generate(..., cache_implementation=\"static\")", line)}
	for _, id := range replaced { // a static cache is not copied; it may be made longer than this one is yet
		f.lever.changes = append(f.lever.changes, life(c.d, id, a.Rounded[id]))
	}
	var changes []Change
	for id := c.d.Begun(timeline.Start); id < c.d.Begun(c.a.At); id++ {
		if c.inModel(a.Stack[id]) { // of half as many sequences
			changes = append(changes, life(c.d, id, a.Rounded[id]/2))
		}
	}
	f.instead = remedy{name: "smaller_input", command: at("for part in prompts.split(n):", line),
		changes: changes, request: c.a.Asked.Or(0) / 2, scale: 0.5}
	f.elseFix = "Generate fewer sequences at once (a smaller batch, or num_return_sequences): half as many " +
		"take half of the cache"
	return f, true
}

// copiedBlocks returns the last call's blocks for which the current call has already made longer copies.
func copiedBlocks(c *evidence, ids []timeline.AllocID, g *growingCache) (old []timeline.AllocID) {
	longer := 0
	for _, id := range ids {
		switch c.d.Allocs.Size[id] {
		case g.last:
			longer++
		case g.last - g.by:
			old = append(old, id)
		}
	}
	return old[:min(longer, len(old))]
}

// mostToken is the largest share of a cache that one call adds to it.
const mostToken = 1.0 / 8

// leftAsCache is the share of what a call left that must be equal blocks for them to be a cache. A graph has
// blocks of several sizes.
const leftAsCache = 0.9

// joinedFirst finds a cache that fails while it is joined for the first time, before there is growth to see.
// The call before the last left equal blocks and nothing else, and the last call makes blocks that are larger
// by a whole part of them, a token of so many. Look-alike: two evaluations with gradients on, of inputs of
// almost one length, whose graphs have blocks of several sizes.
func joinedFirst(c *evidence) (old, joined []timeline.AllocID) {
	n := len(c.parts)
	if n < 2 || c.parts[n-1].Phase != traces.PhaseForward || c.parts[n-2].Phase != traces.PhaseForward {
		return nil, nil
	}
	a, before, now := &c.d.Allocs, c.parts[n-2].First, c.parts[n-1].First
	left, bytes := c.forwardBlocks(before, now, c.a.At+1)
	bySize := map[int64][]timeline.AllocID{}
	for _, id := range left {
		if bySize[a.Size[id]] = append(bySize[a.Size[id]], id); len(bySize[a.Size[id]]) > len(old) {
			old = bySize[a.Size[id]]
		}
	}
	if len(old) < leastLayers || float64(c.bytesOf(old)) < leftAsCache*float64(bytes) {
		return nil, nil
	}
	was := a.Size[old[0]]
	made, _ := c.forwardBlocks(now, c.a.At, c.a.At+1)
	for _, id := range made {
		if by := a.Size[id] - was; by > 0 && float64(by) <= mostToken*float64(was) && was%by == 0 {
			joined = append(joined, id)
		}
	}
	other := func(id timeline.AllocID) bool { return a.Size[id] != a.Size[joined[0]] }
	if len(joined) < leastLayers || len(joined) > len(old) || slices.ContainsFunc(joined, other) {
		return nil, nil
	}
	return old, joined
}
