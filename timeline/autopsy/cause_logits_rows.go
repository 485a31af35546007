package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Logits that the user's own code turns into log-probabilities, one row at a time, for example to score the
// completions of a policy. The pattern: the outermost module's own last linear layer made a block several
// times as large as any before it in the call, that block is still there, and outside of the model one line
// makes blocks that add up to it. Look-alikes: a wide layer of features, which is not so much larger than
// what comes before; tensors of any other size.

// leastRows is how many rows logits must have for one of them to be a part.
const leastRows = 2

func logitsRowsFault(c *evidence) (fault, bool) {
	event := c.d.Event(c.a.At)
	if len(c.parts) == 0 || c.inModel(event.Stack) {
		return fault{}, false
	}
	p := &c.parts[len(c.parts)-1]
	if p.Phase != traces.PhaseForward {
		return fault{}, false
	}
	logits, before := widened(c, p.First)
	if logits == timeline.NoAlloc || c.d.Allocs.Requested[logits] <= c.a.At {
		return fault{}, false
	}
	a, table := &c.d.Allocs, sites.Of(c.d.Timeline())
	whole, row := a.Size[logits], c.a.Asked.Or(0)
	line := table.Number(event.Stack)
	if line < 0 || !isRow(row, whole) {
		return fault{}, false
	}
	ids := []timeline.AllocID{logits}
	for _, id := range c.live {
		if a.Start[id] > a.Start[logits] && logitsSized(a.Size[id], row) &&
			table.Number(c.d.Origin(id)) == line {
			ids = append(ids, id)
		}
	}
	if len(ids) == 1 {
		return fault{}, false
	}
	bytes, rows := c.bytesOf(ids), c.bytesOf(ids[1:])
	made, from := sites.Name(c.d, c.d.Origin(logits)), table.Names[line]
	f := fault{Cause: Cause{Kind: "logits", Bytes: maybe.Known(bytes + row), Text: fmt.Sprintf(
		"the output layer at %s made a block of %s, the largest before it in the call has %s, and %s "+
			"makes blocks of %s that add up to it",
		made, c.u.Bytes(whole), c.u.Bytes(before), from, c.u.Bytes(row))}}
	f.said = fmt.Sprintf("The logits of all positions, made at %s, take %s, and %s makes as much again, one "+
		"row at a time: %s so far.", made, c.u.Bytes(a.Rounded[logits]), from, c.u.Bytes(rows))
	f.fix = "Compute the output layer and what follows it in chunks of tokens, or only for the positions " +
		"that count, such as a completion's (logits_to_keep)."
	f.sure(Likely, "the last layer makes a far larger block than any before it, and blocks that add up to "+
		"it follow")
	parts, output := chunks(whole), table.Number(c.d.Origin(logits))
	f.lever.changes = cutsOf(c.d, func(id timeline.AllocID) int64 { // of all steps
		s := c.d.Origin(id)
		if s == traces.NoStack { // gradients, which the backward makes in a thread without a stack
			if isKept(a.Category[id]) || !logitsSized(a.Size[id], whole) && !logitsSized(a.Size[id], row) {
				return 0
			}
			return a.Rounded[id] / parts * (parts - 1)
		}
		n := table.Number(s)
		if n == output && logitsSized(a.Size[id], whole) || n == line && logitsSized(a.Size[id], row) {
			return a.Rounded[id] / parts * (parts - 1)
		}
		return 0
	})
	f.lever.name, f.lever.request = "chunked_loss", row/parts*(parts-1)
	f.lever.command = at(fmt.Sprintf("for h in hidden.chunk(%d): logps(lm_head(h))", parts), made)
	f.elseFix = "if only the last positions count, as in a completion, compute the logits of these alone"
	f.instead = remedy{name: "logits_to_keep", command: at("lm_head(hidden[:, -n:])", made), unsure: true}
	return f, true
}

// widened returns the first block since a moment that a linear layer of the outermost module made, and that
// is several times as large as any that the model had made since then, and the largest of those;
// [timeline.NoAlloc] if there is none.
func widened(c *evidence, from timeline.Moment) (id timeline.AllocID, before int64) {
	blocks, _ := c.forwardBlocks(from, c.a.At, from)
	for _, id := range blocks {
		n := c.d.Allocs.Size[id]
		if before > 0 && n >= outputTimes*before && linearOfOutermost(c.d, c.d.Allocs.Stack[id]) {
			return id, before
		}
		before = max(before, n)
	}
	return timeline.NoAlloc, before
}

// isRow reports whether several blocks of a size are as large as a whole, or lack up to a sixteenth of each:
// the next token's probability leaves the last position out.
func isRow(row, whole int64) bool {
	if row <= 0 {
		return false
	}
	n := whole / row
	return n >= leastRows && whole-n*row <= min(row, whole/16)
}
