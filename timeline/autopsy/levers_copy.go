package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A copy of the network that may be a target or a teacher. In the first step of a training no gradient tells
// yet which network nobody trains (see untrainedFault), so that this is a lever with an "if" and no cause.
// The pattern: copy.deepcopy made a second set of the weights, no optimizer has stepped, and calls of the
// model from several lines keep their graphs. What looks like it: two critics of which one is copied from
// the other and both are trained; a pair of encoders that see the two halves of a pair. Which of the calls
// is the copy's the recording does not show: the saving is that of the call that keeps least.

func copiedNetworkLever(c *leverCase, u timeline.Units) (Lever, bool) {
	if !c.a.OOM || c.d.Info.Kind != traces.DeviceGPU {
		return Lever{}, false
	}
	of := evidenceOf(c.d, c.a, u)
	if len(of.parts) == 0 || of.lastOf(traces.PhaseOptimizer) >= 0 {
		return Lever{}, false
	}
	copied := ""
	sets := weightSets(of)
	for _, x := range sets {
		if copier(of, x) == "copy.deepcopy" && len(twins(c.d, x, sets)) >= leastCopied {
			copied = sites.Name(c.d, x.stack)
		}
	}
	if copied == "" {
		return Lever{}, false
	}
	open := of.parts[of.lastOf(traces.PhaseBackward)+1:]
	lines, best, least := map[traces.FrameID]bool{}, -1, int64(0)
	for i := range open {
		p := &open[i]
		if p.Phase != traces.PhaseForward || p.Caller < 0 {
			continue
		}
		lines[p.Caller] = true
		if i == len(open)-1 { // under way
			break
		}
		left, kept := of.forwardBlocks(p.First, p.End, c.a.At+1)
		_, made := of.forwardBlocks(p.First, p.End, p.First)
		if len(left) >= leastCopied && float64(kept) >= keptByCall*float64(made) &&
			(best < 0 || kept < least) {
			best, least = i, kept
		}
	}
	if best < 0 || len(lines) < 2 {
		return Lever{}, false
	}
	p := open[best]
	n, ok := c.saves(ungraphedUntil(of, p, p.End))
	line := of.frameText(p.Caller)
	l := Lever{
		Name: "no_grad", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: at("with torch.no_grad():", line),
		Text: fmt.Sprintf("if the network that copy.deepcopy made at %s is a target or a teacher, which "+
			"nobody trains, call it under torch.no_grad(): the call at %s keeps %s for a backward",
			copied, line, u.Bytes(least)),
	}
	l.Effect.Changes = c.tried
	return l, ok
}
