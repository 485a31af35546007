package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Logits. The pattern: the blocks of a loss over classes and similar ones (see lossBlocks), including the
// failed one. Look-alikes: attention scores, which a softmax inside the model makes, several per block.

func logitsFault(c *evidence) (fault, bool) {
	set := lossBlocks(c.d, c.a.At)
	if set.bytes == 0 {
		return fault{}, false
	}
	line := sites.Name(c.d, c.d.Event(c.a.At).Stack)
	for _, id := range c.live {
		if set.member(c.d, id) && c.kinds.Of(c.d.Origin(id)).Has(frames.KindLoss) {
			line = sites.Name(c.d, c.d.Origin(id))
		}
	}
	f := fault{Cause: Cause{Kind: "logits", Bytes: maybe.Known(set.bytes), Text: fmt.Sprintf(
		"%s are logits and blocks of their size, each %s, for the loss at %s", c.u.Bytes(set.bytes),
		c.u.Bytes(set.size), line)}}
	f.said = fmt.Sprintf("The logits and what the loss at %s makes of them hold %s, in blocks of %s.", line,
		c.u.Bytes(set.bytes), c.u.Bytes(set.size))
	f.sure(Certain, "a loss over classes made blocks of this size")
	f.fix = "Compute the output layer and the loss in chunks of the tokens, or use a smaller vocabulary."
	f.lever.name = "chunked_loss"
	return f, true
}
