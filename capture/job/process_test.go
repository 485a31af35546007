package job

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// taker takes orders and remembers them.
type taker struct{ got []capture.Action }

func (o *taker) Order(_ context.Context, x capture.Order) error {
	o.got = append(o.got, x.Do)
	return nil
}

func (o *taker) Detach(context.Context) error { return nil }

func TestOrdersWaitForTheFirstStep(t *testing.T) {
	p := NewWatch(Options{Every: 10, Depth: capture.HowHistory}).Process
	p.wantFirst(2)
	if p.askNow(t.Context()) { // nobody takes orders yet
		t.Error("a request that nobody received is not repeated")
	}
	o := &taker{}
	p.connect(o)
	for range 2 {
		if !p.askNow(t.Context()) {
			t.Error("a request that was received is repeated")
		}
	}
	if want := []capture.Action{capture.Depth, capture.Every}; !slices.Equal(o.got, want) {
		t.Errorf("the source got %v, not %v", o.got, want)
	}
}

func TestAJobLearnsWhatItsProcessesCannotCapture(t *testing.T) {
	j := New(NewWatch(Options{}))
	var told []string
	j.Unmet = func(t capture.Info, why string) { told = append(told, t.Name()+": "+why) }
	j.Begin(capture.Info{PID: 7, Rank: maybe.Known(1), WorldSize: maybe.Known(2)})
	j.Notice(capture.Notice{Key: "attached", Text: "by ptrace"})
	j.Notice(capture.Notice{Key: capture.HowOps, Text: "torch.compile is in use", Unmet: true})
	if want := []string{"rank 1: torch.compile is in use"}; !slices.Equal(told, want) {
		t.Errorf("the job reports %q, want %q", told, want)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestRequestedStepsArePendingUntilTheyArrive(t *testing.T) {
	p := NewWatch(Options{}).Process
	p.connect(&taker{})
	pending := func() bool {
		v := p.History.Snapshot()
		return p.Wants(&v).Pending
	}
	p.Window(capture.Window{First: 3, Last: 4})
	if pending() {
		t.Error("it was sent unasked")
	}
	if err := p.Capture(t.Context(), 1); err != nil || !pending() {
		t.Errorf("earlier steps count as the requested ones: %v", err)
	}
	p.Window(capture.Window{First: 9, Last: 9})
	if pending() {
		t.Error("they have arrived already")
	}
}

// rank is a process of a job that has taken a step.
func rank(j *Job, n int) *Process {
	t := capture.Info{PID: 100 + n, Started: int64(n + 1), Rank: maybe.Known(int64(n)),
		WorldSize: maybe.Known(3)}
	p := j.First()
	if n > 0 {
		p = j.Add(t, &taker{})
	}
	p.Begin(t)
	p.Step(capture.Step{Index: 0})
	return p
}

func TestALostConnectionIsShownUntilItIsBack(t *testing.T) {
	j := New(NewWatch(Options{}))
	first, second := rank(j, 0), rank(j, 1)
	lost := errors.New("the connection was lost")
	j.Severed(second.Info(), lost)
	if a, b := first.History.Snapshot().Severed, second.History.Snapshot().Severed; a != "" ||
		b != lost.Error() {
		t.Errorf("first process: %q, second: %q", a, b)
	}
	second.Begin(second.Info())
	if why := second.History.Snapshot().Severed; why != "" {
		t.Errorf("it is back but still shown as lost: %s", why)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestAProcessThatTheAgentLeftHasNotExited(t *testing.T) {
	for _, how := range []string{capture.Exited, capture.Detached} {
		j := New(NewWatch(Options{}))
		first := rank(j, 0)
		j.Ended(capture.Info{PID: 999}, capture.End{Reason: capture.Detached}) // another
		j.Ended(first.Info(), capture.End{Reason: how})
		j.Begin(capture.Info{PID: 300}) // messages are from this process from now on
		if v := first.History.Snapshot(); !v.Ended || v.End.Reason != how {
			t.Errorf("%s: it ended %+v", how, v.End)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
