package job

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// capturing is a process's controller that captures at once, or says why not.
type capturing struct {
	mu   sync.Mutex
	p    *Process
	got  []capture.Order
	fail error
	why  string // it refuses
}

func (c *capturing) Order(_ context.Context, o capture.Order) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Do != capture.Describe || o.From == 0 {
		return nil
	}
	c.got = append(c.got, o)
	switch {
	case c.fail != nil:
		return c.fail
	case c.why != "":
		c.p.Answer(capture.Answer{Order: o.ID, State: capture.OrderRefused, Text: c.why})
	default:
		c.p.Window(capture.Window{Trace: &traces.Trace{}, First: o.From, Last: o.From,
			Orders: []capture.OrderID{o.ID}, How: capture.HowOps})
	}
	return nil
}

func (c *capturing) Detach(context.Context) error { return nil }

// inStep returns processes that took their steps at the same times. Number k was attached to behind[k] steps
// later than the first.
func inStep(t *testing.T, behind ...int64) (*Job, []*Process, []*capturing) {
	t.Helper()
	w := NewWatch(Options{})
	j := New(w)
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	const pace = int64(100 * time.Millisecond)
	begun := time.Now().UnixNano() - 100*pace
	var list []*Process
	var all []*capturing
	for k, late := range behind {
		info := capture.Info{PID: 10 + k, Started: int64(k + 1), Rank: maybe.Known(int64(k))}
		c := &capturing{}
		p := w.Process
		if k > 0 {
			p = j.Add(info, nil)
		}
		c.p = p
		p.connect(c)
		p.Begin(info)
		for i := range 100 - late {
			end := begun + (i+late+1)*pace + int64(k)*1e6
			p.Step(capture.Step{Index: i, Start: end - pace, End: end})
		}
		list, all = append(list, p), append(all, c)
	}
	return j, list, all
}

// Whatever number each process gives it, all capture the same step, and it is one that none has begun.
func TestProcessesCaptureTheSameStep(t *testing.T) {
	j, list, all := inStep(t, 0, 3, 40)
	said := ""
	for i, x := range j.Together(t.Context(), list, 1, func(text string) { said = text }) {
		if x.Err != nil || x.Process != list[i] || x.Window.Trace == nil {
			t.Errorf("process %d: %v", i, x.Err)
		}
	}
	first := all[0].got[0].From
	if first < 102 || first > 120 || all[1].got[0].From != first-3 || all[2].got[0].From != first-40 {
		t.Errorf("steps %d, %d and %d", first, all[1].got[0].From, all[2].got[0].From)
	}
	if !strings.Contains(said, "3 processes") {
		t.Errorf("said %q", said)
	}
}

func TestAProcessThatCannotCaptureSaysWhyAndTheOthersGoOn(t *testing.T) {
	j, list, all := inStep(t, 0, 0, 0, 0, 0)
	all[0].why = "steps are compiled"
	all[1].fail = errors.New("the agent is gone")
	list[2].connect(nil)
	list[4].End(capture.End{Reason: capture.Exited})
	var why []string
	for _, x := range j.Together(t.Context(), list, 1, func(string) {}) {
		text := ""
		if x.Err != nil {
			text = x.Err.Error()
		}
		why = append(why, text)
	}
	want := []string{"steps are compiled", "the agent is gone", errNotSteppingTogether.Error(), "",
		errNotSteppingTogether.Error()}
	if !slices.Equal(why, want) {
		t.Errorf("%q", why)
	}
	none := j.Together(t.Context(), list[4:], 1, func(string) { t.Error("something is captured") })
	if len(none) != 1 || none[0].Err == nil {
		t.Errorf("%+v", none)
	}
}
