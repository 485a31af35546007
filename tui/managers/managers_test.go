package managers_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func show(t *testing.T, f *plannertest.Planner) (*viewtest.Screen, *managers.View) {
	t.Helper()
	v := managers.New(f)
	v.After = viewtest.AtOnce
	sc := viewtest.Open(t, v, viewtest.Training{Iterations: 3, Layers: 4}.Timeline(t))
	return sc, v
}

func TestGoldens(t *testing.T) {
	for name, c := range map[string]struct {
		f    *plannertest.Planner
		keys []string
	}{
		"planned":   {},
		"lifetimes": {f: &plannertest.Planner{Kind: traces.Lifetimes}},
		"no-clock":  {f: &plannertest.Planner{NoClock: true}},
		"tight":     {keys: []string{"-", "-", "-", "-", "-"}},
		"too-small": {keys: []string{"-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-",
			"-"}},
		"some-off":       {keys: []string{"g", "space", "down", "down", "space"}},
		"by-step":        {keys: []string{"s", "s", "s"}},
		"trade-off":      {keys: []string{"-", "-", "v"}},
		"inside":         {keys: []string{"enter"}},
		"inside-swap":    {keys: []string{"g", "down", "down", "enter", "n", "down", "+"}},
		"inside-caching": {keys: []string{"g", "enter"}},
		"no-plan": {f: &plannertest.Planner{Refusal: &plan.Unavailable{Manager: "planning",
			Reason: traces.Point.Missing()}}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.f == nil {
				c.f = &plannertest.Planner{}
			}
			sc, _ := show(t, c.f)
			sc.Press(c.keys...)
			sc.Golden(name)
		})
	}
	t.Run("inside-two", func(t *testing.T) {
		sc, _ := show(t, &plannertest.Planner{})
		sc.Press("d")
		choose(t, sc, "packed")
		sc.Golden("inside-two")
	})
}

// choose sends the choice of a title in the list that the view opened last.
func choose(t *testing.T, sc *viewtest.Screen, title string) {
	t.Helper()
	for _, msg := range sc.Sent {
		pick, ok := msg.(leaf.PickMsg)
		if !ok {
			continue
		}
		for _, c := range pick.Choices {
			if strings.TrimSpace(strings.TrimPrefix(c.Title, "•")) == title {
				if c.Off {
					t.Fatalf("%q cannot be chosen: %s", title, c.Detail)
				}
				sc.Send(c.Msg)
				return
			}
		}
	}
	t.Fatalf("there is no %q to choose in %v", title, sc.Sent)
}

func TestTheSentenceSaysForHowManyRanksItIs(t *testing.T) {
	for ranks, want := range map[int]bool{1: false, 3: true} {
		sc, v := show(t, &plannertest.Planner{Together: ranks})
		text := v.Headline(sc.State)
		if strings.HasSuffix(text, " These figures are for the 3 ranks that captured this step: plans are "+
			"made for rank 2, which holds most, and rows show the memory of the fullest rank and the step "+
			"time of the slowest.") != want ||
			strings.Contains(text, "captured this step") != want {
			t.Errorf("for %d the sentence is %q", ranks, text)
		}
	}
}

func TestPlanningStartsByItselfAndTheSentenceNamesTheFastestThatFits(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	asked, _ := f.Asked()
	if len(asked) != 1 || len(asked[0].Names) != 5 || asked[0].Budget != v.Budget() {
		t.Fatalf("it was asked %v", asked)
	}
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "To fit in ") ||
		!strings.Contains(text, "the fastest is ours") {
		t.Errorf("the sentence is %q", text)
	}
	if v.Chosen() != "ours" {
		t.Errorf("%s is selected", v.Chosen())
	}
}

func TestSwitchingAManagerOnPlansWithItAlone(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	i := slices.Index(v.Order(), "direct")
	sc.Press("g")
	for range i {
		sc.Press("down")
	}
	sc.Press("space")
	asked, _ := f.Asked()
	if last := asked[len(asked)-1]; len(asked) != 2 || !slices.Equal(last.Names, []string{"direct"}) {
		t.Fatalf("switching direct on asks %v", asked)
	}
	sc.Press("space", "space")
	if again, _ := f.Asked(); len(again) != 2 {
		t.Error("switching it off and on again plans again")
	}
	if v.Chosen() != "direct" {
		t.Errorf("the row went where its result belongs and the selection is on %s", v.Chosen())
	}
}

func TestAManagerThatIsOffIsNoPartOfTheAnswer(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Press("space")
	if text := v.Headline(sc.State); strings.Contains(text, "ours") {
		t.Errorf("with ours off the sentence is %q", text)
	}
	sc.ClickOn(120, 36, "●")
	if strings.Contains(sc.Text(120, 36), "● c caching") {
		t.Error("a click on the switch does not switch off")
	}
}

func TestAllSwitchesAllOnAndBackToTheFirstSet(t *testing.T) {
	sc, _ := show(t, &plannertest.Planner{})
	first := sc.Text(120, 36)
	sc.Press("A")
	if text := sc.Text(120, 36); strings.Contains(text, "○") || !strings.Contains(text, "no plan was found") {
		t.Errorf("not all are on, or the one that fails does not say why:\n%s", text)
	}
	sc.Press("A")
	if strings.Count(sc.Text(120, 36), "●") != strings.Count(first, "●") {
		t.Error("A again does not go back")
	}
}

func TestABudgetThatWasAnsweredIsThereAtOnce(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	before, text := v.Budget(), v.Headline(sc.State)
	sc.Press("left")
	if v.Budget() >= before {
		t.Fatalf("left moves the budget from %d to %d", before, v.Budget())
	}
	sc.Press("right")
	if v.Budget() != before || v.Headline(sc.State) != text {
		t.Errorf("right does not take left back: %d and %d", before, v.Budget())
	}
	if asked, _ := f.Asked(); len(asked) != 2 {
		t.Errorf("it was asked %d times for two budgets", len(asked))
	}
}

func TestBudgetStepsAreWholePercents(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	p, _ := (&plannertest.Planner{}).Problem(t.Context(), nil, plan.Hardware{})
	held := p.Held()
	sc.Press("-")
	if got := 100 * float64(v.Budget()) / float64(held); got < 64.99 || got > 65.01 {
		t.Errorf("one step of five from 70 %% is %.2f %%", got)
	}
	sc.Press("left")
	if got := 100 * float64(v.Budget()) / float64(held); got < 63.99 || got > 64.01 {
		t.Errorf("then one of one is %.2f %%", got)
	}
}

func TestTypedBudgets(t *testing.T) {
	for text, want := range map[string]int64{"50%": 500, "12GiB": 12 << 30, "none": 0, "": 0, "12.5 %": 125} {
		if got, err := managers.ParseBudget(text, 1000); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-3%", "much", "2000%", "0GiB", "NaN%", "%"} {
		if got, err := managers.ParseBudget(text, 1000); err == nil {
			t.Errorf("%q is taken as %d", text, got)
		}
	}
	sc, v := show(t, &plannertest.Planner{})
	sc.Press("b")
	ask, ok := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg)
	if !ok || ask.Text != "70%" {
		t.Fatalf("b sends %v", sc.Sent)
	}
	msg, err := ask.Answer("1GiB")
	if err != nil {
		t.Fatal(err)
	}
	if sc.Send(msg); v.Budget() != 1<<30 {
		t.Errorf("the budget is %d", v.Budget())
	}
}

func TestNothingMovesBelowTheSentenceWhileTheBudgetDoes(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Text(80, 20)
	at := v.Slider()
	// a shorter sentence: not possible
	sc.Press("-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-")
	sc.Text(80, 20)
	if now := v.Slider(); now.Y != at.Y {
		t.Errorf("the slider moves from row %d to row %d", at.Y, now.Y)
	}
}

func TestTheTableOpensWithTodayAndThenWhatFitsFastestFirst(t *testing.T) {
	_, v := show(t, &plannertest.Planner{})
	if got, want := v.Order(), []string{"caching", "ours", "re-run", "swap-late", "packed", "direct",
		"broken"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

func TestSortingRoundThroughAllColumnsLeadsBackToTheOrderOfWorth(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Text(120, 36)
	want := v.Order()
	for range 20 {
		sc.Press("s")
		sc.Text(120, 36)
		if slices.Equal(v.Order(), want) && !strings.ContainsAny(sc.Text(120, 36), "▼▲") {
			return
		}
	}
	t.Error("it does not come back")
}

func TestTheSelectionStaysInSightWhenTheTableShrinks(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Text(120, 36)
	sc.Press("G")
	sc.Text(120, 36)
	if text := sc.Text(80, 16); !strings.Contains(text, v.Chosen()) {
		t.Errorf("%s is selected and out of sight:\n%s", v.Chosen(), text)
	}
}

func TestDraggingTheSliderMovesTheBudget(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Text(120, 36)
	at := v.Slider()
	sc.Hold(at.X+at.W/2, at.Y)
	half := v.Budget()
	sc.Send(tea.MouseMotionMsg{X: at.X + at.W*3/4, Y: at.Y - 3, Button: tea.MouseLeft})
	if v.Budget() <= half {
		t.Errorf("dragging right moves the budget from %d to %d", half, v.Budget())
	}
	now := v.Budget()
	sc.Send(tea.MouseReleaseMsg{X: at.X, Y: at.Y})
	sc.Send(tea.MouseMotionMsg{X: at.X, Y: at.Y, Button: tea.MouseLeft})
	if v.Budget() != now {
		t.Error("the slider follows the mouse after it was let go")
	}
}

func TestABudgetBelowWhatMustResideIsNotPossibleAndSaysWhy(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Press("-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-")
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "Not possible: ") ||
		!strings.Contains(text, "need") {
		t.Errorf("the sentence is %q", text)
	}
	sc.Press("+", "+", "+", "+", "+", "+", "+", "+")
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "To fit") {
		t.Errorf("from there back it is %q", text)
	}
}

func TestChangingTheHardwareReplansAndKeepsTheBudget(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	budget := v.Budget()
	sc.Press("H")
	choose(t, sc, "Slow link")
	asked, _ := f.Asked()
	if len(asked) != 2 || v.Budget() != budget {
		t.Errorf("it was asked %d times, the budget is %d of %d", len(asked), v.Budget(), budget)
	}
	sc.Press("H")
	choose(t, sc, "Fast link")
}

func TestAClickOnALetterSelectsItsManager(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Text(140, 40)
	x, y, ok := v.Spot("re-run")
	if !ok {
		t.Fatal("re-run is not in the trade-off")
	}
	sc.Click(x, y)
	if v.Chosen() != "re-run" {
		t.Errorf("%s is selected", v.Chosen())
	}
}

func TestAColumnSortsAndUnknownsComeLast(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.ClickOn(120, 36, "overhead")
	order := v.Order()
	if order[0] != "swap-late" || slices.Index(order, "direct") < 5 {
		t.Errorf("by overhead, largest first: %v", order)
	}
}

func TestThePlanIsWrittenAsAFileThatReadsBack(t *testing.T) {
	f := &plannertest.Planner{}
	sc, _ := show(t, f)
	sc.Press("W")
	save, ok := sc.Sent[len(sc.Sent)-1].(leaf.SaveMsg)
	if !ok || save.Suffix != ".ours.plan.json" {
		t.Fatalf("o sends %v", sc.Sent)
	}
	var b bytes.Buffer
	if err := save.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	p, _ := f.Problem(t.Context(), nil, f.Hardware()[0])
	pl, err := plan.ReadJSON(&b, p)
	if err != nil || len(pl.Absences) == 0 {
		t.Errorf("it reads back as %v, %v", pl, err)
	}
}

func TestInsideOnesWayIsFoundBack(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	before := sc.Text(120, 36)
	sc.Press("enter")
	if !v.Inside() {
		t.Fatal("enter does not look inside")
	}
	at := v.Status(sc.State)
	sc.Press("right", "right", "right", ".", "+", "-", "z", "p", "n", "down", "up", "tab", "h", "l")
	sc.Send(tea.MouseWheelMsg{X: 60, Y: 10, Button: tea.MouseWheelUp})
	sc.Click(50, 12)
	if v.Status(sc.State) == at {
		t.Error("nothing moves")
	}
	sc.Press("esc")
	if v.Inside() || sc.Text(120, 36) != before {
		t.Error("esc does not lead back to where one was")
	}
}

func TestARecordingWithoutEventsIsNotAvailable(t *testing.T) {
	for name, v := range map[string]leaf.View{"no planner": managers.New(nil),
		"no device": managers.New(&plannertest.Planner{})} {
		if ok, why := v.Available(&leaf.State{}); ok || why == "" {
			t.Errorf("%s: it is available", name)
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	v := managers.New(&plannertest.Planner{})
	v.After = viewtest.AtOnce
	sc := viewtest.Screen{View: v, State: viewtest.State(viewtest.Training{Iterations: 3,
		Layers: 4}.Timeline(b))}
	sc.Send(leaf.ChangedMsg{})
	c := canvas.New(200, 56, canvas.TrueColor, false)
	for _, what := range []string{"table", "inside"} {
		b.Run(what, func(b *testing.B) {
			v.Draw(sc.State, c)
			sc.Send(leaf.ChangedMsg{})
			b.ReportAllocs()
			for b.Loop() {
				c.Clear()
				v.Draw(sc.State, c)
				if len(c.String()) == 0 {
					b.Fatal("nothing was drawn")
				}
			}
		})
		sc.Press("enter")
	}
}

func TestWhereNothingFitsTheLeastThatTheSentenceNamesIsSelected(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Press("b")
	msg, err := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg).Answer("400MiB")
	if err != nil {
		t.Fatal(err)
	}
	sc.Send(msg)
	text := v.Headline(sc.State)
	if !strings.HasPrefix(text, "Nothing fits in 400 MiB: the smallest plan needs") ||
		!strings.Contains(text, ", with "+v.Chosen()) || v.Chosen() == "caching" {
		t.Errorf("%s is selected, and the sentence is %q", v.Chosen(), text)
	}
}

func TestTheBudgetThatOpensLeavesRoomAboveWhatCannotLeave(t *testing.T) {
	for _, c := range []struct{ held, floor, want int64 }{{1000, 300, 700}, {1000, 570, 785},
		{1000, 0, 700}} {
		if got := managers.FirstBudget(c.held, c.floor); got != c.want {
			t.Errorf("of %d, %d of which stay: %d, want %d", c.held, c.floor, got, c.want)
		}
	}
}

func TestTheRowsAboveTheBestStayInSightUntilOneScrolls(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	sc.Mono(120, 10) // room for few rows
	for i, budget := range []string{"400MiB", "1850MiB", "1GiB", "none", "1300MiB"} {
		sc.Press("b")
		msg, err := sc.Sent[len(sc.Sent)-1].(leaf.AskMsg).Answer(budget)
		if err != nil {
			t.Fatal(err)
		}
		sc.Send(msg)
		sc.Mono(120, 10+i%2)
		if text := sc.Mono(120, 10+i%2); slices.Index(v.Order(), v.Chosen()) < 3 &&
			!strings.Contains(text, "• caching") {
			t.Errorf("with %s today's allocator is not in sight:\n%s", budget, text)
		}
	}
}

// In the smallest terminal managers have the rows that are too few for a chart.
func TestRowsThatHoldNoChartAreManagers(t *testing.T) {
	sc, _ := show(t, &plannertest.Planner{})
	lines := strings.Split(sc.Text(60, 13), "\n")
	for y, line := range lines[:13] {
		if strings.TrimSpace(line) == "" && y < 11 { // there are no more managers for the last one
			t.Errorf("row %d is blank:\n%s", y, strings.Join(lines, "\n"))
		}
	}
}
