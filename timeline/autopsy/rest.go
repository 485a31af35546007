package autopsy

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
)

// What follows a failed request is not recorded, so a lever with which the request would have been served may
// save less than it does up to that point: the rest of the step may need more than the run did before. Two
// things bound the rest. The process may have got past this point before: then the step needs what earlier
// ones did, unless it needs more already. Or what it does is new, such as the first evaluation after some
// steps of training: then what the call holds so far, with the lever, is compared with what the run needed
// before. In a training's first step too much is still to come: gradients, the optimizer's state.
//
// Only levers that take blocks away as a whole are judged. How far a smaller batch or a chunk goes is the
// user's choice, and what works on a part of one function's input leaves the rest of the call as large as
// it was.

const (
	// restTimes is how many times what a new call holds so far, with the lever, the rest may need besides.
	restTimes = 2
	// restShare is the share of a saving that the rest may cost for the saving to hold.
	restShare = 0.1
	// restSlack is the share by which a step may already need more than earlier ones did.
	restSlack = 0.02
)

// wholeLevers are the levers that take blocks away as a whole, and the one that leaves a small part of what
// does not fit.
var wholeLevers = []string{
	"no_grad", "detach_metric", "drop_references", "move_outputs_to_cpu", "drop_copy", "map_location_cpu",
	"copy_to_cpu", "remove_hook", "drop_exception", "load_each_batch", "del_outputs", "set_to_none",
	"freeze_gradients_off", "offload_unused", "offload_optimizer", "drop_create_graph", "drop_retain_graph",
	"backward_each_micro_batch", partLever,
}

// partLever works on a part of the input at a time. A call that went through before had a smaller input, so
// it says nothing about the rest.
const partLever = "smaller_input"

// holds reports whether what a lever saves up to the failed request is, within restShare, what it saves.
func (c *evidence) holds(l *Lever) bool {
	saves := l.Saves.Or(0)
	if saves <= 0 || l.atFailure == 0 || l.Unsure || len(c.parts) == 0 ||
		!slices.Contains(wholeLevers, l.Name) {
		return false
	}
	now := c.total + c.a.Asked.Or(0) - l.atFailure // allocated with the lever once the request is served
	if beenHere(c) {
		return l.Name != partLever && float64(now) <= (1+restSlack)*float64(l.before)
	}
	last := &c.parts[len(c.parts)-1]
	stepped := slices.ContainsFunc(c.parts[:len(c.parts)-1], func(p steps.Part) bool {
		return p.Phase == traces.PhaseOptimizer
	})
	if last.Phase != traces.PhaseForward || !stepped && purpose(c, last) != modeEvaluation {
		return false
	}
	start := max(last.First-1, timeline.Start)
	call := now - (c.d.Allocated.At(start) - bytesAt(l.Effect.Changes, start))
	more := now + restTimes*max(call, 0) - max(l.before, l.remains)
	return float64(more) <= restShare*float64(saves)
}

// beenHere reports whether the process got past this point before: it finished a part like the one under way,
// which is a call of the model from the same line, a backward or an optimizer's step. It did not if such
// parts allocate more often each time, as a backward does that goes through all graphs before it.
func beenHere(c *evidence) bool {
	last := &c.parts[len(c.parts)-1]
	var lengths []int
	for _, p := range c.parts[:len(c.parts)-1] {
		if p.Phase == last.Phase && p.Caller == last.Caller {
			first, end := c.d.AllocsIn(p.First, p.End)
			lengths = append(lengths, int(end-first))
		}
	}
	longer := len(lengths) > 1
	for i := 1; i < len(lengths); i++ {
		longer = longer && lengths[i] > lengths[i-1]
	}
	return len(lengths) > 0 && !longer
}
