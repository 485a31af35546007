package tui

import (
	"context"
	"fmt"
	"slices"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
)

// said is what a component has posted, by kind, since the last call.
type said struct{ msgs []tea.Msg }

func (s *said) post(msg tea.Msg) { s.msgs = append(s.msgs, msg) }

func (s *said) kinds() []string {
	var kinds []string
	for _, msg := range s.msgs {
		kinds = append(kinds, fmt.Sprintf("%T", msg))
	}
	s.msgs = nil
	return kinds
}

func TestFollowShowsEachNewStepUntilItHolds(t *testing.T) {
	feed, heard := &jobFeed{}, &said{}
	f := newFollow(still(), &Options{Feed: feed}, heard.post)
	f.begin()
	defer f.end()
	look := func(change func(l *live.Look)) []string {
		change(&feed.look)
		if _, ok := f.update(live.LookMsg{Feed: feed, Look: feed.look}); !ok {
			t.Error("the job's look was not used")
		}
		return heard.kinds()
	}
	none, same, step := func(*live.Look) {}, []string{"leaf.ChangedMsg"}, []string{"tui.stepMsg"}
	for i, c := range []struct {
		do   func() []string
		want []string
	}{
		{func() []string { return look(none) }, same},
		{func() []string { f.hold(leaf.Timeline); return heard.kinds() }, nil}, // nothing is shown yet
		{func() []string { return look(captured(t, 3)) }, step},
		{func() []string { return look(none) }, same},
		{func() []string { return look(captured(t, 4)) }, step},
		// the job's own view holds nothing
		{func() []string { f.hold(leaf.Live); return heard.kinds() }, nil},
		{func() []string { f.hold(leaf.Timeline); return heard.kinds() }, []string{"leaf.ToastMsg"}},
		{func() []string { return look(captured(t, 5)) }, same},
		{func() []string { f.toggle(); return heard.kinds() }, []string{"tui.stepMsg", "leaf.ToastMsg"}},
		// of another rank, none of whose steps is captured: how long they take is known
		{
			func() []string { return look(func(l *live.Look) { l.Chosen, l.Windows = 1, nil }) },
			[]string{"tui.tempoMsg", "tui.stepMsg"},
		},
	} {
		if got := c.do(); !slices.Equal(got, c.want) {
			t.Errorf("%d: said %v, want %v", i, got, c.want)
		}
	}
	if f.shown != nil || f.held {
		t.Errorf("another rank shows %v, held %v", f.shown, f.held)
	}
}

func TestFollowDetachesFromThePreviousProcess(t *testing.T) {
	var contexts []context.Context
	heard := &said{}
	f := newFollow(still(), &Options{
		Machine: &node{},
		Attach: func(ctx context.Context, _ int) (live.Feed, error) {
			contexts = append(contexts, ctx)
			return &jobFeed{}, nil
		},
	}, heard.post)
	f.begin()
	for pid := range 2 {
		cmd, _ := f.update(machine.AttachMsg{Process: machine.Process{PID: pid}})
		heard.kinds()
		f.update(cmd())
		if got := heard.kinds(); !slices.Equal(got, []string{"tui.jobMsg", "tui.stepMsg", "leaf.ShowMsg"}) {
			t.Errorf("process %d: said %v", pid, got)
		}
	}
	if contexts[0].Err() == nil || contexts[1].Err() != nil {
		t.Errorf("detached from the first: %v, from the second: %v", contexts[0].Err(), contexts[1].Err())
	}
	if f.end(); contexts[1].Err() == nil {
		t.Error("the second one goes on past the end")
	}
}

func TestWatchedViewsComeFirst(t *testing.T) {
	tabs := newTabs(nil)
	n := len(tabs.views)
	if tabs.show(leaf.Live) || tabs.front != leaf.Overview {
		t.Errorf("view %c is in front", tabs.front)
	}
	all, first, second := machine.New(), live.New(&jobFeed{}), live.New(&jobFeed{})
	tabs.lead(all, first)
	tabs.lead(all, second)
	if len(tabs.views) != n+2 || tabs.views[0] != leaf.View(all) || tabs.views[1] != leaf.View(second) {
		t.Errorf("%d views, the first %s and %s", len(tabs.views), tabs.views[0].Name(), tabs.views[1].Name())
	}
	if !tabs.show(leaf.Live) || tabs.view() != leaf.View(second) {
		t.Errorf("%s is in front", tabs.view().Name())
	}
}

func TestAViewIsLeftOnce(t *testing.T) {
	tabs := newTabs(nil)
	if was := tabs.takeLeft(); was != nil {
		t.Errorf("%s was left at the start", was.Name())
	}
	tabs.show(leaf.OOM)
	if was := tabs.takeLeft(); was == nil || was.ID() != leaf.Overview {
		t.Errorf("what is left is %v", was)
	}
	if was := tabs.takeLeft(); was != nil {
		t.Errorf("%s is left again", was.Name())
	}
}
