package crew

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// rankedJob is a rank that has taken a step and accepts orders but carries none out.
func rankedJob(rank int) *Member {
	t := capture.Info{PID: 100 + rank, Rank: maybe.Known(int64(rank)), WorldSize: maybe.Known(3)}
	return stepped(t, 0, deaf{})
}

func TestTheFateOfOneRankDoesNotAffectTheOthers(t *testing.T) {
	ctx, off := context.WithTimeout(t.Context(), 3*time.Minute)
	defer off()
	first, second, late := rankedJob(0), rankedJob(1), rankedJob(2)
	refused := &Member{PID: 200, Name: "process 200",
		Err: errors.New("it cannot be attached to: not permitted")}
	came := make(chan struct{})
	c := &Crew{Lead: first, look: func(context.Context) ([]*Member, bool) {
		list := []*Member{first, second, refused}
		select {
		case <-came:
			list = append(list, late)
		default:
		}
		return list, false
	}}
	stage := 0
	err := c.Train(ctx, managed("vdnn-all", anyHardware, ninety), func(n live.News) {
		switch said := ranked(n); {
		case stage == 0 && said == "rank 0 recording ops, rank 1 recording ops, process 200 off: it "+
			"cannot be attached to: not permitted":
			stage = 1
			second.History.End(capture.End{Reason: capture.Exited})
		case stage == 1 && strings.HasPrefix(said, "rank 0 recording ops, rank 1 has ended, "):
			stage = 2
			close(came)
		case stage == 2 && strings.HasSuffix(said, ", rank 2 recording ops"):
			stage = 3
			off()
		}
	})
	if err != nil || stage != 3 {
		t.Errorf("it ended with %v at %d", err, stage)
	}
}

func TestWithoutAnyRankLeftTheReasonIsGiven(t *testing.T) {
	deadline, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	no := errors.New("no")
	of := func(list ...*Member) *Crew {
		return &Crew{Lead: rankedJob(0), look: func(context.Context) ([]*Member, bool) {
			return list,
				false
		}}
	}
	quiet := func(live.News) {}
	if err := of(&Member{PID: 1, Name: "rank 0", Err: no}, &Member{PID: 2, Name: "rank 1",
		Err: no}).Train(deadline, managed("vdnn-all", anyHardware, ninety), quiet); err != no {
		t.Errorf("%v", err)
	}
	gone := rankedJob(1)
	gone.History.End(capture.End{Reason: capture.Exited})
	err := of(&Member{PID: 1, Name: "rank 0", Err: no}, gone).Train(deadline,
		managed("vdnn-all", anyHardware, ninety), quiet)
	if err == nil || !strings.HasPrefix(err.Error(), "rank 0: no; rank 1: the training ended") {
		t.Errorf("%v", err)
	}
	if err := of().Train(deadline, managed("vdnn-all", anyHardware, ninety), quiet); !errors.Is(err,
		errEnded) {
		t.Errorf("%v", err)
	}
	// While a job goes on, ranks that ended may be restarted; ranks that refused are not waited for.
	c := of(gone)
	look := c.look
	looks := 0
	c.look = func(ctx context.Context) ([]*Member, bool) {
		list, _ := look(ctx)
		if looks++; looks > 3 {
			list = append(list, &Member{PID: 9, Name: "rank 1", Err: no})
		}
		return list, true
	}
	var last live.News
	if err := c.Train(deadline, managed("vdnn-all", anyHardware, ninety),
		func(n live.News) { last = n }); err != no || len(last.Ranks) != 0 {
		t.Errorf("%v, %+v", err, last)
	}
}

func TestAnErrorOfOursIsNotCalledTheTrainingsEnd(t *testing.T) {
	for want, end := range map[string]capture.End{
		"the training ended: exit code 3": {Reason: capture.Exited, Code: maybe.NonNegative(3)},
		"watching failed; the job is still running: KeyError: 7": {Reason: capture.Disarmed,
			Detail: "KeyError: 7"},
		"detached; the job is still running": {Reason: capture.Detached},
	} {
		m := rankedJob(0)
		m.History.End(end)
		err := m.until(t.Context(), func(*capture.View) (bool, error) { return false, nil })
		if !errors.Is(err, errEnded) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestNothingIsMeasuredWhenOneRankCannotBeAttachedTo(t *testing.T) {
	none := func(context.Context, *plan.Problem, string, int64) (*plan.Plan, error) {
		return nil, errors.New("this test does not plan")
	}
	list := []*Member{rankedJob(0), {PID: 7, Name: "process 7",
		Err: errors.New("it cannot be attached to: not permitted")}}
	c := &Crew{Lead: list[0], look: func(context.Context) ([]*Member, bool) { return list, false }}
	if _, err := c.Target(false, live.Options{}, none).Problem(t.Context(), anyHardware); err == nil ||
		err.Error() != "process 7: it cannot be attached to: not permitted" {
		t.Errorf("%v", err)
	}
	taken := rankedJob(1)
	for i := range int64(freeWithin + 2) {
		taken.History.Step(capture.Step{Index: 1 + i, Carried: capture.Carried{Plan: 3}})
	}
	go func() {
		for i := int64(10); t.Context().Err() == nil; i++ { // however late the crew looks
			time.Sleep(20 * time.Millisecond)
			taken.History.Step(capture.Step{Index: i, Carried: capture.Carried{Plan: 3}})
		}
	}()
	gone := rankedJob(0)
	gone.History.End(capture.End{Reason: capture.Exited})
	list = []*Member{gone, taken}
	_, err := c.Target(false, live.Options{}, none).Problem(t.Context(), anyHardware)
	if err == nil || !strings.HasPrefix(err.Error(), "rank 0: the training ended") ||
		!strings.Contains(err.Error(), "; rank 1: "+errTaken.Error()) {
		t.Errorf("%v", err)
	}
}

func TestTheAnswerToAnOrderSaysWhyThePlanEnded(t *testing.T) {
	for _, c := range []struct {
		answer capture.Answer
		want   error
	}{
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonTakenAway}, live.ErrTakenAway},
		{capture.Answer{State: capture.OrderRefused, Reason: capture.ReasonSuperseded}, live.ErrTakenAway},
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonGivenUp,
			Text: "off, and training goes on as before: it does not fit"}, errGivenUp},
		{capture.Answer{State: capture.OrderRefused, Reason: capture.ReasonNotBegun,
			Text: "not begun: no room"}, errGivenUp},
		{capture.Answer{State: capture.OrderEnded, Reason: capture.ReasonDiffers, Text: "off: a bit differs"},
			errDiffer},
	} {
		w := rankedJob(0)
		heard := make(chan capture.Order, 1)
		w.Control = deaf{heard: heard}
		h := w
		if err := h.Carry(t.Context(), live.Order{Number: 7}); err != nil {
			t.Fatal(err)
		}
		o := <-heard
		over := make(chan error, 1)
		go func() {
			_, err := h.Steps(t.Context(), 7, 1000)
			over <- err
		}()
		for i := range int64(50) { // however many steps come before and after it
			w.History.Step(capture.Step{Index: i + 1, Carried: capture.Carried{Plan: 7 * (i % 2)}})
		}
		w.History.Answer(capture.Answer{Order: o.ID, State: capture.OrderAccepted})
		w.History.Answer(capture.Answer{Order: o.ID + 1, State: capture.OrderEnded,
			Reason: capture.ReasonDiffers, Text: "another"})
		w.History.Notice(capture.Notice{Key: "plan 7", Text: "off: an old notice, for people"})
		select {
		case err := <-over:
			t.Fatalf("%s: it ended before the answer came: %v", c.answer.Reason, err)
		default:
		}
		c.answer.Order = o.ID
		w.History.Answer(c.answer)
		// The code that shows the error adds that training goes on.
		if err := <-over; !errors.Is(err, c.want) || strings.Contains(err.Error(), "goes on") ||
			!strings.HasSuffix(err.Error(), say.WhyOff(c.answer.Text)) {
			t.Errorf("%s: %v", c.answer.Reason, err)
		}
	}
}

func TestADescriptionHoldsWhatItsOwnOrderCaptured(t *testing.T) {
	w := rankedJob(0)
	heard := make(chan capture.Order)
	w.Control = deaf{heard: heard}
	w.History.Step(capture.Step{Index: 1, Carried: capture.Carried{Plan: 7}})
	w.History.Notice(capture.Notice{Key: "ops", Text: "an old notice"})
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
		w.History.Notice(capture.Notice{Key: "ops", Text: "another old notice"})
		w.History.Answer(capture.Answer{Order: o.ID, State: capture.OrderRefused, Reason: reason, Text: text})
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
	o := describe(0)
	w.History.Window(capture.Window{Trace: mine, Partial: true, Orders: []capture.OrderID{o.ID}})
	w.History.Answer(capture.Answer{Order: o.ID, State: capture.OrderDone})
	if tr, err := <-traced, <-over; tr != nil || !errors.Is(err, errEnded) {
		t.Errorf("a step that runs out of memory while it is captured: %v, %v", tr, err)
	}
	at := int64(1)
	done := func(number, under int64) (*traces.Trace, error) {
		o := describe(number)
		at++
		w.History.Step(capture.Step{Index: at, Carried: capture.Carried{Plan: under}})
		w.History.Window(capture.Window{Trace: mine, First: at, Last: at, How: capture.HowOps,
			Orders: []capture.OrderID{1, o.ID}})
		w.History.Window(capture.Window{Trace: others, First: at, Last: at, How: capture.HowOps,
			Orders: []capture.OrderID{o.ID + 1}})
		w.History.Answer(capture.Answer{Order: o.ID, State: capture.OrderDone})
		return <-traced, <-over
	}
	if tr, err := done(7, 7); tr != mine || err != nil {
		t.Errorf("%p of %p and %p: %v", tr, mine, others, err)
	}
	// The last known step ran under plan 7, which has since ended: new steps are described as they come.
	if tr, err := done(0, 0); tr != mine || err != nil {
		t.Errorf("without a plan: %v", err)
	}
	if _, err := done(7, 0); !errors.Is(err, errGivenUp) {
		t.Errorf("the plan ended before the steps arrived: %v", err)
	}
	mine.Losses = []traces.Loss{{Name: pytorch.WindowDamaged, Detail: "line 5 is damaged"}}
	if tr, err := done(0, 0); tr != nil || err == nil ||
		err.Error() != "its steps cannot be described: line 5 is damaged" {
		t.Errorf("what arrived is damaged: %v, %v", tr, err)
	}
	// A step that was cut short is not like the other one, and describing it again would cut it short again.
	mine.Losses = []traces.Loss{{Name: pytorch.WindowRows, Count: 1}}
	mine.Ops = make([]traces.Op, 15)
	if tr, err := done(0, 0); tr != nil || err == nil || !strings.HasPrefix(err.Error(),
		"its steps cannot be described: 2 of them run more than the 15 ops that gmemtop records at once: ") {
		t.Errorf("the steps are longer than what the agent keeps: %v, %v", tr != nil, err)
	}
}

// TestNothingIsMeasuredOnceTheCallerStops: without it, a row of zeros would stand for a measurement.
func TestNothingIsMeasuredOnceTheCallerStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	gate := &live.Gate{}
	target := &Target{ranks: []*targetRank{{name: "rank 0", seat: gate.Seat(),
		of: &Member{History: capture.NewHistory(capture.Limits{})}, p: &plan.Problem{}}}}
	m, err := target.Run(ctx, target.ranks[0].p, &plan.Plan{}, plan.RunOptions{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the measurement is %+v, %v", m, err)
	}
}
