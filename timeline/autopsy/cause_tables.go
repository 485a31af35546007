package autopsy

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Dense gradients of embedding tables. A lookup uses a few rows of its table, yet its gradient is as large as
// the table, unless it is made with sparse=True; a table that is looked up twice gets two of them before they
// are added up. The pattern: the model runs an embedding, there are weights many times larger than anything
// that its calls make, and a backward makes blocks of their sizes. Look-alikes: a language model, whose
// logits are as large as its table; a table with which a linear layer multiplies as a whole, too, for a few
// samples, whose gradient has all rows. Sources: torch.nn.Embedding, sparse; torch.optim.SparseAdam.

// tableTimes is how many times the largest block of the model's calls a table has at least.
const tableTimes = 16

// looksUp reports whether the process ran an embedding.
func looksUp(c *evidence) bool {
	for i := range c.places.Frames {
		fn, file, _ := c.places.FrameText(traces.FrameID(i))
		if (fn == "embedding" || fn == "embedding_bag") && strings.HasSuffix(file, "torch/nn/functional.py") {
			return true
		}
	}
	return false
}

func tablesFault(c *evidence) (fault, bool) {
	if c.lastOf(traces.PhaseBackward) < 0 || !looksUp(c) {
		return fault{}, false
	}
	a, most := &c.d.Allocs, largestMade(c)
	tables, held, n := map[int64]bool{}, int64(0), 0
	for _, id := range c.live {
		if a.Start[id] < c.parts[0].First && most > 0 && a.Size[id] >= tableTimes*most {
			tables[a.Size[id]] = true
			held, n = held+a.Rounded[id], n+1
		}
	}
	made := func(id timeline.AllocID) bool {
		return tables[a.Size[id]] && a.Start[id] >= c.parts[0].First &&
			(a.Stack[id] == traces.NoStack || c.kinds.Of(a.Stack[id]).Has(frames.KindBackwardPass))
	}
	bytes, request := int64(0), int64(0)
	for _, id := range c.live {
		if made(id) {
			bytes += a.Rounded[id]
		}
	}
	if s := c.d.Event(c.a.At).Stack; tables[c.a.Asked.Or(0)] &&
		(s == traces.NoStack || c.kinds.Of(s).Has(frames.KindBackwardPass)) {
		request = c.a.Asked.Or(0)
	}
	if bytes+request == 0 {
		return fault{}, false
	}
	f := fault{Cause: Cause{Kind: "dense_embedding_gradients", Bytes: maybe.Known(bytes + request),
		Text: fmt.Sprintf("%s of gradients with the sizes of %s that hold %s, while a call of the model "+
			"makes at most %s at once", c.u.Bytes(bytes+request), timeline.Counted(n, "table"),
			c.u.Bytes(held), c.u.Bytes(most))}}
	f.said = fmt.Sprintf("The gradients of embeddings are as large as the tables, although a step uses only "+
		"a few rows: %s for tables of %s.", c.u.Bytes(bytes+request), c.u.Bytes(held))
	f.fix = "Make the tables with nn.Embedding(..., sparse=True) and train them with " +
		"torch.optim.SparseAdam or SGD: a gradient then has only the rows that were used."
	f.sure(Likely, "nothing else that the model makes is near as large; a table that a linear layer uses "+
		"as a whole would look the same")
	f.lever = remedy{name: "sparse_gradients", command: "nn.Embedding(rows, width, sparse=True)",
		changes: neverMade(c, made), request: request}
	return f, true
}
