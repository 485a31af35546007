package managers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/managers/plannertest"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// rig is a view beside a training that says what the test has it say.
type rig struct {
	*viewtest.Screen
	t    *testing.T
	v    *managers.View
	f    *plannertest.Planner
	next []chan tea.Msg // of the jobs that were begun
	said []tea.Msg      // what the view sent
}

func watch(t *testing.T) *rig {
	t.Helper()
	f := &plannertest.Planner{Watched: "process 4242: python gpt2.py", News: make(chan live.News),
		Fail: make(chan error)}
	sc, v := show(t, f)
	return &rig{Screen: sc, t: t, v: v, f: f}
}

// press sends the view a key; what that starts runs beside the test.
func (r *rig) press(k string) { r.run(r.v.Update(r.State, viewtest.Key(k))) }

func (r *rig) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	ch := make(chan tea.Msg, 1)
	go func() { ch <- cmd() }()
	r.next = append(r.next, ch)
}

// tell says something of the training, once the view listens.
func (r *rig) tell(n live.News) {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); r.turn() {
		select {
		case r.f.News <- n:
			return
		default:
		}
	}
	r.t.Fatal("nobody listens to what the training says")
}

// until gives the view what comes until the line holds a text.
func (r *rig) until(text string) {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(r.v.Live(r.State), text); {
		if time.Now().After(end) {
			r.t.Fatalf("the line never holds %q: it is %q", text, r.v.Live(r.State))
		}
		r.turn()
	}
}

// untilHeadline gives the view what comes until the sentence holds a text.
func (r *rig) untilHeadline(text string) {
	r.t.Helper()
	for end := time.Now().Add(3 * time.Minute); !strings.Contains(r.v.Headline(r.State), text); r.turn() {
		if time.Now().After(end) {
			r.t.Fatalf("the sentence never holds %q: it is %q", text, r.v.Headline(r.State))
		}
	}
}

// turn sends the view one message of each job, if there is one.
func (r *rig) turn() {
	list := r.next
	r.next = nil
	for _, ch := range list {
		select {
		case msg := <-ch:
			if list, ok := viewtest.Commands(msg); ok {
				for _, c := range list {
					r.run(c)
				}
				continue
			}
			switch msg := msg.(type) {
			case nil:
			case leaf.ToastMsg, leaf.WindowMsg:
				r.said = append(r.said, msg)
			default:
				r.run(r.v.Update(r.State, msg))
			}
		case <-time.After(time.Millisecond):
			r.next = append(r.next, ch)
		}
	}
}

// toast reports whether the view said a text aloud, giving it what comes until it does.
func (r *rig) toast(text string) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); r.turn() {
		if slices.ContainsFunc(r.said, func(m tea.Msg) bool {
			toast, ok := m.(leaf.ToastMsg)
			return ok && strings.Contains(toast.Text, text)
		}) {
			return true
		}
	}
	return false
}
