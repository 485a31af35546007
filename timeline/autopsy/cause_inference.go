package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A call of the model without a graph that gets too much at once: all crops of an image, all rays of a view,
// all candidates of a search. The pattern: the failed call keeps little of what it made, or an earlier one
// left only its output, so nothing waits for a backward; a few blocks of its layers, together with the
// request, are most of the memory; and in a process that trains, its blocks are larger than any that a
// training call made, and no backward ever followed calls from its line. Look-alikes: an evaluation with
// gradients enabled, which keeps what it makes; memory that the training left, beside which an evaluation of
// the usual size does not fit; a training with checkpoints, whose calls keep little, too.

// inferenceTimes is how many times the largest block of the training's calls the call must ask for.
const inferenceTimes = 1.5

func inferenceFault(c *evidence) (fault, bool) {
	if c.a.Asked.Or(0) <= 0 || len(c.parts) == 0 {
		return fault{}, false
	}
	last := c.parts[len(c.parts)-1]
	s := c.d.Event(c.a.At).Stack
	if last.Phase != traces.PhaseForward || last.Caller < 0 || !c.inModel(s) || c.trainedFrom(&last) {
		return fault{}, false
	}
	if c.inPieces() {
		return fault{}, false
	}
	ids, kept := c.forwardBlocks(last.First, c.a.At, c.a.At+1)
	all, made := c.forwardBlocks(last.First, c.a.At, last.First)
	if made == 0 || float64(kept) >= keptByCall*float64(made) && !withoutGraphs(c) ||
		float64(kept+c.a.Asked.Or(0)) < functionShare*float64(c.total+c.a.Asked.Or(0)) {
		return fault{}, false
	}
	now, trained := c.a.Asked.Or(0), int64(0)
	for _, id := range ids {
		if checkpointed(c, c.d.Origin(id)) { // which keeps little, and waits for a backward
			return fault{}, false
		}
		now = max(now, c.d.Allocs.Size[id])
	}
	for _, p := range c.parts {
		if p.Phase != traces.PhaseForward || !c.trainedFrom(&p) {
			continue
		}
		before, _ := c.forwardBlocks(p.First, p.End, p.First)
		for _, id := range before {
			trained = max(trained, c.d.Allocs.Size[id])
		}
	}
	if trains := c.lastOf(traces.PhaseBackward) >= 0; trains &&
		(trained == 0 || float64(now) < inferenceTimes*float64(trained)) {
		return fault{}, false
	}
	line, held := c.frameText(c.ownLine(&last)), ""
	if len(ids) > 0 {
		held = fmt.Sprintf("holds %s in %s and ", c.u.Bytes(kept), nBlocks(len(ids)))
	}
	f := fault{Cause: Cause{Kind: "too_large", Bytes: maybe.Known(kept), Text: fmt.Sprintf(
		"the call of the model at %s keeps no graph; it %sasked for %s", line, held,
		c.u.Bytes(c.a.Asked.Or(0)))}}
	beside := ""
	if trained > 0 {
		beside = fmt.Sprintf(", %.1f times the largest block of a training step's",
			float64(now)/float64(trained))
	}
	f.said = fmt.Sprintf("The call of the model at %s gets too large a batch: it %sasked for %s%s.", line,
		held, c.u.Bytes(c.a.Asked.Or(0)), beside)
	f.fix = "Call it on a part of its batch at a time, for part in batch.split(n), and move each result to " +
		"the CPU."
	f.sure(Likely, "the call keeps little of what it makes; one large sample would look the same")
	share := min(1, float64(trained)/float64(now)) // of a part as large as the training's batch
	var changes []Change
	for _, id := range all {
		if less := int64((1 - share) * float64(c.d.Allocs.Rounded[id])); less > 0 {
			changes = append(changes, life(c.d, id, less))
		}
	}
	f.lever = remedy{name: "smaller_input", command: at("for part in batch.split(n):", line),
		changes: changes, request: int64((1 - share) * float64(c.a.Asked.Or(0))),
		// The same line's earlier calls would get parts, too, of a size that nothing shows.
		partly: trained == 0 && callsFrom(c, last.Caller) > 1}
	if longer, ok := largestBatch(c, false); ok { // earlier calls from there got less
		f.elseFix, f.instead = "if it is one large sample, crop it or cap its length", longer.lever
	}
	return f, true
}

// withoutGraphs reports whether an earlier call of what the last one calls left its output and almost nothing
// else that it made.
func withoutGraphs(c *evidence) bool {
	last := outermostIn(c, &c.parts[len(c.parts)-1])
	for _, p := range c.parts[:len(c.parts)-1] {
		if p.Phase != traces.PhaseForward || !overlap(last, outermostIn(c, &p)) {
			continue
		}
		made, _ := c.forwardBlocks(p.First, p.End, p.First)
		left, _ := c.forwardBlocks(p.First, p.End, p.End)
		if len(made) >= graphBlocks && len(left) > 0 && graphBlocks*len(left) <= len(made) {
			return true
		}
	}
	return false
}

// outermostIn returns the functions of a call's outermost module: the model's own, not those of its layers.
func outermostIn(c *evidence, p *steps.Part) map[userFunction]bool {
	out := map[userFunction]bool{}
	for id := range outermostOf(c, p) {
		fn, file, _ := c.places.FrameText(id)
		out[userFunction{fn, file}] = true
	}
	return out
}

// overlap reports whether two sets have a function in common, or one of them is empty.
func overlap(x, y map[userFunction]bool) bool {
	for f := range x {
		if y[f] {
			return true
		}
	}
	return len(x) == 0 || len(y) == 0
}
