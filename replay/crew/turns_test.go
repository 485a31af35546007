package crew

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
)

// deaf is a source that takes every order and carries none out. It sends them to heard if that is set.
type deaf struct {
	capture.Controller
	heard chan capture.Order
}

func (d deaf) Order(_ context.Context, o capture.Order) error {
	if d.heard != nil {
		d.heard <- o
	}
	return nil
}

// stepped is a process that has taken a step under the plan with this number.
func stepped(t capture.Info, under int64, source capture.Controller) *Member {
	m := &Member{History: capture.NewHistory(capture.Limits{}), Control: source, PID: t.PID, Name: t.Name()}
	m.History.Begin(t)
	m.History.Step(capture.Step{Index: 0, Carried: capture.Carried{Plan: under}})
	return m
}

// watchedJob is a job whose steps run under the plan with this number.
func watchedJob(under int64, source capture.Controller) *Member {
	t := capture.Info{PID: 4242, Argv: []string{"python", "train.py"}}
	if source != nil {
		t.Capabilities = []string{capture.CapabilityPlans}
	}
	return stepped(t, under, source)
}

// alone is a crew of one process.
func (m *Member) alone() *Crew {
	only := []*Member{newMember(m.History, m.Control)}
	return newCrew(m, func(context.Context) ([]*Member, bool) { return only, false })
}

func anyTrain(ctx context.Context, p *Turns, tell func(live.News)) error {
	return p.Use(ctx, func(ctx context.Context, c *Crew) error {
		return c.Train(ctx, managed("joint", anyHardware, func(*plan.Problem) int64 { return 1 << 20 }), tell)
	})
}

func TestPlansNeedAWatchedTrainingThatTakesThem(t *testing.T) {
	p := &Turns{}
	if err := anyTrain(t.Context(), p, nil); p.Training() != "" || !errors.Is(err, errNoTraining) {
		t.Errorf("although nothing is watched, %q is training: %v", p.Training(), err)
	}
	probed := watchedJob(0, nil)
	leave := p.Watch(probed.alone)
	if who := p.Training(); who != "" {
		t.Errorf("%q is offered although it takes no plans", who)
	}
	leave()
	w := watchedJob(0, deaf{})
	leave = p.Watch(w.alone)
	if who := p.Training(); who != "process 4242: python train.py" {
		t.Errorf("the training is %q", who)
	}
	w.History.End(capture.End{Reason: capture.Exited})
	if who := p.Training(); who != "" {
		t.Errorf("%q is offered although it has ended", who)
	}
	leave()
}

func TestLeavingTheScreenEndsItsPlans(t *testing.T) {
	p := &Turns{}
	leave := p.Watch(watchedJob(0, deaf{}).alone)
	began, over := make(chan live.Stage, 8), make(chan error, 2)
	for range 2 { // the second waits its turn
		go func() { over <- anyTrain(t.Context(), p, func(n live.News) { began <- n.Stage }) }()
	}
	if stage := <-began; stage != live.Describing {
		t.Errorf("it begins with %s", stage)
	}
	leave()
	for range 2 {
		select {
		case err := <-over:
			if err != nil && !errors.Is(err, errNoTraining) { // the second may come too late
				t.Errorf("it ends with %v", err)
			}
		case <-time.After(3 * time.Minute):
			t.Fatal("it goes on after the screen is left")
		}
	}
	if len(began) > 0 {
		t.Error("two plans are carried out at once")
	}
	if err := anyTrain(t.Context(), p, nil); !errors.Is(err, errNoTraining) {
		t.Errorf("a plan was accepted after the screen was left: %v", err)
	}
}

func TestALostConnectionEndsAPlanWithTheReason(t *testing.T) {
	p := &Turns{}
	w := watchedJob(0, deaf{})
	defer p.Watch(w.alone)()
	w.History.Sever("an earlier one was lost", false)
	w.History.Begin(w.History.Snapshot().Info)
	over := make(chan error, 1)
	go func() {
		over <- anyTrain(t.Context(), p, func(live.News) {
			w.History.Sever("process 4242: the connection was lost", false)
		})
	}()
	select {
	case err := <-over:
		if err == nil || err.Error() != "process 4242: the connection was lost" {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Fatal("it waits for a training that no longer answers")
	}
}

func TestATrainingUnderAnotherViewersPlanTakesNoSecond(t *testing.T) {
	p := &Turns{}
	w := watchedJob(7, deaf{})
	defer p.Watch(w.alone)()
	over := make(chan error, 1)
	go func() { over <- anyTrain(t.Context(), p, func(live.News) {}) }()
	for i := int64(1); ; i++ {
		w.History.Step(capture.Step{Index: i, Carried: capture.Carried{Plan: 7}})
		select {
		case err := <-over:
			if !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "gmemtop run --manager") {
				t.Errorf("it ends with %v", err)
			}
			return
		case <-time.After(30 * time.Millisecond):
		}
		if i > 500 {
			t.Fatal("it hangs")
		}
	}
}
