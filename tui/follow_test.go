package tui

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
)

// jobFeed is a job whose news arrives when a test says so.
type jobFeed struct {
	look   live.Look
	orders []live.Order
}

func (f *jobFeed) Look() live.Look { return f.look }

// the test sends looks itself
func (f *jobFeed) Wait(context.Context, int64) error { return context.Canceled }
func (f *jobFeed) Order(_ context.Context, o live.Order) error {
	f.orders = append(f.orders, o)
	return nil
}

func (f *jobFeed) tell(d *driver, change func(l *live.Look)) {
	change(&f.look)
	f.look.Version++
	d.send(live.LookMsg{Feed: f, Look: f.look})
}

// captured adds a captured step.
func captured(t *testing.T, step int64) func(l *live.Look) {
	tl := training(t, "", step<<20)
	return func(l *live.Look) {
		l.State, l.Title, l.Figure = live.Running, "train.py", "peak allocated"
		l.Steps = append(l.Steps, live.Step{Index: step, Duration: maybe.Known(40e6),
			Bytes: maybe.Known(1 << 30)})
		l.Windows = append(l.Windows, live.Window{ID: step, First: step, Last: step, How: "op by op",
			Timeline: tl})
	}
}

func watch(t *testing.T) (*driver, *jobFeed) {
	f := &jobFeed{look: live.Look{Word: "for the first training step", Title: "train.py"}}
	return start(t, Options{Feed: f}, 120, 40), f
}

func (d *driver) shown() *timeline.Timeline { return d.m.state.Timeline }

func TestJobOpensInLiveAndOtherViewsSayTheyAreEmpty(t *testing.T) {
	d, f := watch(t)
	if d.m.tabs.front != leaf.Live || !d.m.loader.idle() {
		t.Fatalf("view %c in front", d.m.tabs.front)
	}
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "m"} {
		d.press(id)
		d.wants("No step of this job is captured yet")
	}
	d.press("L")
	f.tell(d, func(l *live.Look) {})
	if d.m.tabs.front != leaf.Live {
		t.Errorf("view %c in front", d.m.tabs.front)
	}
}

func TestTheNewestCapturedStepIsFollowedUntilTheUserLooksCloser(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	first := d.shown()
	if first == nil {
		t.Fatal("a captured step is not shown")
	}
	d.press("2")
	f.tell(d, captured(t, 13))
	second := d.shown()
	if second == first || d.m.tabs.front != leaf.Timeline {
		t.Fatal("the newer step does not replace the older one")
	}
	d.press("left")
	f.tell(d, captured(t, 23))
	if d.shown() != second || !d.m.follow.held {
		t.Error("the step under the user's cursor disappeared")
	}
	d.press("F")
	if d.shown() == second || d.m.follow.held {
		t.Error("F does not resume following")
	}
	newest := d.shown()
	d.press("F")
	f.tell(d, captured(t, 33))
	if d.shown() != newest {
		t.Error("F does not stop following")
	}
}

func TestAnOlderCapturedStepCanBeLookedAt(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	first := d.shown()
	f.tell(d, captured(t, 13))
	d.press("G", "enter")
	if d.shown() != first || !d.m.follow.held || d.m.tabs.front != leaf.Overview {
		t.Errorf("held %v, view %c", d.m.follow.held, d.m.tabs.front)
	}
	if text := d.screen(); !strings.Contains(text, "view paused") || !strings.Contains(text, "step 3") {
		t.Errorf("the top line does not say so:\n%s", text)
	}
}

func TestDiffComparesACapturedStepWithTheOneBefore(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	d.press("9")
	d.wants("There is no earlier captured step")
	f.tell(d, captured(t, 13))
	d.press("L", "9")
	d.wants("A step 3")
	d.wants("B step 13")
	d.press("L", "G", "enter", "9") // the first one again
	d.wants("There is no earlier captured step")
}

func TestStepUnderAPlanIsMarkedAndNotPlannedFor(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	plain := d.shown()
	f.tell(d, captured(t, 13))
	newer := d.shown()
	under := func(l *live.Look) {
		l.Steps[len(l.Steps)-1].UnderPlan = true
		l.Windows[len(l.Windows)-1].UnderPlan = true
	}
	add := captured(t, 23)
	f.tell(d, func(l *live.Look) { add(l); under(l) })
	s := &d.m.state
	if d.shown() == newer || !s.UnderPlan || s.Basis != newer || s.BasisName != "step 13" {
		t.Errorf("under a plan %v, and %q is what is planned for", s.UnderPlan, s.BasisName)
	}
	d.wants("step 23 under a plan")
	d.press("L", "G", "enter") // the first one
	if d.shown() != plain || s.UnderPlan || s.Basis != nil {
		t.Errorf("a step without a plan is marked as being under one: %v", s.UnderPlan)
	}
	d.press("F")
	if !s.UnderPlan {
		t.Error("F does not go to the newest step")
	}
	f.tell(d, func(l *live.Look) { l.Chosen = 1; l.Windows = nil })
	if s.UnderPlan || s.Basis != nil {
		t.Error("another process has the previous one's plan")
	}
}

func TestAJobThatEndsStaysOnTheScreen(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	f.tell(d, func(l *live.Look) { l.State, l.Word = live.Ended, "exit code 1" })
	if text := d.screen(); !strings.Contains(text, "ended") || !strings.Contains(text, "exit code 1") {
		t.Errorf("the end is not mentioned:\n%s", text)
	}
}

func TestScreensOfAJob(t *testing.T) {
	for _, size := range sizes {
		f := &jobFeed{look: live.Look{Word: "for the first training step", Title: "train.py"}}
		d := start(t, Options{Feed: f}, size[0], size[1])
		f.tell(d, captured(t, 3))
		d.golden("job-" + fmt.Sprintf("%dx%d", size[0], size[1]))
		d.press("1")
		d.golden("job-overview-" + fmt.Sprintf("%dx%d", size[0], size[1]))
	}
}

// node is a machine with one process to watch.
type node struct{ look machine.Look }

func (n *node) Look() machine.Look                { return n.look }
func (n *node) Wait(context.Context, int64) error { return context.Canceled }
func onNode(d *driver, l machine.Look)            { d.send(machine.LookMsg{Look: l}) }
func process(pid int, command string) machine.Process {
	return machine.Process{PID: pid, Command: command, Torch: true}
}

func TestWatchingOneProcessAndThenAnother(t *testing.T) {
	jobs, ended := map[int]*jobFeed{}, map[int]context.Context{}
	d := start(t, Options{Machine: &node{}, Attach: func(ctx context.Context, pid int) (live.Feed, error) {
		if pid == 9 {
			return nil, errors.New("pid 9 has no torch")
		}
		jobs[pid], ended[pid] = &jobFeed{look: live.Look{Word: "for the first training step"}}, ctx
		return jobs[pid], nil
	}}, 120, 40)
	onNode(d, machine.Look{Version: 1, Host: "node7", Processes: []machine.Process{process(7, "python a.py"),
		process(8, "python b.py"), process(9, "python c.py")}})
	d.wants("node7", "python a.py", "python b.py")
	for _, id := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "0", "m"} {
		d.press(id)
		d.wants("Nothing is open yet: P lists")
	}
	d.press("P")
	d.press("enter")
	if d.m.tabs.front != leaf.Live || len(jobs) != 1 {
		t.Fatalf("view %c in front, %d jobs", d.m.tabs.front, len(jobs))
	}
	var first int
	for first = range jobs {
	}
	jobs[first].tell(d, captured(t, 3))
	old := d.shown()
	if old == nil {
		t.Fatal("its captured step is not shown")
	}
	d.press("P", "down", "enter")
	if len(jobs) != 2 || ended[first].Err() == nil || d.shown() != nil {
		t.Errorf("%d jobs; detached from the first: %v; its step is still shown: %v",
			len(jobs), ended[first].Err(), d.shown() != nil)
	}
	jobs[first].tell(d, captured(t, 4))
	if d.shown() != nil {
		t.Error("news of a job that is no longer watched is shown")
	}
	d.press("P", "down", "enter")
	d.wants("pid 9 has no torch")
}

// alerted is a job with an alert.
func alerted(l *live.Look) {
	l.Alerts = append(l.Alerts, live.Alert{Kind: live.OutOfMemory, Step: 12, Size: 1})
}

func TestAlertShowsInEveryViewUntilLiveWasSeen(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	f.tell(d, alerted)
	d.press("2")
	if strings.Contains(d.screen(), "L: Live") {
		t.Errorf("an alert that was seen is repeated:\n%s", d.screen())
	}
	f.tell(d, func(l *live.Look) { l.Alerts[0].Step = 20 })
	d.wants("ran out of memory once", "L: Live")
	for range 3 { // it stays while other news come, and while it is not true any more
		f.tell(d, func(l *live.Look) { l.Alerts = nil })
		d.wants("ran out of memory once")
	}
	d.press("3")
	d.wants("ran out of memory once")
	d.click("L: Live")
	if d.m.tabs.front != leaf.Live {
		t.Fatalf("a click on the alert shows view %c", d.m.tabs.front)
	}
	d.press("2")
	if strings.Contains(d.screen(), "L: Live") {
		t.Errorf("the alert stays after it was seen:\n%s", d.screen())
	}
}

func TestAlertShowsOverAnEmptyView(t *testing.T) {
	d, f := watch(t)
	d.press("1")
	f.tell(d, alerted)
	d.wants("ran out of memory once", "L: Live")
}

func TestScreensOfAnAlert(t *testing.T) {
	for _, size := range sizes {
		f := &jobFeed{look: live.Look{Word: "for the first training step", Title: "train.py"}}
		d := start(t, Options{Feed: f}, size[0], size[1])
		f.tell(d, captured(t, 3))
		d.press("2")
		f.tell(d, alerted)
		d.golden("alert-" + fmt.Sprintf("%dx%d", size[0], size[1]))
	}
}

// ofRank makes the look one about one of two ranks, with the given captured step, or none for a
// negative one.
func ofRank(t *testing.T, rank int, step int64) func(l *live.Look) {
	one := captured(t, max(step, 0))
	return func(l *live.Look) {
		l.Steps, l.Windows = nil, nil
		one(l)
		if step < 0 {
			l.Windows = nil
		}
		l.Chosen, l.Ranks = rank, []live.Rank{{ID: 0, Rank: maybe.Known(0), PID: 7, State: live.Running},
			{ID: 1, Rank: maybe.Known(1), PID: 8, State: live.Running}}
	}
}

func TestAnotherRankIsFollowedInAllViews(t *testing.T) {
	d, f := watch(t)
	f.tell(d, ofRank(t, 0, 3))
	d.press("2", "left") // held
	first := d.shown()
	f.tell(d, ofRank(t, 0, 13))
	if d.shown() != first {
		t.Fatal("the step under the cursor disappeared")
	}
	f.tell(d, ofRank(t, 1, 23))
	if d.shown() == first || d.m.follow.held {
		t.Errorf("the step held for rank 0 is still shown: held %v", d.m.follow.held)
	}
	d.wants("rank 1 of 2")
	second := d.shown()
	f.tell(d, ofRank(t, 1, 33))
	if d.shown() == second {
		t.Error("the newest captured step of rank 1 is not followed")
	}
	f.tell(d, ofRank(t, 0, -1))
	if d.shown() != nil {
		t.Error("rank 1's step is shown as rank 0's, which has no captured step")
	}
}

func TestARankIsChosenFromAnyView(t *testing.T) {
	d, f := watch(t)
	f.tell(d, ofRank(t, 0, 3))
	d.press("2", "w")
	d.wants("Ranks of the job", "rank 1", "process 8")
	d.press("down", "enter")
	if len(f.orders) != 1 || !reflect.DeepEqual(f.orders[0], live.Order{Kind: live.Choose, Rank: 1}) ||
		d.m.tabs.front != leaf.Timeline {
		t.Errorf("orders %+v, view %c", f.orders, d.m.tabs.front)
	}
}

func TestAJobOfOneProcessHasNoRankToChoose(t *testing.T) {
	d, f := watch(t)
	f.tell(d, captured(t, 3))
	d.press("2", "w")
	if strings.Contains(d.screen(), "Ranks of the job") {
		t.Error("w offers ranks")
	}
}

// From the moment of asking to detach on, nothing says that the job is live.
func TestTheTopLineFollowsADetach(t *testing.T) {
	f := &jobFeed{look: live.Look{Title: "gpt2.py"}}
	d := start(t, Options{Feed: f}, 80, 24)
	f.tell(d, func(l *live.Look) {
		l.State, l.Capture.Connected = live.Running, true
		l.Steps = append(l.Steps, live.Step{Index: 3, Duration: maybe.Known(300e6),
			Bytes: maybe.Known(1 << 20)})
	})
	d.wants("● live")
	d.press("X", "enter")
	d.wants("○ detaching")
	f.tell(d, func(l *live.Look) {
		l.State, l.Detached, l.Word = live.Ended, true, "detached; the job is still running"
	})
	d.wants("■ detached", "still runs")
	if text := d.screen(); strings.Contains(text, "● live") || strings.Contains(text, "ended") {
		t.Errorf("after it:\n%s", text)
	}
	if title := d.m.View().WindowTitle; title != "gmemtop gpt2.py (detached)" {
		t.Errorf("the terminal's title is %q", title)
	}
}

func TestLSaysWhyAFileHasNoLiveView(t *testing.T) {
	d := start(t, Options{Loader: loaderOf(training(t, "runs/train.gmt", 0))}, 80, 24)
	d.press("L")
	d.wants("a file has no Live view: gmemtop run or attach watches a job")
}

// At 80 columns the tabs of a watched job are named too, also while nothing is captured yet.
func TestTheTabsOfAJobHaveNamesAt80Columns(t *testing.T) {
	d := start(t, Options{Feed: &jobFeed{look: live.Look{Title: "train.py"}}}, 80, 24)
	top, _, _ := strings.Cut(d.screen(), "\n")
	want := " L Live 1 Ovr 2 Time 3 Peak 4 Seg 5 Iter 6 Allo 7 Rank 8 OOM 9 Diff 0 Trc m Mgr"
	if strings.TrimRight(top, " ") != want {
		t.Errorf("the tabs are\n%s\nnot\n%s", top, want)
	}
}

// O says what it would show and why there is nothing, as long as there is nothing.
func TestWithoutOutputOSaysWhy(t *testing.T) {
	d, f := watch(t)
	says := func(want string, change func(l *live.Look)) {
		t.Helper()
		f.tell(d, change)
		d.press("O")
		d.wants(want)
	}
	elsewhere := "O shows a job's output; gmemtop did not start this one, so its output goes elsewhere"
	says(elsewhere, func(l *live.Look) {
		l.State = live.Running
		l.Steps = []live.Step{{}}
	})
	says("none has come from this job", func(l *live.Look) { l.Capture.Along = 7 })
	says("this job has printed nothing yet", func(l *live.Look) { l.Prints = true })
	says("this job printed nothing", func(l *live.Look) { l.State = live.Ended })
	says("until its first step", func(l *live.Look) { l.Output, l.Steps = []string{"epoch 0"}, nil })
	says("Output ──", func(l *live.Look) { l.Steps = []live.Step{{}} })
	f.tell(d, func(l *live.Look) { l.Capture.No = "it trains on a CPU" })
	d.press("r")
	d.wants("no step can be captured: it trains on a CPU")
}
