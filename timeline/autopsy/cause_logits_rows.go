package autopsy

import (
	"fmt"
	"regexp"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Logits that the user's own code turns into log-probabilities, one row at a time, for example to score the
// completions of a policy. The pattern: the outermost module's own last linear layer made a block several
// times as large as any before it in the call, that block is still there, and outside of the model one line
// makes blocks that add up to it. Or the code takes the log-probabilities of all rows at once, by methods of
// tensors, which no frame of PyTorch shows: then the line makes blocks as large as the output, and says so.
// Look-alikes: a wide layer of features, which is not so much larger than what comes before; tensors of any
// other size; whole outputs that a line compares with their targets.

// leastRows is how many rows logits must have for one of them to be a part.
const leastRows = 2

func logitsRowsFault(c *evidence) (fault, bool) {
	event := c.d.Event(c.a.At)
	if len(c.parts) == 0 || c.kinds.Of(event.Stack).Has(frames.KindModuleCall) {
		return fault{}, false
	}
	p := &c.parts[len(c.parts)-1]
	if p.Phase != traces.PhaseForward {
		return fault{}, false
	}
	logits, before := widened(c, p.First)
	if logits == timeline.NoAlloc {
		return fault{}, false
	}
	a, table := &c.d.Allocs, sites.Of(c.d.Timeline())
	whole, row := a.Size[logits], c.a.Asked.Or(0)
	line := table.Number(event.Stack)
	if line < 0 || !isRow(row, whole) && (!logitsSized(row, whole) || !c.ofClasses(event.Stack)) {
		return fault{}, false
	}
	ids := []timeline.AllocID{logits}
	for _, id := range c.live {
		if (a.Start[id] > a.Start[logits] || !isRow(row, whole)) && logitsSized(a.Size[id], row) &&
			table.Number(c.d.Origin(id)) == line {
			ids = append(ids, id)
		}
	}
	if len(ids) == 1 {
		return fault{}, false
	}
	bytes, rows := c.bytesOf(ids), c.bytesOf(ids[1:])
	made, from := sites.Name(c.d, c.d.Origin(logits)), table.Names[line]
	makes := fmt.Sprintf("makes blocks of %s that add up to it", c.u.Bytes(row))
	f := fault{}
	f.said = fmt.Sprintf("The logits of all positions, made at %s, take %s, and %s makes as much again, one "+
		"row at a time: %s so far.", made, c.u.Bytes(a.Rounded[logits]), from, c.u.Bytes(rows))
	if !isRow(row, whole) {
		makes = fmt.Sprintf("makes blocks of %s from it", c.u.Bytes(row))
		f.said = fmt.Sprintf("The logits of all positions, made at %s, take %s, and what %s computes from "+
			"them takes %s so far, in blocks of their size.", made, c.u.Bytes(a.Rounded[logits]), from,
			c.u.Bytes(rows))
	}
	f.Cause = Cause{Kind: "logits", Bytes: maybe.Known(bytes + row), Text: fmt.Sprintf(
		"the output layer at %s made a block of %s, the largest before it in the call has %s, and %s %s",
		made, c.u.Bytes(whole), c.u.Bytes(before), from, makes)}
	f.fix = "Compute the output layer and what follows it in chunks of tokens, or only for the positions " +
		"that count, such as a completion's (logits_to_keep)."
	f.sure(Likely, "the last layer makes a far larger block than any before it, and blocks as large as "+
		"it or as its rows follow")
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

// widened returns the last block since a moment that a linear layer of the outermost module made, that is
// still there, and that is several times as large as any other which modules had made since then, and the
// largest of those; [timeline.NoAlloc] if there is none. Several models may have run: a policy, then its
// reference.
func widened(c *evidence, from timeline.Moment) (last timeline.AllocID, before int64) {
	last = timeline.NoAlloc
	blocks, _ := c.forwardBlocks(from, c.a.At, from)
	for _, id := range blocks {
		n, s := c.d.Allocs.Size[id], c.d.Allocs.Stack[id]
		switch {
		case !c.kinds.Of(s).Has(frames.KindModuleCall):
		case before > 0 && n >= outputTimes*before && linearOfOutermost(c.d, s):
			if c.d.Allocs.Requested[id] > c.a.At {
				last = id
			}
		default:
			before = max(before, n)
		}
	}
	return last, before
}

// classwise matches what is computed over all classes of logits.
var classwise = regexp.MustCompile(`\b(?:log_?softmax|softmax|logsumexp)\(`)

// ofClasses reports whether the user's line that a stack ends in computes something over all classes.
func (c *evidence) ofClasses(s traces.StackID) bool {
	for _, id := range c.d.Timeline().Places().Stacks.At(s) {
		if !c.ofUser(id) {
			continue
		}
		lines, own := c.linesAt(id)
		return lines != nil && classwise.MatchString(lines[own].text)
	}
	return false
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
