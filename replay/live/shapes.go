package live

import (
	"context"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// Batches of varying shapes. A budget must hold for the largest step, and the two described steps are seldom
// the largest. Hooks can report what any step saves at no cost, so after the descriptions some more steps are
// watched, and the plan is made for the largest sizes seen. It stays on in a step that is larger still,
// because which tensor leaves, and when, does not depend on sizes; further tensors leave in such a step
// (spill.go). The process then reports the new sizes, and the plan is made again for them. The two described
// steps may be alike by chance; then no further step is watched, but larger ones are reported all the same.
//
// Rejected: describing steps until one is as large as the largest watched (with lengths drawn at random that
// takes as many steps again); a smaller budget to allow for unknown larger steps (nobody knows by how much,
// and all other steps would pay for it).

// watchedSteps is how many steps are watched for their sizes if these vary; describing is told after every
// watchedAtOnce. Where that many take longer than [Options.Patience], fewer are watched, but at least
// watchedLeast.
const (
	watchedSteps, watchedAtOnce = 40, 10
	watchedLeast                = 4
)

// toWatch returns how many steps to watch if a step takes so many nanoseconds.
func (o *Options) toWatch(each int64) int {
	return int(min(max(int64(o.Patience)/max(each, 1), watchedLeast), watchedSteps))
}

// sized returns the problem of the largest of the described steps and of some more, which it watches. It
// tells describing how many it has watched. each is the time of a described step, in nanoseconds.
func (t *Target) sized(ctx context.Context, p *plan.Problem, described int, each int64,
	describing func(News)) (*plan.Problem, error) {
	watched, watch, next := 0, watchedSteps, watchedAtOnce
	// if describing slowed the steps, more are watched once that is known
	if n := t.opt.toWatch(each); n < next {
		watch, next = n, watchedLeast
	}
	if !t.opt.NeverWithout { // otherwise there is no memory for a plan that keeps everything
		words, err := watching(p)
		if err != nil {
			return nil, err
		}
		number, err := t.tryOut(ctx, words)
		if err != nil {
			return nil, err
		}
		for watched < watch && err == nil {
			describing(News{Stage: Describing, Watched: watched, Watch: watch})
			var steps []Step
			steps, err = t.carrier.Steps(ctx, number, next)
			watched += len(steps)
			if usual, _ := spread(steps); usual > 0 {
				watch = t.opt.toWatch(usual)
			}
			next = min(watchedAtOnce, watch-watched)
		}
		t.takeOff(ctx, &err)
		if err != nil {
			return nil, err
		}
		sizes, _ := t.carrier.Larger(number)
		switch {
		case len(p.Varied) > 0:
			p, err = withRoom(p, sizes)
		case sizes != nil:
			p, err = grown(p, &plan.Plan{}, sizes)
		}
		if err != nil {
			return nil, err
		}
	}
	what, leave := "the batches have other shapes", "further tensors leave"
	if len(p.Varied) > 0 {
		what, leave = "steps run different ops", "the same tensors leave"
	}
	p.Notes = append(p.Notes, fmt.Sprintf("%s: planned for the largest of %d steps; where a step is larger "+
		"still %s, and the plan is made again for it", what, described+watched, leave))
	return p, nil
}

// watching returns a plan that keeps everything, under which the process reports larger steps.
func watching(p *plan.Problem) ([]byte, error) {
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		return nil, err
	}
	pl.Executor = plan.TorchEager
	return encodeFor(p, pl, Any, true)
}

// grown returns the problem of a step under a plan that saves tensors of these sizes, in the order of saving.
// If steps run different ops, sizes is what the step keeps, as [limits] returns it.
func grown(p *plan.Problem, pl *plan.Plan, sizes []int64) (*plan.Problem, error) {
	if len(p.Varied) > 0 {
		known, err := limits(p, pl)
		if err != nil {
			return nil, err
		}
		return roomier(p, exceeds(sizes, known))
	}
	e := encoder{p: p}
	if err := e.number(); err != nil {
		return nil, err
	}
	if len(sizes) != len(e.saves) {
		return nil, fmt.Errorf("%w: %s", ErrUneven, say.SavesOther.Text(len(sizes), len(e.saves)))
	}
	known := map[plan.BufferID]int64{}
	for k, b := range e.saved() {
		if b != plan.NoBuffer {
			known[b] = max(known[b], sizes[k])
		}
	}
	return plan.Resized(p, known)
}

// larger is a plan that is carried out in a training of varying shapes, and what has been reported of larger
// steps.
type larger struct {
	t      *Target
	p      *plan.Problem
	made   Made
	number int64
	steps  int64 // larger ones reported under this plan
}

// heard checks whether steps were larger than planned for, reports that in the news, and plans again if so.
// It reports whether another plan is carried out now.
func (l *larger) heard(ctx context.Context, n *News) (again bool, err error) {
	sizes, steps := l.t.carrier.Larger(l.number)
	if steps <= l.steps || sizes == nil {
		return false, nil
	}
	n.Larger += steps - l.steps
	l.steps = steps
	q, err := grown(l.p, l.made.Plan, sizes)
	if err != nil {
		return false, err
	}
	held, err := heldBy(l.p, q, l.made.Plan)
	if err != nil {
		return false, err
	}
	if l.made.Budget > 0 {
		n.Above = max(n.Above, held-l.made.Budget)
	}
	if l.t.opt.Again == nil {
		return false, l.broke(held)
	}
	made, err := l.t.opt.Again(ctx, q)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err == nil {
		err = fitsAll(q, made.Plan, false, made.Budget)
	}
	if n.Refused = ""; err != nil {
		n.Refused = err.Error()
		return false, l.broke(max(held, n.Peak))
	}
	words, err := l.t.encode(ctx, q, made.Plan)
	if err != nil {
		return false, err
	}
	if l.number, err = l.t.carry(ctx, words, l.t.opt.Stays); err != nil {
		return false, err
	}
	l.p, l.made, l.steps = q, made, 0
	n.Added, n.PredictedStep = made.Added, 0
	if n.Before > 0 {
		n.PredictedStep = n.Before + made.Added
	}
	n.PeakBefore, _ = q.PeakLive()
	n.Predicted, _ = made.PeakLive()
	return true, nil
}

// broke returns an [*Above] if a larger step, for which there is no plan, holds more than the budget.
func (l *larger) broke(held int64) error {
	if l.made.Budget <= 0 || held <= l.made.Budget {
		return nil
	}
	return &Above{Takes: held, Budget: l.made.Budget, Larger: true}
}

// heldBy returns what a plan for p holds at the peak of a larger step q with the same ops, in bytes.
func heldBy(p, q *plan.Problem, of *plan.Plan) (int64, error) {
	more, err := spilled(p, q, of)
	if err != nil {
		return 0, err
	}
	if q, err = of.Of(q); err != nil {
		return 0, err
	}
	pl, err := plan.Assemble(q, plan.Decisions{Absences: append(slices.Clone(of.Absences), more...),
		Reruns: of.Reruns})
	if err != nil {
		return 0, err
	}
	held, _ := pl.PeakLive()
	return held, nil
}

// passed returns the bytes that larger steps than planned for would hold under a plan.
func passed(p *plan.Problem, pl *plan.Plan, sizes []int64) (int64, error) {
	q, err := grown(p, pl, sizes)
	if err != nil {
		return 0, err
	}
	return heldBy(p, q, pl)
}

// LargerSteps says how many steps were larger than planned for, to follow a sentence; "" for none.
func (n *News) LargerSteps(u timeline.Units) string {
	if n.Larger == 0 {
		return ""
	}
	s := "; " + say.PlanLarger.Text(counted(n.Larger))
	if n.Above > 0 {
		s += ", " + say.PlanOverBudget.Text(u.Bytes(n.Above))
	}
	if n.Refused != "" {
		return s + "; " + say.PlanUnplanned.Text(n.Refused)
	}
	return s + "; " + say.PlanReplanned.Text()
}

func counted(n int64) string {
	if n == 1 {
		return "1 step was"
	}
	return fmt.Sprintf("%d steps were", n)
}
