package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A graph that a backward did not free: backward(retain_graph=True). Without it, autograd releases what a
// node saved as soon as the node has run (torch.autograd.backward: "if False, the graph used to compute the
// grad will be freed"), even if the loss itself is kept. The pattern: of every forward of a round, almost
// everything that it left exists after the round's last backward, and in the next round, too. Look-alikes: a
// second forward whose metric keeps its graph, in which case a backward frees the first one's;
// create_graph=True, from which blocks of the backward stay as well; two backwards of one graph, the last of
// which frees it; hooks on every module that keep their inputs, which cannot be distinguished, and need a
// line of the user's in the same way.

// retainedShare is the share of a forward's blocks that a backward must leave for its graph to be retained.
const retainedShare = 0.8

// retained returns the blocks of finished rounds' forwards whose graphs their backward left, what the loop
// made beside them (its batch, and losses up to the last backward), and in how many rounds; none if one
// round's backward freed a forward's.
func retained(c *evidence) (ids, beside []timeline.AllocID, in int) {
	all := c.rounds()
	// Batches by their lines: those of the first step came before anything showed that it trains.
	inputs, before := map[traces.StackID]bool{}, timeline.Start
	for _, id := range c.live {
		if c.d.Allocs.Category[id] == timeline.Input {
			inputs[c.d.Allocs.Stack[id]] = true
		}
	}
	for _, r := range all {
		if r.backward == timeline.Never || r.end == timeline.Never {
			continue
		}
		for _, p := range c.parts[r.from:r.to] {
			if p.Phase != traces.PhaseForward || p.First >= r.backward {
				continue
			}
			_, made := c.forwardBlocks(p.First, p.End, r.backward)
			_, left := c.forwardBlocks(p.First, p.End, r.after+1)
			if made > 0 && float64(left) < retainedShare*float64(made) {
				return nil, nil, 0
			}
		}
		blocks, _ := c.forwardBlocks(r.first, r.backward, r.after+1)
		live := c.stillThere(blocks)
		if len(live) > 0 {
			in++
		}
		ids = append(ids, live...)
		for _, id := range c.beside(before, r.first) {
			if inputs[c.d.Allocs.Stack[id]] {
				beside = append(beside, id)
			}
		}
		beside = append(beside, c.beside(r.first, r.after)...)
		before = r.after
	}
	return ids, beside, in
}

// backwardKept returns the bytes that backward passes made and that are nobody's .grad. If
// torch.autograd.grad makes them all, that is every block of a backward, including those of the engine's
// threads, which have no Python frames.
func backwardKept(c *evidence) (sum int64) {
	all := gradOnly(c)
	for _, id := range c.live {
		s := c.d.Origin(id)
		i := steps.PartAt(c.parts, c.d.Allocs.Start[id])
		engine := all && s == traces.NoStack && i >= 0 && c.parts[i].Phase == traces.PhaseBackward
		if engine || (all || c.d.Allocs.Category[id] != timeline.Gradient) &&
			c.kinds.Of(s).Has(frames.KindBackwardPass) {
			sum += c.d.Allocs.Rounded[id]
		}
	}
	return sum
}

// resultsOfGradients reports whether torch.autograd.grad makes all gradients and the program trains nothing,
// as where a model of energies predicts forces. A graph that it retains ends with what the call returned, so
// that earlier ones are there because their results are kept.
func resultsOfGradients(c *evidence) bool {
	if !gradOnly(c) || c.lastOf(traces.PhaseOptimizer) >= 0 {
		return false
	}
	last := c.lastOf(traces.PhaseForward)
	return last >= 0 && c.parts[last].Caller >= 0 && c.codeTrainsNothing(&c.parts[last])
}

// keptResults turns the fault into that of results which keep their graphs.
func (f *fault) keptResults(c *evidence, bytes int64, in int, line string) {
	f.Kind, f.as = "kept_graph", f.Kind
	f.Text = fmt.Sprintf("%s from %s are still there although torch.autograd.grad has gone through them, "+
		"most from %s", c.u.Bytes(bytes), timeline.Counted(in, "earlier call"), line)
	f.said = fmt.Sprintf("What %s returned is kept with its graph: %s, most from %s.",
		timeline.Counted(in, "earlier call"), c.u.Bytes(bytes), line)
	f.fix = "Detach each result before it is kept: energy.detach().cpu()."
	f.sure(Likely, "the program trains nothing; a graph that is retained ends with what the call returned")
	f.lever.name, f.lever.command = "detach_metric", "value = value.detach()"
	f.elseFix = "if one call continues what another began, drop retain_graph=True and detach what is " +
		"handed on"
	f.instead = f.lever
	f.instead.name, f.instead.command = "drop_retain_graph", "torch.autograd.grad(energy, positions)"
}

func retainedFault(c *evidence) (fault, bool) {
	ids, beside, in := retained(c)
	bytes := c.bytesOf(ids)
	if len(ids) < graphBlocks || 4*backwardKept(c) > bytes {
		return fault{}, false
	}
	line := c.topName(c.sitesOf(ids))
	f := fault{Cause: Cause{Kind: "retained_graph", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s from %s stay after the backward that used them, most from %s", c.u.Bytes(bytes),
		timeline.Counted(in, "earlier forward"), line)}}
	f.said = fmt.Sprintf("The backward does not free its graph: %s from %s stay, most from %s.",
		c.u.Bytes(bytes), timeline.Counted(in, "earlier forward"), line)
	f.fix = "Drop retain_graph=True, and detach what one step hands to the next: state = state.detach()."
	f.sure(Likely, "all that the forwards left outlives their backward; hooks on every module would look "+
		"the same")
	end := func(id timeline.AllocID) timeline.Moment { return c.afterBackward(c.d.Allocs.Start[id]) }
	f.lever = remedy{name: "drop_retain_graph", command: "loss.backward()",
		changes: endingAt(c, append(beside, ids...), end)}
	if resultsOfGradients(c) {
		f.keptResults(c, bytes, in, line)
	}
	return f, true
}
