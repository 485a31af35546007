package managers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// told is a training that says what the test has it say, until it ends with an error or is let go of.
type told struct {
	news chan live.News
	fail chan error
	took error // what comes of taking a plan away
}

func (f *told) Training() string               { return "process 1" }
func (f *told) Elsewhere() string              { return "joint is on" }
func (f *told) TakeAway(context.Context) error { return f.took }

func (f *told) Train(ctx context.Context, _ string, _ int64, _ plan.Hardware, tell func(live.News)) error {
	for {
		select {
		case n := <-f.news:
			tell(n)
		case err := <-f.fail:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// trained gives a training the next news of its trial, and returns the training's messages to others.
func trained(t *testing.T, tr *training, cmd *tea.Cmd) tea.Msg {
	t.Helper()
	next, ok := tr.take((*cmd)())
	if !ok {
		t.Fatal("what the trial says is not taken")
	}
	*cmd = next
	if next != nil && tr.trial.ended {
		return next()
	}
	return nil
}

func TestATrainingGoesThroughATrial(t *testing.T) {
	f := &told{news: make(chan live.News, 1), fail: make(chan error, 1)}
	tr := training{with: f}
	line := func() string { return tr.text(timeline.IEC, question{budget: 2 << 20}) }
	if got := line(); got != "live: joint is on · not turned on here: T turns it off" || tr.plain() {
		t.Errorf("at first the line is %q, without a plan: %v", got, tr.plain())
	}
	cmd := tr.begin(3, "ours", question{budget: 1 << 20}, plan.Hardware{})
	if tr.beginning() == nil || line() != "live: ours for 1.00 MiB · waiting for a step to end" {
		t.Errorf("begun, the line is %q", line())
	}
	r := &row{manager: 3, stands: true}
	for _, c := range []struct {
		n    live.News
		line string
		mark string
	}{
		{live.News{Stage: live.Planning}, "2 of 5, planning; the training runs as usual", "▸"},
		{
			live.News{Stage: live.On, Steps: 4, Before: 100e6, Step: 110e6},
			"ours for 1.00 MiB on for 4 steps · peak not measured · step 100 → 110 ms, +10.0 %", "▶",
		},
		{
			live.News{Stage: live.Describing},
			"1 of 5, recording steps op by op, which slows them, again because the steps changed", "▸",
		},
		{
			live.News{Stage: live.Planning},
			"2 of 5, planning; the training runs as usual, again because the steps changed", "▸",
		},
	} {
		f.news <- c.n
		if trained(t, &tr, &cmd); !strings.Contains(line(), c.line) || tr.mark(r) != c.mark {
			t.Errorf("the line is %q and the mark %q, want %q and %q", line(), tr.mark(r), c.line, c.mark)
		}
	}
	other := &row{manager: 2, stands: true}
	if tr.mark(other) != "" || tr.status(timeline.IEC, other) != "" {
		t.Error("another row is marked")
	}
	f.fail <- errors.New("ours: the training ended")
	for !tr.trial.ended {
		toast, _ := trained(t, &tr, &cmd).(leaf.ToastMsg)
		if tr.trial.ended && toast.Text != "ours: the training ended" {
			t.Errorf("said is %q", toast.Text)
		}
	}
	if line(); tr.now() != nil || !strings.HasSuffix(tr.status(timeline.IEC, r), "the training ended") {
		t.Errorf("the status is %q", tr.status(timeline.IEC, r))
	}
}

func TestATrainingThatIsDetachedSaysSo(t *testing.T) {
	tr := training{with: &told{news: make(chan live.News)}}
	cmd := tr.begin(0, "ours", question{}, plan.Hardware{})
	tr.end()
	if got := tr.trial.lines(timeline.IEC, 0)[0]; got != "turning ours off" || tr.now() != nil {
		t.Errorf("meanwhile the line is %q", got)
	}
	for !tr.trial.ended {
		trained(t, &tr, &cmd)
	}
	if got := tr.trial.lines(timeline.IEC, 0)[0]; got != "ours was stopped before it was on" {
		t.Errorf("then it is %q", got)
	}
}

// At 80 columns a trial still says how far it is.
func TestANarrowLineSaysHowFarATrialIs(t *testing.T) {
	tr := trial{name: "capuchin", since: time.Now().Add(-time.Hour),
		last: live.News{Stage: live.Describing, Timed: 5, Time: 25, Usual: 2e9}}
	for _, line := range tr.lines(timeline.IEC, 0) {
		if len(line) > 80-len(" live: ") {
			continue
		}
		if !strings.HasPrefix(line, "capuchin · 1 of 5, ") || !strings.HasSuffix(line, ": 5 of 25 steps") {
			t.Errorf("%q", line)
		}
		return
	}
	t.Error("no line fits")
}

func TestAPlanOfOthersIsTakenAway(t *testing.T) {
	for _, err := range []error{nil, errors.New("no step has ended")} {
		tr := training{with: &told{took: err}}
		cmd, ok := tr.take(tr.takeAway()())
		if toast := cmd().(leaf.ToastMsg); !ok || toast.Error != (err != nil) {
			t.Errorf("with %v it says %v", err, toast)
		}
	}
	if none := (training{}); none.watched() != "" || none.elsewhere() != "" {
		t.Error("where nobody can be asked a training is watched")
	}
}
