package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// The logits, what a loss computes from them, and the lever that computes both in chunks.

// Logits returns which allocations are the logits or what a loss computes from them, if they hold a
// significant share of what is allocated at a moment: what the sentences call the logits. It is nil if there
// are none.
func Logits(d *timeline.Device, m timeline.Moment) func(timeline.AllocID) bool {
	set := lossBlocks(d, m)
	if set.bytes == 0 {
		return nil
	}
	return func(a timeline.AllocID) bool { return a != timeline.NoAlloc && set.member(d, a) }
}

func lossLever(c *leverCase) (Lever, bool) {
	set := lossBlocks(c.d, c.a.At)
	if set.bytes == 0 {
		return Lever{}, false
	}
	parts := chunks(set.size)
	n, ok := c.saves(cutsOf(c.d, func(a timeline.AllocID) int64 {
		if set.member(c.d, a) {
			return c.d.Allocs.Rounded[a] / parts * (parts - 1)
		}
		return 0
	}))
	if !ok {
		return Lever{}, false
	}
	if c.a.OOM && logitsSized(c.a.Asked.Or(0), set.size) { // one block more of them
		n += c.a.Asked.Or(0) / parts * (parts - 1)
	}
	reason := fmt.Sprintf("%s at that moment are logits and their gradients, blocks of %s",
		c.f.units.Bytes(set.bytes), c.f.units.Bytes(set.size))
	return Lever{
		Name: "chunked_loss", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: fmt.Sprintf("loss = sum(checkpoint(lambda h, y: F.cross_entropy(lm_head(h), y, "+
			"reduction=\"sum\"), h, y, use_reentrant=False) for h, y "+
			"in zip(hidden.chunk(%d), labels.chunk(%d))) / labels.numel()", parts, parts),
		Text: fmt.Sprintf("compute the output layer and the loss in %d chunks of the tokens: %s", parts,
			reason),
		asks: chunkLoss, reason: reason,
	}, true
}
