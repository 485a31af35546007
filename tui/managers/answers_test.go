package managers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
)

// plans answers at once: every manager fits into a MiB, the first under both executors.
type plans struct {
	Planner
	asked [][]string
	fail  error
}

func (f *plans) Compare(
	_ context.Context, p *plan.Problem, names []string, budget int64, update func(replay.Progress),
) (*replay.Comparison, error) {
	f.asked = append(f.asked, names)
	if f.fail != nil {
		return nil, f.fail
	}
	for i, name := range names {
		r := replay.Result{Info: plan.Info{Name: name}, Plan: &plan.Plan{}, Available: true, Fits: true}
		r.Measurement = plan.Measurement{Footprint: 1 << 20, StepTime: 1e6}
		list := []replay.Result{r}
		if r.Executor = plan.TorchEager; i == 0 {
			r.Measurement.StepTime = 2e6
			list = append(list, r)
		}
		update(replay.Progress{Manager: name, Doing: "plan"})
		update(replay.Progress{Manager: name, Done: true, Results: list})
	}
	return &replay.Comparison{Net: budget, Baseline: 7}, nil
}

var all = newRoster([]Manager{{Info: plan.Info{Name: "caching"}}, {Info: plan.Info{Name: "ours"}}})

// answer has p plan to its end.
func answer(t *testing.T, p *planning, q question, names ...string) {
	t.Helper()
	for cmd := p.start(q, names); cmd != nil; {
		next, ok := p.take(cmd())
		if !ok {
			t.Fatal("news of a run is not taken")
		}
		cmd = next
	}
}

func TestPlanningAsksForWhatHasNoAnswerYet(t *testing.T) {
	f := &plans{}
	p := newPlanning(f)
	st := &setup{p: plantest.Chain(4, 1<<20, 1e6)}
	q, other := question{st, 1 << 20}, question{st, 2 << 20}
	answer(t, &p, q, "caching", "ours")
	answer(t, &p, q, "caching", "ours", "packed")
	answer(t, &p, other, "caching")
	answer(t, &p, q, "caching", "ours")
	want := [][]string{{"caching", "ours"}, {"packed"}, {"caching"}}
	if !slices.EqualFunc(f.asked, want, slices.Equal[[]string]) {
		t.Errorf("it asked %v, want %v", f.asked, want)
	}
	if r := p.resultOf(q, all, rowKey{0, plan.TorchEager}); r == nil || r.Measurement.StepTime != 2e6 {
		t.Errorf("caching came to %v", r)
	}
	if p.resultOf(other, all, rowKey{1, plan.Ideal}) != nil || p.answersTo(q).baseline != 7 {
		t.Error("an answer stands beside a question that it does not answer, or the whole says nothing")
	}
	for _, e := range []plan.Executor{plan.Ideal, plan.TorchEager} {
		if trail := p.trails[trailKey{st, "caching", e}]; len(trail) != 1 { // the same under both budgets
			t.Errorf("under %v it went through %v", e, trail)
		}
	}
	p.again(q)
	ours := rowKey{1, plan.Ideal}
	if p.resultOf(q, all, ours) != nil || p.resultOf(other, all, rowKey{0, plan.Ideal}) == nil {
		t.Error("planning again forgets another question, or keeps its own")
	}
	if p.keep(&setup{}); len(p.answers)+len(p.trails) != 0 {
		t.Error("what is about another problem is kept")
	}
}

func TestPlanningDropsWhatAStoppedRunSays(t *testing.T) {
	p := newPlanning(&plans{})
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 1 << 20}
	cmd := p.start(q, []string{"ours"})
	if p.start(q, []string{"ours"}) != nil {
		t.Error("it plans twice")
	}
	old := p.run
	p.halt()
	p.halt() // not even the best so far is waited for
	p.take(cmd())
	if p.resultOf(q, all, rowKey{1, plan.Ideal}) != nil || p.start(q, []string{"ours"}) != nil {
		t.Error("stopped, it goes on")
	}
	got := p.answer(timeline.IEC, q, []string{"ours"}, false)
	if !strings.HasPrefix(got, "Stopped with 0 of 1") {
		t.Errorf("it says %q", got)
	}
	p.again(q)
	next := p.start(q, []string{"ours"})
	<-old.finished
	if p.take(old.news()); p.run == nil {
		t.Error("what the old run says ends the new one")
	}
	for next != nil {
		next, _ = p.take(next())
	}
	if p.resultOf(q, all, rowKey{1, plan.Ideal}) == nil {
		t.Error("it does not go on when asked to")
	}
}

func TestPlanningThatFailsIsNotTriedAgain(t *testing.T) {
	f := &plans{fail: errors.New("nothing can be planned")}
	p := newPlanning(f)
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 1 << 20}
	answer(t, &p, q, "ours")
	answer(t, &p, q, "ours")
	if err := p.answersTo(q).err; len(f.asked) != 1 || !errors.Is(err, f.fail) {
		t.Errorf("asked %d times, the error is %v", len(f.asked), err)
	}
}

func TestPlanningAsksForASentenceOnceForTheSameAnswers(t *testing.T) {
	p := newPlanning(&plans{})
	q := question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 1 << 20}
	on := newRoster([]Manager{{Info: plan.Info{Name: "caching"}}, {Info: plan.Info{Name: "ours"}}})
	on.toggleAll()
	if p.ask(q, on, nil, nil, false, timeline.IEC) != nil {
		t.Error("it asks about nothing")
	}
	answer(t, &p, q, "caching", "ours")
	for i, c := range []struct {
		change func()
		asks   bool
	}{
		{func() {}, true}, {func() {}, false},
		{func() { on[0].on = false }, true}, {func() { p.version++ }, true},
	} {
		c.change()
		cmd := p.ask(q, on, nil, nil, false, timeline.IEC)
		if (cmd != nil) != c.asks {
			t.Errorf("%d: asks is %v, want %v", i, cmd != nil, c.asks)
		}
		if cmd != nil && !p.sentence.Take(cmd()) {
			t.Errorf("%d: the sentence is not taken", i)
		}
	}
}

func TestASentenceGoesOnAfterAColon(t *testing.T) {
	for whole, want := range map[string]string{
		"At no cost in step time, exact saves more.":    "at no cost in step time, exact saves more.",
		"To fit in 2 GiB, the fastest is joint: 1 GiB.": "to fit in 2 GiB, the fastest is joint: 1 GiB.",
		"PyTorch's caching allocator fits as it is.":    "PyTorch's caching allocator fits as it is.",
		"": "",
	} {
		if got := goesOn(whole); got != want {
			t.Errorf("%q goes on as %q", whole, got)
		}
	}
}
