package managers

import (
	"context"
	"errors"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

func TestAJobBringsItsNewsTogetherAndThenItsEnd(t *testing.T) {
	var j job[int]
	told := make(chan struct{})
	cmd := j.start(func(ctx context.Context) error {
		j.tell(1)
		j.tell(2)
		close(told)
		<-ctx.Done()
		return ctx.Err()
	})
	msg := cmd().(jobMsg[int])
	<-told
	if fresh, err := j.take(); len(fresh) != 2 || err != nil || !msg.more() {
		t.Errorf("the news is %v, %v, and more follows: %v", fresh, err, msg.more())
	}
	j.stop()
	for msg.more() { // the second piece may have woken it as well
		msg = j.news().(jobMsg[int])
	}
	if fresh, err := j.take(); len(fresh) != 0 || !errors.Is(err, context.Canceled) || !j.ended {
		t.Errorf("at its end it says %v, %v", fresh, err)
	}
}

func TestAJobThatPanicsEnds(t *testing.T) {
	var j job[int]
	msg := j.start(func(context.Context) error { panic("a fault of ours") })().(jobMsg[int])
	if fault, stack := msg.Panic(); msg.more() || fault != "a fault of ours" || len(stack) == 0 {
		t.Errorf("it says %v", msg)
	}
}

func TestAFrameASecondIsDrawnWhileSomebodyPlans(t *testing.T) {
	var waits []time.Duration
	v := New(nil)
	v.After = func(d time.Duration, say func(time.Time) tea.Msg) tea.Cmd {
		waits = append(waits, d)
		return func() tea.Msg { return say(time.Time{}) }
	}
	s := &leaf.State{}
	v.Update(s, nil)
	v.planning = newPlanning(&plans{})
	v.planning.start(question{&setup{p: plantest.Chain(4, 1<<20, 1e6)}, 0}, []string{"ours"})
	v.Update(s, nil)
	cmd := v.Update(s, nil)
	if len(waits) != 1 || waits[0] != time.Second || cmd != nil {
		t.Fatalf("it waits %v", waits)
	}
	if v.Update(s, tickMsg{&v.pacer}); len(waits) != 2 {
		t.Error("it draws one frame and no more")
	}
	v.planning.stop()
	if v.Update(s, tickMsg{&v.pacer}); len(waits) != 2 {
		t.Error("it goes on when nobody plans")
	}
	v.training.trial = &trial{}
	if v.Update(s, nil); len(waits) != 3 {
		t.Error("a trial that begins is not timed")
	}
}

func TestNewsIsPaced(t *testing.T) {
	var waits []time.Duration
	p := pacer{After: func(d time.Duration, say func(time.Time) tea.Msg) tea.Cmd {
		waits = append(waits, d)
		return nil
	}}
	next := func() tea.Msg { return nil }
	for _, c := range []struct {
		msg   tea.Msg
		next  tea.Cmd
		paced bool
	}{
		{jobMsg[planNews]{}, next, true}, {jobMsg[planNews]{done: true}, next, false},
		{jobMsg[BatchNews]{}, nil, false}, {takenMsg{}, next, false},
	} {
		waits = nil
		if got := p.pace(c.msg, c.next); (len(waits) == 1) != c.paced || (got == nil) != (c.next == nil) {
			t.Errorf("behind %v it waits %v", c.msg, waits)
		}
	}
}
