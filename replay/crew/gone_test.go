package crew

import (
	"context"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/replay/live"
)

// visit attaches to a host's training, serves other viewers, and returns it once three steps have come. die
// closes the connection without a word, as the end of a process does.
func visit(t *testing.T, h *torchtest.Host) (l *liveTraining, s *pytorch.Session, die func()) {
	t.Helper()
	s, err := pytorch.Attach(t.Context(), h.PID(), h.Bring)
	if err != nil {
		t.Fatal(err)
	}
	history := capture.NewHistory(capture.Limits{})
	relay := pytorch.NewRelay(history, s)
	s.Share(relay)
	l = &liveTraining{Member: newMember(history, s), t: t, done: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		err := s.Run(ctx, relay)
		relay.Close()
		l.done <- err
	}()
	l.wait(3)
	return l, s, func() {
		stop()
		<-l.done
	}
}

// trainsUnder waits until a step has run under the plan of that number, 0 for none.
func (l *liveTraining) trainsUnder(number int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), torchtest.Patience(l.t))
	defer cancel()
	if err := l.until(ctx, func(v *capture.View) (bool, error) {
		return len(v.Steps) > 0 && v.Steps[len(v.Steps)-1].Carried.Plan == number, nil
	}); err != nil {
		l.t.Fatalf("no step ran under plan %d but under %d: %v", number, l.Member.under(), err)
	}
}

// anyPlan returns a plan of a manager's, as the agent takes it.
func (l *liveTraining) anyPlan(manager string) []byte {
	l.t.Helper()
	for _, words := range l.plans(l.problem(), manager) {
		return words
	}
	l.t.Fatalf("%s has no plan to carry out", manager)
	return nil
}

// started starts a process that trains, beside other tests, with a time limit for the test.
func started(t *testing.T) (context.Context, *torchtest.Host) {
	t.Helper()
	h := torchtest.NewHost(t)
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), torchtest.Patience(t))
	t.Cleanup(cancel)
	h.Start(ctx)
	return ctx, h
}

// TestDetachingInTheMiddleOfABackwardPassLeavesNothing detaches while tensors that left under a plan are
// away: some of them return after the viewer has asked the agent to go.
func TestDetachingInTheMiddleOfABackwardPassLeavesNothing(t *testing.T) {
	for _, manager := range []string{"sqrt", "vdnn-all"} {
		t.Run(manager, func(t *testing.T) {
			ctx, h := started(t)
			l, s, _ := visit(t, h)
			if err := l.Carry(ctx, live.Order{Number: 1, Plan: l.anyPlan(manager)}); err != nil {
				t.Fatal(err)
			}
			l.trainsUnder(1)
			resume, gone := h.Pause(), make(chan error, 1)
			go func() { gone <- s.Detach(ctx) }()
			h.Leaves()
			select {
			case err := <-gone:
				resume()
				t.Fatalf("the agent went while tensors were away: %v", err)
			default:
			}
			resume()
			if err := <-gone; err != nil {
				t.Error(err)
			}
			h.Compare()
		})
	}
}

// TestAPlanEndsWithTheViewerThatTurnedItOn kills viewers while their plans are on: one that has the agent,
// one that watches beside it, and one whose plan should stay. Afterwards the process is as before.
func TestAPlanEndsWithTheViewerThatTurnedItOn(t *testing.T) {
	ctx, h := started(t)
	l, _, die := visit(t, h)
	words := l.anyPlan("sqrt")
	on := func(l *liveTraining, o live.Order) {
		t.Helper()
		if err := l.Carry(ctx, o); err != nil {
			t.Fatal(err)
		}
		l.trainsUnder(o.Number)
	}

	on(l, live.Order{Number: 1, Plan: words})
	die()
	l, _, die = visit(t, h)
	l.trainsUnder(0)

	guest, beside, leave := visit(t, h)
	if beside.Host() == 0 {
		t.Fatal("the second viewer has the agent itself")
	}
	on(guest, live.Order{Number: 2, Plan: words})
	l.trainsUnder(2)
	leave()
	l.trainsUnder(0)

	guest, _, leave = visit(t, h)
	on(guest, live.Order{Number: 3, Plan: words})
	on(l, live.Order{Number: 4, Plan: words}) // takes the guest's away
	leave()
	_, _, leave = visit(t, h) // by then the relay has noticed that the one before has left
	leave()
	l.wait(3)
	if under := l.Member.under(); under != 4 {
		t.Errorf("a viewer that left took plan 4 away, which was another's: a step ran under %d", under)
	}

	on(l, live.Order{Number: 5, Plan: words, Stays: true})
	die()
	l, s, _ := visit(t, h)
	l.wait(3)
	steps := l.History.Snapshot().Steps
	if slices.ContainsFunc(steps[len(steps)-3:], func(s capture.Step) bool { return s.Carried.Plan != 5 }) {
		t.Errorf("a plan that was to stay has ended with its viewer: %d", l.Member.under())
	}
	if err := s.Detach(ctx); err != nil {
		t.Fatal(err)
	}
	h.Compare()
}
