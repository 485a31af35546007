package autopsy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A network in a loss that compares two inputs: the features of what was produced and of the target. Only the
// first needs a gradient that goes through it. The pattern: a module that the training calls after its
// network calls another one from two of its lines, and both calls keep a graph. Look-alike: a pair of outputs
// that both come from the network. The recording does not show which of the two is data, so this is a lever
// with an "if", and a cause only if the network is in evaluation mode, so that nobody trains it; the saving
// is that of the first call.

// innerCall is what a line of a module that the training calls made through the module that the line calls.
type innerCall struct {
	line       traces.FrameID
	fn, file   string
	ids        []timeline.AllocID
	made, kept int64
	inside     map[string]bool // the ways from there to what allocated
	stacks     map[traces.StackID]bool
}

// innerCalls returns what the lines of a module's own code called in one of its calls, and how much of that
// existed when the call ended.
func innerCalls(c *evidence, call *steps.Part) (out []*innerCall) {
	a, until := &c.d.Allocs, min(call.End, c.a.At)
	of := map[traces.StackID]*innerCall{}
	first, end := c.d.AllocsIn(call.First, until)
	for id := first; id < end; id++ {
		s := a.Stack[id]
		x, known := of[s]
		if !known {
			if line, inside := callWithin(c, s, call.Caller); line >= 0 {
				k := slices.IndexFunc(out, func(o *innerCall) bool { return o.line == line })
				if k < 0 {
					fn, file, _ := c.places.FrameText(line)
					out = append(out, &innerCall{line: line, fn: fn, file: file, inside: map[string]bool{},
						stacks: map[traces.StackID]bool{}})
					k = len(out) - 1
				}
				x = out[k]
				x.inside[inside], x.stacks[s] = true, true
			}
			of[s] = x
		}
		if x == nil {
			continue
		}
		x.made += a.Rounded[id]
		if a.Requested[id] >= until {
			x.ids, x.kept = append(x.ids, id), x.kept+a.Rounded[id]
		}
	}
	return out
}

// callWithin returns the line at which the outermost module of a stack calls another one, and the frames from
// there inward; -1 if it does not.
func callWithin(c *evidence, s traces.StackID, outermost traces.FrameID) (line traces.FrameID,
	inside string,
) {
	if s < 0 || !c.inModel(s) {
		return -1, ""
	}
	at := c.places.Stacks.At(s)
	end := slices.Index(at, outermost)
	line = -1
	var way strings.Builder
	cut := 0
	for i := range max(end, 0) {
		if c.ofUser(at[i]) && i > 0 && c.kinds.Frames[at[i-1]].Has(frames.KindModuleCall) {
			line, cut = at[i], way.Len() // the outermost such line wins
		}
		way.WriteString(strconv.Itoa(int(at[i])) + " ")
	}
	return line, way.String()[:cut]
}

// compared is a network in a loss that two of its lines call, each keeping a graph.
type compared struct {
	first, second *innerCall
	call          *steps.Part // of the loss
}

// comparedCalls finds such a network in the step under way.
func comparedCalls(c *evidence) (compared, bool) {
	all := c.rounds()
	if len(all) == 0 {
		return compared{}, false
	}
	open := c.parts[all[len(all)-1].from:all[len(all)-1].to]
	for len(open) > 0 && open[len(open)-1].Phase != traces.PhaseForward {
		open = open[:len(open)-1] // its backward is under way
	}
	if behindNetwork(c, open) == timeline.Never {
		return compared{}, false
	}
	call := &open[len(open)-1]
	calls := innerCalls(c, call)
	for i, x := range calls {
		for _, y := range calls[i+1:] {
			if x.fn == y.fn && x.file == y.file && sameWays(x.inside, y.inside) &&
				len(x.ids) >= graphBlocks && float64(x.kept) >= keptByCall*float64(x.made) &&
				float64(y.kept) >= keptByCall*float64(y.made) {
				return compared{x, y, call}, true
			}
		}
	}
	return compared{}, false
}

// comparedLever is offered where two calls of one network in a loss both keep a graph.
func comparedLever(c *leverCase, of *evidence) (Lever, bool) {
	x, ok := comparedCalls(of)
	if !ok {
		return Lever{}, false
	}
	n, ok := c.saves(untilNext(of, x.first.ids))
	line, other := of.frameText(x.first.line), of.frameText(x.second.line)
	l := Lever{
		Name: "no_grad", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n),
		Command: at("with torch.no_grad():", line),
		Text: fmt.Sprintf("if one of the inputs that the same network gets at %s and at %s is data, "+
			"call it for that one under torch.no_grad(): the first call keeps %s for a backward",
			line, other, of.u.Bytes(x.first.kept)),
	}
	l.Effect.Changes = c.tried
	return l, ok
}

// comparedFault is the cause if the network is in evaluation mode and nothing else is found.
func comparedFault(c *evidence) (fault, bool) {
	x, ok := comparedCalls(c)
	within := func(s traces.StackID) bool { return x.first.stacks[s] || x.second.stacks[s] }
	if !ok || modeOf(c, x.call, within) != modeEvaluation {
		return fault{}, false
	}
	line, other := c.frameText(x.first.line), c.frameText(x.second.line)
	f := fault{Cause: Cause{Kind: "frozen_gradients", Bytes: maybe.Known(x.first.kept), Text: fmt.Sprintf(
		"the network that the loss calls at %s and at %s is in evaluation mode, and the first call keeps %s",
		line, other, c.u.Bytes(x.first.kept))}}
	f.said = fmt.Sprintf("At %s and %s the loss calls a network that is not trained, and both calls keep "+
		"a graph; the first keeps %s.", line, other, c.u.Bytes(x.first.kept))
	f.fix = "Call it under torch.no_grad() for the input that is data, and turn the gradients of its " +
		"weights off: network.requires_grad_(False)."
	f.sure(Possible, "its batch norms use the statistics of their buffers, as in evaluation mode; a pair of "+
		"outputs of the trained network would look the same")
	f.lever = remedy{name: "no_grad", command: at("with torch.no_grad():", line),
		changes: untilNext(c, x.first.ids)}
	return f, true
}

// sameWays reports whether most ways of the second of two calls, which may be under way, are the first's.
func sameWays(x, y map[string]bool) bool {
	both := 0
	for way := range y {
		if x[way] {
			both++
		}
	}
	return both >= 2 && 5*both >= 4*len(y)
}

// firstCallLever is offered if the first call of the model runs out of memory and keeps what it makes, as a
// graph does: a training too large for the device, or an inference whose author forgot no_grad. A loss, names
// that say that it trains, and layers in training mode show that it is a training. Without any of these
// nothing in the recording distinguishes them, so other levers come first.
func firstCallLever(c *leverCase, u timeline.Units) (Lever, bool) {
	if !c.a.OOM || c.d.Info.Kind != traces.DeviceGPU {
		return Lever{}, false
	}
	of := evidenceOf(c.d, c.a, u)
	if len(of.parts) == 0 || of.parts[len(of.parts)-1].Phase != traces.PhaseForward ||
		of.lastOf(traces.PhaseBackward, traces.PhaseOptimizer) >= 0 || keepsLoss(of) {
		return Lever{}, false
	}
	last := of.parts[len(of.parts)-1]
	if purpose(of, &last) == modeTraining {
		return Lever{}, false
	}
	kept, _, ok := keepsAll(of, &last)
	if !ok {
		return Lever{}, false
	}
	line := of.frameText(of.ownLine(&last))
	n, ok := c.saves(ungraphed(of, []steps.Part{last}))
	l := Lever{
		Name: "no_grad", Saves: maybe.Known(n), Exactness: timeline.Inferred, Fits: c.fits(n), Unsure: true,
		Command: at("with torch.no_grad():", line),
		Text: fmt.Sprintf("if nothing is trained here, call the model at %s under torch.no_grad(): the call "+
			"keeps %s for a backward", line, u.Bytes(kept)),
	}
	l.Effect.Changes = c.tried
	return l, ok
}
