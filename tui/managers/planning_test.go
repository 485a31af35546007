package managers_test

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// begun shows the view with planning held up, and brings the first news.
func begun(t *testing.T) (*plannertest.Planner, *managers.View, *leaf.State, func() tea.Msg) {
	t.Helper()
	f := &plannertest.Planner{Hold: make(chan struct{})}
	v := managers.New(f)
	v.After = viewtest.AtOnce
	s := viewtest.State(viewtest.Training{Iterations: 3, Layers: 4}.Timeline(t))
	setup := v.Update(s, leaf.ChangedMsg{})
	news := deliver(v, s, setup)
	if !v.Running() || len(news) != 1 {
		t.Fatalf("planning is not under way: %d commands", len(news))
	}
	return f, v, s, news[0]
}

// deliver runs the commands of one update and hands their messages over; it returns the commands that follow.
func deliver(v *managers.View, s *leaf.State, cmd tea.Cmd) []func() tea.Msg {
	var next []func() tea.Msg
	for _, c := range flat(cmd) {
		for _, n := range flat(v.Update(s, c())) {
			next = append(next, n)
		}
	}
	return next
}

// flat expands batches without running the commands in them, as far as possible: a batch is a command that
// returns commands.
func flat(cmd tea.Cmd) []tea.Cmd {
	if cmd == nil {
		return nil
	}
	probe := make(chan tea.Msg, 1)
	go func() { probe <- cmd() }()
	select {
	case msg := <-probe:
		if msg == nil {
			return nil
		}
		if batch, ok := viewtest.Commands(msg); ok {
			var list []tea.Cmd
			for _, c := range batch {
				list = append(list, flat(c)...)
			}
			return list
		}
		return []tea.Cmd{func() tea.Msg { return msg }}
	case <-time.After(500 * time.Millisecond): // it waits for something: it is no batch, which is there at once, however busy the machine
		return []tea.Cmd{func() tea.Msg { return <-probe }}
	}
}

func TestResultsAppearAsTheyCome(t *testing.T) {
	f, v, s, news := begun(t)
	f.Hold <- struct{}{}
	msg := news()
	for _, c := range flat(v.Update(s, msg)) {
		_ = c
	}
	c := canvas.New(120, 36, canvas.TrueColor, false)
	v.Draw(s, c)
	if text := v.Headline(s); !strings.Contains(text, "of 5 managers planned for") {
		t.Errorf("the sentence is %q", text)
	}
	close(f.Hold)
}

func TestStoppingKeepsWhatIsThereAndSaysHowToGoOn(t *testing.T) {
	f, v, s, _ := begun(t)
	v.Update(s, viewtest.Key("esc"))
	if v.Running() {
		t.Fatal("esc does not stop planning")
	}
	if text := v.Headline(s); !strings.HasPrefix(text, "Stopped with 0 of 5") ||
		!strings.Contains(text, "R resumes") {
		t.Errorf("the sentence is %q", text)
	}
	waitFor(t, func() bool { _, n := f.Asked(); return n == 1 })
	close(f.Hold)
	cmd := v.Update(s, viewtest.Key("R"))
	if !v.Running() || cmd == nil {
		t.Error("r does not go on")
	}
}

// What a manager has found by the time planning is stopped stays on the screen, marked as such, until it has
// been asked again.
func TestStoppingKeepsTheBestPlanSoFar(t *testing.T) {
	f := &plannertest.Planner{Hold: make(chan struct{}), HasPlan: true}
	v := managers.New(f)
	v.After = viewtest.AtOnce
	sc := &viewtest.Screen{T: t, View: v,
		State: viewtest.State(viewtest.Training{Iterations: 3, Layers: 4}.Timeline(t))}
	r := &rig{Screen: sc, t: t, v: v, f: f}
	r.run(v.Update(sc.State, leaf.ChangedMsg{}))
	for end := time.Now().Add(3 * time.Minute); !v.Running() && time.Now().Before(end); {
		r.turn()
	}
	f.Hold <- struct{}{} // the first manager is done
	r.untilHeadline("1 of 5 managers planned")
	waitFor(t, func() bool { return f.Begun() == 2 }) // the second has a plan when it is stopped
	r.press("esc")
	r.untilHeadline("Stopped early: ")
	if text := v.Headline(sc.State); !strings.HasPrefix(text, "Stopped with 1 of 5 managers planned") ||
		!strings.Contains(text, "R resumes") || !strings.Contains(text, " gives its best plan so far") {
		t.Errorf("the sentence is %q", text)
	}
	for _, size := range [][2]int{{80, 20}, {120, 36}, {200, 56}} {
		if text := sc.Text(size[0], size[1]); strings.Count(text, ", stopped early") == 0 {
			t.Errorf("at %v the row does not say that it was stopped early:\n%s", size, text)
		}
	}
	close(f.Hold)
	r.press("R")
	r.untilHeadline("To fit in ")
	if text := v.Headline(sc.State) + sc.Text(120, 36); strings.Contains(text, "topped early") {
		t.Errorf("planned to the end, it still says that it was stopped:\n%s", text)
	}
}

func TestWhatAStaleRunSaysIsDropped(t *testing.T) {
	f, v, s, news := begun(t)
	old := v.Budget()
	v.Update(s, viewtest.Key("-")) // asks again: the first run is cancelled
	if v.Budget() == old {
		t.Fatal("the budget stays")
	}
	close(f.Hold)
	v.Update(s, news()) // the old run's last news
	if text := v.Headline(s); strings.Contains(text, "fastest") {
		t.Errorf("an answer to another budget is shown: %q", text)
	}
	waitFor(t, func() bool { _, n := f.Asked(); return n >= 1 })
}

func waitFor(t *testing.T, what func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); {
		if what() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it does not come to pass")
}

func TestWhileTheBudgetMovesNothingIsPlanned(t *testing.T) {
	f := &plannertest.Planner{}
	v := managers.New(f)
	v.After = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil } // the budget never rests
	s := viewtest.State(viewtest.Training{Iterations: 3, Layers: 4}.Timeline(t))
	sc := &viewtest.Screen{T: t, View: v, State: s}
	sc.Send(leaf.ChangedMsg{})
	before, _ := f.Asked()
	for range 10 {
		v.Update(s, viewtest.Key("left"))
	}
	if after, _ := f.Asked(); len(after) != len(before) || !v.Moving() {
		t.Errorf("ten steps of the budget ask %d questions", len(after)-len(before))
	}
	if text := v.Headline(s); !strings.Contains(text, "planning starts when you stop changing it") {
		t.Errorf("meanwhile it says %q", text)
	}
}

func TestDrawingPlansNothing(t *testing.T) {
	f := &plannertest.Planner{}
	sc, v := show(t, f)
	asked, _ := f.Asked()
	for _, keys := range [][]string{nil, {"v"}, {"enter"}, {"esc"}} {
		sc.Press(keys...)
		first := sc.Text(120, 36)
		for range 20 {
			if sc.Text(120, 36) != first {
				t.Fatal("drawing twice gives two frames")
			}
			v.Status(sc.State)
			v.Bindings(sc.State)
		}
	}
	if now, _ := f.Asked(); len(now) != len(asked) {
		t.Errorf("drawing asked %d questions", len(now)-len(asked))
	}
}

func TestAnswersAreForgottenAfterAWhile(t *testing.T) {
	sc, v := show(t, &plannertest.Planner{})
	for range managers.Kept + 10 {
		sc.Press("right")
	}
	if n := v.Answers(); n > managers.Kept {
		t.Errorf("the answers to %d questions are kept", n)
	}
}
