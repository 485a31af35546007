package autopsy

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A step that the loop left without a backward: a batch without targets, or a loss that is NaN. What
// the step returned keeps its graph until the next step has replaced it, so that two graphs exist at once.
// The pattern: in most earlier steps one call of the model from this line came before the backward; since the
// last backward two came, and the first left a graph. Look-alikes: several micro-batches for one backward,
// which every step has; a loop whose phases train and validate in turn, in which the layers of the validation
// behave differently.

// skipped finds a step without a backward among calls of a line that is trained.
func (o *openCalls) skipped() (fault, bool) {
	var calls []int // of the line, by their number among all parts
	from := len(o.evidence.parts) - len(o.parts)
	for i := range o.parts {
		if o.parts[i].Caller == o.caller {
			calls = append(calls, from+i)
		}
	}
	if len(calls) != 2 || !o.graphs[calls[0]] || !o.oneCallEach() || o.evaluating(o.call) {
		return fault{}, false
	}
	if o.validates(&o.evidence.parts[calls[0]]) {
		o.left = leftGraph(o.evidence, o.parts)
		o.others = o.beside(o.parts[0].First, o.parts[len(o.parts)-1].First)
		return o.evaluation(), true
	}
	step, next := o.evidence.parts[calls[0]].First, o.evidence.parts[calls[1]].First
	var ids []timeline.AllocID
	for _, id := range o.ids {
		if o.d.Allocs.Start[id] >= step && o.d.Allocs.Start[id] < next {
			ids = append(ids, id)
		}
	}
	ids = append(ids, o.beside(step, next)...)
	bytes, line := o.bytesOf(ids), o.line()
	f := fault{Cause: Cause{Kind: "outputs_held", Bytes: maybe.Known(bytes), Text: fmt.Sprintf(
		"%s of the previous step is still there: no backward followed its call of the model at %s",
		o.u.Bytes(bytes), line)}}
	f.said = fmt.Sprintf("The previous step had no backward, so the graph of its call of the model at %s is "+
		"still there while this step runs: %s.", line, o.u.Bytes(bytes))
	f.fix = "Where the loop skips the backward, delete what the step returned: del loss, outputs."
	f.sure(Likely, "in earlier steps a backward followed each call from this line; a validation that is "+
		"called there would look the same")
	f.lever = remedy{name: "del_outputs", command: at("del loss, outputs", line),
		changes: endingAt(o.evidence, ids, func(timeline.AllocID) timeline.Moment { return next })}
	f.elseFix = "if that step was a validation, wrap it in torch.no_grad()"
	f.instead = o.noGrad()
	return f, true
}

// validates reports whether layers ran in evaluation mode in a call, and in training mode in a call from the
// same line that a backward followed.
func (o *openCalls) validates(call *steps.Part) bool {
	if modeOf(o.evidence, call, anyStack) != modeEvaluation {
		return false
	}
	for i := range o.evidence.parts {
		p := &o.evidence.parts[i]
		if p.Phase == traces.PhaseForward && p.Caller == o.caller && o.backwardFrees(p) {
			return modeUntil(o.evidence, p, anyStack, p.End) == modeTraining
		}
	}
	return false
}

// oneCallEach reports whether most steps before the one under way had a backward after exactly one call from
// the line, and there are enough of them to call it a habit.
func (o *openCalls) oneCallEach() bool {
	all := o.rounds()
	one, several := 0, 0
	for _, r := range all[:len(all)-1] {
		if r.backward == timeline.Never {
			continue
		}
		switch n := callsIn(o.evidence.parts[r.from:r.to], o.caller); {
		case n == 1:
			one++
		case n > 1:
			several++
		}
	}
	return one >= leastHeldRounds && one > several
}
