package managers_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

const mib = 1 << 20

// on is what a training says of a plan that is on.
var on = live.News{
	Stage: live.On, Steps: 120, Before: 1_500e6, Step: 1_511e6, P95: 1_600e6, PredictedStep: 1_505e6,
	PeakBefore: 140 * mib, Peak: 106 * mib, Predicted: 106 * mib,
	Out: 12 * mib, In: 12 * mib, Again: 21e6,
}

// Who looks inside a plan can train with it from there, and then sees how that goes.
func TestThePlanThatIsLookedIntoIsToggled(t *testing.T) {
	r := watch(t)
	r.press("enter")
	if !r.v.Inside() || !slices.ContainsFunc(r.v.Bindings(r.State), func(b key.Binding) bool {
		return slices.Contains(b.Keys(), "T")
	}) {
		t.Fatalf("inside %v, keys %v", r.v.Inside(), r.v.Bindings(r.State))
	}
	r.press("T")
	r.tell(live.News{Stage: live.Describing})
	r.until("live: ours · 1 of 5")
	if asked := r.f.Trained(); r.v.Inside() || len(asked) != 1 || asked[0].Manager != "ours" {
		t.Errorf("inside %v, the training was asked %v", r.v.Inside(), asked)
	}
}

func TestAPlanIsToggledInTheTrainingAndSaysWhatItDoes(t *testing.T) {
	r := watch(t)
	r.press("T")
	r.until("waiting for a step to end")
	for _, c := range []struct {
		n    live.News
		text string
	}{
		{live.News{Stage: live.Describing},
			"live: ours · 1 of 5, recording steps op by op, which slows them"},
		{live.News{Stage: live.Planning}, "live: ours · 2 of 5, planning; the training runs as usual"},
		{live.News{Stage: live.MeasuringWithout}, "3 of 5, timing steps without the plan"},
		{live.News{Stage: live.MeasuringWith}, "4 of 5, timing steps with the plan"},
		{live.News{Stage: live.MeasuringPeak, Step: 1_511e6},
			"5 of 5, measuring the peak of a step with the plan"},
		{on, "live: ours on for 120 steps · 140 → 106 MiB (predicted 106) · step 1.50 → 1.51 s, " +
			"+0.7 % (predicted +0.3 %)"},
	} {
		r.tell(c.n)
		r.until(c.text)
	}
	asked := r.f.Trained()
	if len(asked) != 1 || asked[0] != (plannertest.Trained{Manager: "ours", Budget: r.v.Budget(),
		Hardware: "Fast link"}) {
		t.Errorf("the training was asked %v", asked)
	}
	if !slices.ContainsFunc(r.said, func(m tea.Msg) bool {
		w, ok := m.(leaf.WindowMsg)
		return ok && w.Window == r.State.Window
	}) {
		t.Errorf("the step that is shown is not held: %v", r.said)
	}
	if text := r.Mono(120, 36); strings.Count(text, "●▶") != 1 || !strings.Contains(text, "●▶  1 ours") {
		t.Errorf("the row is not marked, or others are:\n%s", text)
	}
	if status := r.v.Status(r.State); !strings.Contains(status,
		"the last steps took 1.51 s, 95 of 100 within 1.60 s, 12.0 MiB out and 12.0 MiB in with each, "+
			"21.0 ms of ops run again") {
		t.Errorf("the status is %q", status)
	}
	if text, _ := r.v.Copy(r.State); !strings.Contains(text, "\nlive: ours on for 120 steps") {
		t.Errorf("what is copied is %q", text)
	}
	r.untilHeadline("the fastest is ours: 106 MiB measured in the training (predicted 106 MiB), step +0.7 %")
	r.Golden("live-on")
	slow := on
	slow.Steps, slow.Step, slow.Missed = 140, 3_000e6, 2
	r.tell(slow)
	r.until("on for 140 steps · 140 → 106 MiB (predicted 106) · step 1.50 → 1.51 s, +0.7 % (predicted +0.3 " +
		"%) · now 3.00 s · 2 tensors stayed against the plan")
	same := on
	same.Checked = 56
	r.tell(same)
	r.until("step 1.50 → 1.51 s, +0.7 % (predicted +0.3 %) · bit-identical")
	if status := r.v.Status(r.State); !strings.Contains(status,
		"; 56 tensors compared after coming back, all bit-identical") {
		t.Errorf("the status is %q", status)
	}
	same.Differ = 1
	r.tell(same)
	r.until("· 1 tensor not bit-identical")
	larger := on
	larger.Larger, larger.Above = 3, 5<<20
	r.tell(larger)
	r.until("(predicted +0.3 %) · 3 larger steps")
	if status := r.v.Status(r.State); !strings.Contains(status, "; 3 steps were larger than any before, "+
		"up to 5.00 MiB over budget; the plan now covers them") {
		t.Errorf("the status is %q", status)
	}
	r.tell(on)
	r.until("on for 120 steps")
	r.press("T")
	r.until("live: ours off again after 120 steps · 140 → 106 MiB")
	if asked := r.f.Trained(); len(asked) != 1 || !asked[0].Over {
		t.Errorf("T again leaves the training with the plan: %v", asked)
	}
	if text := r.Mono(120, 36); strings.Contains(text, "▶") {
		t.Errorf("the row is marked though nothing is live:\n%s", text)
	}
	r.Golden("live-off")
}

// A plan that made steps longer must not stand below a sentence that promises that it costs nothing.
func TestWhatWasMeasuredStandsWhereThePredictionStood(t *testing.T) {
	r := watch(t)
	r.press("T")
	slow := on
	slow.Step = 2_070e6
	r.tell(live.News{Stage: live.MeasuringWith})
	r.tell(slow)
	r.until("+38.0 %")
	r.untilHeadline("the fastest measured is ours: 106 MiB measured in the training (predicted 106 MiB), " +
		"step +38.0 %")
	r.untilHeadline("Predicted to be faster, but not measured: re-run, with 1.25 GiB, step +12.2 %.")
	row := func() string {
		for line := range strings.Lines(r.Mono(120, 36)) {
			if strings.Contains(line, "●▶") {
				return line
			}
		}
		return ""
	}
	if text := row(); !strings.Contains(text, "0.10 GiB") || !strings.Contains(text, "+38.0 %") {
		t.Errorf("the row says %q", text)
	}
	r.press("+") // another budget, for which nothing was measured
	r.untilHeadline("the fastest is predicted to be ours: ")
	if text := r.v.Headline(r.State); strings.Contains(text, "measured") {
		t.Errorf("the sentence is %q", text)
	}
	if text := row(); strings.Contains(text, "+38.0 %") {
		t.Errorf("under another budget the row says %q", text)
	}
}

// The captured step took 296 ms in the simulation, and the training takes 1.50 s a step.
func TestRowsTakeAsLongAsTheTrainingDoes(t *testing.T) {
	r := watch(t)
	line := func(name string) string {
		for text := range strings.Lines(r.Mono(120, 36)) {
			if strings.Contains(text, " "+name+" ") && strings.Contains(text, "GiB") {
				return text
			}
		}
		return ""
	}
	if text := line("caching"); !strings.Contains(text, "296 ms") {
		t.Fatalf("before anything is timed the row is %q", text)
	}
	r.State.Step, r.State.StepTime = "step 3", 600e6 // as Live shows
	if text := line("caching"); !strings.Contains(text, "600 ms") {
		t.Errorf("beside steps of 600 ms the row is %q", text)
	}
	if text := line("swap-late"); !strings.Contains(text, "731 ms") || !strings.Contains(text, "+21.9 %") {
		t.Errorf("beside steps of 600 ms the row is %q", text)
	}
	if status := r.v.Status(r.State); !strings.Contains(status, "the captured step would take 306 ms, a "+
		"usual one 621 ms") {
		t.Errorf("the status is %q", status)
	}
	r.press("T")
	r.tell(on)
	r.until("ours on")
	for name, want := range map[string]string{"caching": "1.50 s", "ours": "1.51 s", "swap-late": "1.83 s"} {
		if text := line(name); !strings.Contains(text, want) {
			t.Errorf("after the trial the row of %s is %q, without %s", name, text, want)
		}
	}
	if text := r.Mono(120, 36); !strings.Contains(text, "ours, as predicted") ||
		!strings.Contains(text, "ours: measured peak") {
		t.Errorf("the chart does not tell the measurement from the prediction:\n%s", text)
	}
}

func TestAPlanIsStaleOnceTheJobHasChanged(t *testing.T) {
	r := watch(t)
	measured := "106 MiB measured in the training"
	r.press("T")
	r.tell(on)
	r.untilHeadline(measured)
	r.tell(live.News{Stage: live.Describing}) // its steps changed, and it plans again
	r.until("again because the steps changed")
	r.untilHeadline("is predicted to be ")
	if text := r.v.Headline(r.State); !strings.Contains(text, "The training's steps have changed since this "+
		"one was captured") {
		t.Errorf("while it plans again the sentence is %q", text)
	}
	see := func(tl *timeline.Timeline) {
		r.State.Timelines, r.State.Timeline, r.State.Device = []*timeline.Timeline{tl}, tl, tl.Main()
		r.Send(leaf.ChangedMsg{})
	}
	r = watch(t)
	see(watchedStep(t, 1))
	r.press("T")
	r.tell(on)
	r.until("ours on")
	see(watchedStep(t, 1)) // captured again, and nothing has changed
	if text := r.v.Live(r.State); strings.Contains(text, "changed") {
		t.Errorf("beside a newer step that is alike the line is %q", text)
	}
	larger := watchedStep(t, 1)
	r.f.Double = larger.Main()
	see(larger)
	if text := r.v.Live(r.State); !strings.HasSuffix(text, "measured before the job changed") {
		t.Errorf("beside a larger step the line is %q", text)
	}
	r.untilHeadline("is predicted to be ")
}

func TestOfSeveralRanksEachSaysWhetherItIsOn(t *testing.T) {
	r := watch(t)
	r.press("T")
	one, two := on, on
	two.Peak, two.PeakBefore, two.Step = 112*mib, 139*mib, 1_580e6
	refused := live.Rank{Name: "rank 2", News: live.News{Stage: live.Describing},
		Err: errors.New("torch.compile is in use")}
	dead := live.Rank{Name: "rank 3", News: on, Err: errors.New("the training ended: killed"), Gone: true}
	r.tell(live.Together([]live.Rank{{Name: "rank 0", News: one}, {Name: "rank 1", News: two}, refused,
		dead}))
	r.until("live: ours on in 2 of 4 ranks for 120 steps · rank 1 139 → 112 MiB (predicted 106) · step " +
		"1.50 → 1.58 s, +5.3 % (predicted +0.3 %)")
	text := r.Mono(120, 44)
	for _, want := range []string{"rank 0 on, 106 MiB instead of 140 MiB, step 1.51 s",
		"rank 1 on, 112 MiB instead of 139 MiB, step 1.58 s", "rank 2 off: torch.compile is in use",
		"rank 3 has ended"} {
		if !strings.Contains(text, want) || !strings.Contains(r.v.Status(r.State), want) {
			t.Errorf("%q is not said of its rank:\n%s\n%s", want, text, r.v.Status(r.State))
		}
	}
	r.Golden("live-ranks")
	many := []live.Rank{{Name: "rank 0", News: one}}
	for i := 1; i < 64; i++ {
		many = append(many, live.Rank{Name: fmt.Sprintf("rank %d", i), News: two})
	}
	r.tell(live.Together(many))
	r.until("on in 64 of 64 ranks")
	if text := r.Mono(120, 44); !strings.Contains(text, "and 57 more") ||
		strings.Contains(text, "rank 7 on") {
		t.Errorf("64 ranks are\n%s", text)
	}
	if text := r.Mono(80, 24); strings.Contains(text, "rank 3 on") ||
		!strings.Contains(text, "on in 64 of 64 ranks") {
		t.Errorf("where there is no room they are\n%s", text)
	}
}

func TestAPlanOfSomebodyElseIsSeenAndTakenAway(t *testing.T) {
	r := watch(t)
	r.f.Other = "joint has been on for 40 steps: 106 MiB instead of 140 MiB"
	if text := r.Mono(160, 36); !strings.Contains(text,
		"live: joint has been on for 40 steps: 106 MiB instead of 140 MiB · not "+
			"turned on here: T turns it off") {
		t.Errorf("it is not seen:\n%s", text)
	}
	r.f.Taken = errors.New("no step has ended since")
	r.press("T")
	if !r.toast("no step has ended since") || len(r.f.Trained()) > 0 {
		t.Errorf("said is %v, and asked %v", r.said, r.f.Trained())
	}
	r.f.Taken = nil
	r.press("T")
	if !r.toast("the plan is removed") || r.v.Live(r.State) != "" || len(r.f.Trained()) > 0 {
		t.Errorf("said is %v, the line %q, asked %v", r.said, r.v.Live(r.State), r.f.Trained())
	}
	r.press("T")
	r.tell(on)
	r.until("ours on for 120 steps")
	r.f.Other = "never seen beside a plan of one's own"
	if strings.Contains(r.Mono(120, 36), r.f.Other) {
		t.Error("it is seen beside a plan of one's own")
	}
}

func TestAPlanOnAnotherRowTakesThePlaceOfTheLiveOne(t *testing.T) {
	r := watch(t)
	r.press("T")
	r.tell(on)
	r.until("ours on")
	r.press("up") // it trains already: there is nothing to switch to
	r.press("T")
	if asked := r.f.Trained(); len(asked) != 1 ||
		!r.toast("caching makes no plan that a training can use") ||
		!strings.Contains(r.v.Live(r.State), "ours on") {
		t.Errorf("the training was asked %v, and said is %v", asked, r.said)
	}
	r.press("down")
	r.press("down")
	other := r.v.Chosen()
	r.press("T")
	r.tell(live.News{Stage: live.Planning})
	r.until("live: " + other + " · 2 of 5, planning")
	asked := r.f.Trained()
	if len(asked) != 2 || !asked[0].Over || asked[1].Manager != other || asked[1].Over {
		t.Errorf("the training was asked %v", asked)
	}
	r.press("esc")
	r.until(other + " was stopped before it was on")
}

func TestEscTakesBackAPlanThatIsNotOnYetAndNoOther(t *testing.T) {
	r := watch(t)
	keys := func() string {
		var list []string
		for _, b := range r.v.Bindings(r.State) {
			list = append(list, b.Help().Key+" "+b.Help().Desc)
		}
		return strings.Join(list, ", ")
	}
	if !strings.Contains(keys(), "T train with it") {
		t.Errorf("the keys are %s", keys())
	}
	r.press("T")
	r.tell(on)
	r.until("ours on")
	if k := keys(); !strings.Contains(k, "T train without it") || strings.Contains(k, "esc") {
		t.Errorf("the keys are %s", k)
	}
	r.press("esc")
	if !strings.Contains(r.v.Live(r.State), "ours on") {
		t.Error("esc takes a plan away that is on")
	}
	r.press("T")
	r.until("off again")
	r.press("T")
	r.tell(live.News{Stage: live.MeasuringWithout})
	r.until("3 of 5")
	if !strings.HasPrefix(keys(), "esc cancel") {
		t.Errorf("the keys are %s", keys())
	}
	r.press("esc")
	r.until("ours was stopped before it was on")
}

func TestWhereNoTrainingIsWatchedNoPlanIsLive(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	for _, b := range v.Bindings(sc.State) {
		if b.Help().Key == "T" {
			t.Error("T is offered")
		}
	}
	sc.Press("T")
	if toast, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok ||
		!strings.Contains(toast.Text, "gmemtop attach PID") {
		t.Errorf("T sends %v", sc.Sent)
	}
	sc.Press("C")
	for _, msg := range sc.Sent {
		if pick, ok := msg.(leaf.PickMsg); ok {
			if c := pick.Choices[len(pick.Choices)-1]; strings.TrimSpace(c.Title) != "live" || !c.Off ||
				!strings.Contains(c.Detail, "gmemtop attach PID") {
				t.Errorf("the last target is %v", c)
			}
		}
	}
	if text := v.Live(sc.State); text != "" {
		t.Errorf("the line is %q", text)
	}
}

// watchedStep is a step of the training that is watched, of some size.
func watchedStep(t *testing.T, scale int64) *timeline.Timeline {
	return viewtest.Training{Iterations: 2, Scale: scale, Rank: -1}.Timeline(t)
}

func TestWhatIsPlannedForIsAStepThatRanWithoutAPlan(t *testing.T) {
	r := watch(t)
	plain, under := watchedStep(t, 1), watchedStep(t, 2)
	see := func(tl *timeline.Timeline) {
		r.State.Timelines, r.State.Timeline, r.State.Device = []*timeline.Timeline{tl}, tl, tl.Main()
		r.Send(leaf.ChangedMsg{})
	}
	see(plain)
	r.Press("b")
	r.Send(must(r.Sent[0].(leaf.AskMsg).Answer("1GiB")))
	if r.v.Budget() != 1<<30 {
		t.Fatalf("the budget is %d", r.v.Budget())
	}
	r.State.UnderPlan, r.State.Basis, r.State.BasisName = true, plain, "step 190"
	see(under)
	if d := r.f.Planned(); d != plain.Main() {
		t.Error("it plans for the step that a plan was carried out in")
	}
	if text := r.v.Headline(r.State); !strings.HasSuffix(text,
		"Planned for step 190, which ran without a plan; the step in view ran under one.") {
		t.Errorf("the sentence is %q", text)
	}
	r.Golden("live-under-a-plan")
	r.State.UnderPlan, r.State.Basis = false, nil
	newer := watchedStep(t, 1)
	r.Press("up")
	chosen := r.v.Chosen()
	see(newer)
	if r.v.Chosen() != chosen {
		t.Errorf("with the next step the cursor goes from %s to %s", chosen, r.v.Chosen())
	}
	if d := r.f.Planned(); d != newer.Main() {
		t.Error("it does not plan for a newer step that ran without a plan")
	}
	if r.v.Budget() != 1<<30 {
		t.Errorf("with the next step the budget is %d", r.v.Budget())
	}
	r.State.UnderPlan = true
	if ok, why := r.v.Available(r.State); ok || !strings.Contains(why, "press r in Live to capture a step") {
		t.Errorf("without a step to plan for it is available: %v, %q", ok, why)
	}
	r.State.UnderPlan = false
	see(viewtest.Training{Iterations: 2, Rank: 3}.Timeline(t))
	if r.v.Budget() == 1<<30 {
		t.Error("another rank takes the budget over")
	}
}

func must(msg tea.Msg, err error) tea.Msg {
	if err != nil {
		panic(err)
	}
	return msg
}

func TestATrainingMeasuresWhatIsOnWithPlansOfItsOwn(t *testing.T) {
	f := &plannertest.Planner{Watched: "process 4242: python gpt2.py"}
	sc, v := show(t, f)
	sc.Press("-", "-", "-", "C")
	choose(t, sc, "live")
	sc.Press("x")
	sc.Golden("live-measured")
	if text := v.Headline(sc.State); !strings.Contains(text,
		"900 MiB measured in the training (predicted 890 MiB), step +2.1 % (predicted +2.0 %)") {
		t.Errorf("the sentence is %q", text)
	}
	failed := 0
	for range len(v.Order()) {
		switch status := v.Status(sc.State); {
		case strings.Contains(status, "can be carried out by eager PyTorch"):
			failed++
		case strings.HasPrefix(status, "ours") &&
			!strings.Contains(status, "live: 900 MiB (+1.1 %), step 102 ms, overhead +2.1 % beside 100 ms "+
				"of keeping everything, simulated +2.0 %"):
			t.Errorf("the status is %q", status)
		case strings.HasPrefix(status, "caching") && strings.Contains(status, "live"):
			t.Errorf("what moves nothing is measured: %q", status)
		}
		sc.Press("down")
	}
	if failed != 1 {
		t.Errorf("%d rows say that they failed, want 1", failed)
	}
}
