package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
)

// rankedJob is a rank that has taken a step, and takes orders without carrying any out.
func rankedJob(rank int) *hand {
	t := capture.Target{PID: 100 + rank, Rank: rank, WorldSize: 3}
	h := &hand{trainer: &trainer{session: capture.NewSession(capture.Limits{}), control: deaf{}}, pid: t.PID,
		name: t.Name()}
	h.session.Begin(t)
	h.session.Step(capture.Step{Index: 0})
	return h
}

func TestWhatBecomesOfOneRankKeepsTheOthersFromNothing(t *testing.T) {
	ctx, off := context.WithTimeout(t.Context(), 20*time.Second)
	defer off()
	first, second, late := rankedJob(0), rankedJob(1), rankedJob(2)
	refused := &hand{pid: 200, name: "process 200",
		err: errors.New("it cannot be attached to: not permitted")}
	came := make(chan struct{})
	c := &crew{lead: first.trainer, look: func(context.Context) ([]*hand, bool) {
		list := []*hand{first, second, refused}
		select {
		case <-came:
			list = append(list, late)
		default:
		}
		return list, false
	}}
	stage := 0
	err := c.train(ctx, managed("vdnn-all", anyHardware, ninety), func(n live.News) {
		switch said := ranked(n); {
		case stage == 0 && said == "rank 0 describing, rank 1 describing, process 200 off: it cannot be "+
			"attached to: not permitted":
			stage = 1
			second.session.End(capture.End{Reason: capture.Exited})
		case stage == 1 && strings.HasPrefix(said, "rank 0 describing, rank 1 has ended, "):
			stage = 2
			close(came)
		case stage == 2 && strings.HasSuffix(said, ", rank 2 describing"):
			stage = 3
			off()
		}
	})
	if err != nil || stage != 3 {
		t.Errorf("it ended with %v at %d", err, stage)
	}
}

func TestWhereNoRankIsLeftItIsSaidWhy(t *testing.T) {
	deadline, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	no := errors.New("no")
	of := func(list ...*hand) *crew {
		return &crew{lead: rankedJob(0).trainer, look: func(context.Context) ([]*hand, bool) {
			return list,
				false
		}}
	}
	quiet := func(live.News) {}
	if err := of(&hand{pid: 1, name: "rank 0", err: no}, &hand{pid: 2, name: "rank 1",
		err: no}).train(deadline, managed("vdnn-all", anyHardware, ninety), quiet); err != no {
		t.Errorf("%v", err)
	}
	gone := rankedJob(1)
	gone.session.End(capture.End{Reason: capture.Exited})
	err := of(&hand{pid: 1, name: "rank 0", err: no}, gone).train(deadline,
		managed("vdnn-all", anyHardware, ninety), quiet)
	if err == nil || !strings.HasPrefix(err.Error(), "rank 0: no; rank 1: the training ended") {
		t.Errorf("%v", err)
	}
	if err := of().train(deadline, managed("vdnn-all", anyHardware, ninety), quiet); !errors.Is(err,
		errEnded) {
		t.Errorf("%v", err)
	}
	// Of a job that goes on, ranks that ended may be started anew, and those that refused are not waited for.
	c := of(gone)
	look := c.look
	looks := 0
	c.look = func(ctx context.Context) ([]*hand, bool) {
		list, _ := look(ctx)
		if looks++; looks > 3 {
			list = append(list, &hand{pid: 9, name: "rank 1", err: no})
		}
		return list, true
	}
	var last live.News
	if err := c.train(deadline, managed("vdnn-all", anyHardware, ninety),
		func(n live.News) { last = n }); err != no || len(last.Ranks) != 0 {
		t.Errorf("%v, %+v", err, last)
	}
}

func TestWhatIsMeasuredInAllRanksIsNotSaidOfSome(t *testing.T) {
	none := func(context.Context, *plan.Problem, string) (*plan.Plan, error) {
		return nil, errors.New("nobody plans")
	}
	list := []*hand{rankedJob(0), {pid: 7, name: "process 7",
		err: errors.New("it cannot be attached to: not permitted")}}
	c := &crew{lead: list[0].trainer, look: func(context.Context) ([]*hand, bool) { return list, false }}
	if _, err := c.target(false, live.Options{}, none).Problem(t.Context(), anyHardware); err == nil ||
		err.Error() != "process 7: it cannot be attached to: not permitted" {
		t.Errorf("%v", err)
	}
	taken := rankedJob(1)
	for i := range int64(freeWithin + 2) {
		taken.session.Step(capture.Step{Index: 1 + i, Carried: capture.Carried{Plan: 3}})
	}
	go func() {
		for i := int64(10); t.Context().Err() == nil; i++ { // however late it is looked at
			time.Sleep(20 * time.Millisecond)
			taken.session.Step(capture.Step{Index: i, Carried: capture.Carried{Plan: 3}})
		}
	}()
	gone := rankedJob(0)
	gone.session.End(capture.End{Reason: capture.Exited})
	list = []*hand{gone, taken}
	_, err := c.target(false, live.Options{}, none).Problem(t.Context(), anyHardware)
	if err == nil || !strings.HasPrefix(err.Error(), "rank 0: the training ended") ||
		!strings.Contains(err.Error(), "; rank 1: "+errTaken.Error()) {
		t.Errorf("%v", err)
	}
}

func TestWhyAPlanEndedIsTheAnswerToItsOrder(t *testing.T) {
	for _, c := range []struct {
		answer capture.Answer
		want   error
	}{
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonTakenAway}, live.ErrTakenAway},
		{capture.Answer{State: capture.OrderRefused, Reason: capture.ReasonSuperseded}, live.ErrTakenAway},
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonGivenUp,
			Text: "off: it does not fit"}, errGivenUp},
		{capture.Answer{State: capture.OrderRefused, Reason: capture.ReasonNotBegun,
			Text: "not begun: no room"}, errGivenUp},
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonDiffers, Text: "off: a bit differs"},
			errDiffer},
	} {
		w := rankedJob(0)
		heard := make(chan capture.Order, 1)
		w.control = deaf{heard: heard}
		h := w
		if err := h.Carry(t.Context(), 7, nil); err != nil {
			t.Fatal(err)
		}
		o := <-heard
		over := make(chan error, 1)
		go func() {
			_, err := h.Steps(t.Context(), 7, 1000)
			over <- err
		}()
		for i := range int64(50) { // however many steps come before and behind it
			w.session.Step(capture.Step{Index: i + 1, Carried: capture.Carried{Plan: 7 * (i % 2)}})
		}
		w.session.Answer(capture.Answer{Order: o.ID, State: capture.OrderAccepted})
		w.session.Answer(capture.Answer{Order: o.ID + 1, State: capture.OrderEnded,
			Reason: capture.ReasonDiffers, Text: "another"})
		w.session.Notice(capture.Notice{Key: "plan 7", Text: "off: an old notice, for people"})
		select {
		case err := <-over:
			t.Fatalf("%s: it ends before it is said: %v", c.answer.Reason, err)
		default:
		}
		c.answer.Order = o.ID
		w.session.Answer(c.answer)
		if err := <-over; !errors.Is(err, c.want) || !strings.HasSuffix(err.Error(), c.answer.Text) {
			t.Errorf("%s: %v", c.answer.Reason, err)
		}
	}
}

func TestADescriptionIsWhatItsOwnOrderCaptured(t *testing.T) {
	w := rankedJob(0)
	heard := make(chan capture.Order)
	w.control = deaf{heard: heard}
	w.session.Step(capture.Step{Index: 1, Carried: capture.Carried{Plan: 7}})
	w.session.Notice(capture.Notice{Key: "ops", Text: "an old notice"})
	h := w
	over := make(chan error, 1)
	traced := make(chan *traces.Trace, 1)
	describe := func(number int64) capture.Order {
		go func() {
			tr, err := h.Describe(t.Context(), number)
			traced <- tr
			over <- err
		}()
		return <-heard
	}
	refused := func(reason capture.Reason, text string) error {
		o := describe(7)
		w.session.Notice(capture.Notice{Key: "ops", Text: "another old notice"})
		w.session.Answer(capture.Answer{Order: o.ID, State: capture.OrderRefused, Reason: reason, Text: text})
		<-traced
		return <-over
	}
	if err := refused(capture.ReasonSavesUnseen, "off: it does not fit"); !errors.Is(err, errGivenUp) ||
		!strings.HasSuffix(err.Error(), "off: it does not fit") {
		t.Errorf("a plan that ends while it is described: %v", err)
	}
	if err := refused(capture.ReasonNotCaptured, "torch.compile is in use"); err == nil ||
		err.Error() != "its steps cannot be described: torch.compile is in use" {
		t.Errorf("%v", err)
	}
	mine, others := &traces.Trace{}, &traces.Trace{}
	at := int64(1)
	done := func(number, under int64) (*traces.Trace, error) {
		o := describe(number)
		at++
		w.session.Step(capture.Step{Index: at, Carried: capture.Carried{Plan: under}})
		w.session.Window(capture.Window{Trace: mine, First: at, Last: at, How: capture.HowOps,
			Orders: []capture.OrderID{1, o.ID}})
		w.session.Window(capture.Window{Trace: others, First: at, Last: at, How: capture.HowOps,
			Orders: []capture.OrderID{o.ID + 1}})
		w.session.Answer(capture.Answer{Order: o.ID, State: capture.OrderDone})
		return <-traced, <-over
	}
	if tr, err := done(7, 7); tr != mine || err != nil {
		t.Errorf("%p of %p and %p: %v", tr, mine, others, err)
	}
	// The last step that is known ran under plan 7, which has ended since: steps as they come are described.
	if tr, err := done(0, 0); tr != mine || err != nil {
		t.Errorf("of no plan: %v", err)
	}
	if _, err := done(7, 0); !errors.Is(err, errGivenUp) {
		t.Errorf("the plan ended before the steps that came: %v", err)
	}
}
