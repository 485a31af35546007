package autopsy

import (
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Calls of the model that no backward has followed yet, and what they left.

// openCalls are calls of the model that no backward followed, and what they left.
type openCalls struct {
	*evidence
	parts  []steps.Part // all since the last backward or optimizer
	caller traces.FrameID
	call   *steps.Part // the last of those from that line
	count  int         // of calls from it that left something
	ids    []timeline.AllocID
	others []timeline.AllocID // what else they left
	left   graphSign
	waits  bool // what they return is kept, and differentiated later
}

// openForwards returns the line with the most calls of the model since the last backward that left something,
// how many these are, and what all calls left. A function may call the parts of a model one by one, such as
// its layers in a loop, and then only the last leaves its output. If nothing was left it is the line with the
// most calls.
func openForwards(c *evidence) (caller traces.FrameID, calls int, ids []timeline.AllocID) {
	open := c.parts[c.lastOf(traces.PhaseBackward, traces.PhaseOptimizer)+1:]
	if len(open) == 0 {
		return -1, 0, nil
	}
	left := make([]bool, len(open))
	k := 0
	for _, id := range c.live {
		at := c.d.Allocs.Start[id]
		if at < open[0].First {
			continue
		}
		for k+1 < len(open) && open[k+1].First <= at {
			k++
		}
		// The last call is under way.
		if k < len(open)-1 && c.kinds.Of(c.d.Origin(id)).Has(frames.KindModel) {
			ids, left[k] = append(ids, id), true
		}
	}
	type number struct{ left, all int }
	count, best := map[traces.FrameID]number{}, number{-1, -1}
	caller = -1
	for i, p := range open {
		n := count[p.Caller]
		n.all++
		if left[i] {
			n.left++
		}
		count[p.Caller] = n
		if n.left > best.left || n.left == best.left && n.all > best.all {
			caller, best = p.Caller, n
		}
	}
	if caller < 0 {
		return -1, 0, nil
	}
	return caller, best.left, ids
}

// firstsOf returns when the calls from a line began.
func firstsOf(calls []steps.Part, caller traces.FrameID) (out []timeline.Moment) {
	for _, p := range calls {
		if p.Caller == caller {
			out = append(out, p.First)
		}
	}
	return out
}

// line names the line that the calls come from.
func (o *openCalls) line() string { return o.frameText(o.ownLine(o.call)) }

// bytes returns the bytes that the calls left, in words.
func (o *openCalls) bytes() string { return o.u.Bytes(o.bytesOf(o.ids)) }

// begun returns a fault with what all kinds share.
func (o *openCalls) begun(kind string) fault {
	return fault{Cause: Cause{Kind: kind, Bytes: maybe.Known(o.bytesOf(o.ids)), Text: fmt.Sprintf(
		"%s of %s of the model at %s are still there, and no backward came in between",
		o.bytes(), callsWord(o.count), o.line())}}
}

// all returns everything that the calls left.
func (o *openCalls) all() []timeline.AllocID { return slices.Concat(o.others, o.ids) }

// noGrad is the remedy of calls that need no graph. Earlier calls from the line, before the last training,
// may have left graphs as well, which no backward freed.
func (o *openCalls) noGrad() remedy {
	changes := append(nextCall(o.evidence, o.others), ungraphed(o.evidence, o.parts)...)
	for i := range o.evidence.parts[:len(o.evidence.parts)-len(o.parts)] {
		p := &o.evidence.parts[i]
		if p.Phase == traces.PhaseForward && p.Caller == o.caller && !o.backwardFrees(p) {
			changes = append(changes, ungraphedUntil(o.evidence, *p, o.evidence.parts[i+1].First)...)
		}
	}
	return remedy{name: "no_grad", command: at("with torch.no_grad():", o.line()), changes: changes}
}
