package live

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"charm.land/bubbles/v2/key"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

// fakeFeed is a job without news that records what it is asked for.
type fakeFeed struct {
	look   Look
	orders []Order
	refuse error
}

func (f *fakeFeed) Look() Look                                    { return f.look }
func (f *fakeFeed) Wait(ctx context.Context, version int64) error { return ctx.Err() }
func (f *fakeFeed) Order(_ context.Context, o Order) error {
	f.orders = append(f.orders, o)
	return f.refuse
}

// running is a job of n steps of 40 ms and 2 GiB, step 60 of which takes more.
func running(t *testing.T, n int) Look {
	l := Look{
		Version: 1, State: Running, Title: "train.py", Figure: "peak allocated",
		Facts: []Fact{{Name: "pid", Value: "4242"}, {Name: "python", Value: "3.11.7"},
			{Name: "torch", Value: "2.14.1"},
			{Name: "device", Value: "cuda:0, 80 GiB"}},
		Capture: Capture{Every: 100, Share: 0.0031, Measured: true, Connected: true},
		Parts: []Entry{
			{Name: "parameters", Bytes: 400 << 20}, {Name: "gradients", Bytes: 400 << 20},
			{Name: "optimizer state", Bytes: 800 << 20},
			{Name: "activations and others", Bytes: 448 << 20}, {Name: "cached", Bytes: 300 << 20},
			{Name: "unexplained", Bytes: 52 << 20, Unexplained: true},
		},
		Whole: Entry{Name: "Reserved", Bytes: 2400 << 20},
	}
	var bytes, took []maybe.Int
	for i := range n {
		st := Step{Index: int64(i), Duration: maybe.Known(40e6 + int64(i%7)*1e5),
			Forward: maybe.Known(14e6), Backward: maybe.Known(21e6), Optimizer: maybe.Known(5e6),
			Bytes: maybe.Known(2 << 30), Reserved: maybe.Known(2400 << 20),
			Held: maybe.Known(1600 << 20), Cost: maybe.Known(120e3)}
		if i == 60 {
			st.Bytes, st.Duration = maybe.Known(2600<<20), maybe.Known(95e6)
		}
		l.Steps = append(l.Steps, st)
		bytes, took = append(bytes, st.Bytes), append(took, st.Duration)
	}
	l.Report = steps.Watch(bytes, took, 0, 0)
	l.Alerts = AlertsOf(l.Steps, &l.Report, nil)
	tl := viewtest.Training{Iterations: 1, Layers: 4}.Timeline(t)
	for _, at := range []int64{3, 103} {
		if at < int64(n) {
			l.Windows = append(l.Windows, Window{ID: at, First: at, Last: at, How: "op by op", Timeline: tl,
				Cost: 31 * time.Millisecond})
		}
	}
	return l
}

func open(t *testing.T, l Look) (*viewtest.Screen, *View, *fakeFeed) {
	f := &fakeFeed{look: l}
	v := New(f)
	v.Take(l)
	return viewtest.Open(t, v), v, f
}

func TestScreens(t *testing.T) {
	for name, of := range map[string]func() Look{
		"running": func() Look { return running(t, 160) },
		"waiting": func() Look {
			return Look{Version: 1, Word: "for the interpreter of pid 4242 to come to its next instruction",
				Title: "train.py",
				Facts: []Fact{{Name: "pid", Value: "4242"},
					{Name: "command", Value: "python train.py --epochs 3"}},
				Notices: []string{"attached by ptrace; the job stood still for 0.4 ms"}}
		},
		"early": func() Look {
			return Look{Version: 1, State: Running, Title: "train.py",
				Facts: []Fact{{Name: "pid", Value: "4242"},
					{Name: "in memory", Bytes: maybe.Known(1536 << 20)}},
				Output: []string{"loading data", "epoch 0"}}
		},
		"leak": func() Look {
			l := running(t, 100)
			var bytes, took []maybe.Int
			for i := range l.Steps {
				l.Steps[i].Bytes = maybe.Known(2<<30 + int64(i)<<20)
				bytes, took = append(bytes, l.Steps[i].Bytes), append(took, l.Steps[i].Duration)
			}
			l.Report = steps.Watch(bytes, took, 0, 0)
			l.Alerts = AlertsOf(l.Steps, &l.Report, nil)
			return l
		},
		"ended": func() Look {
			l := running(t, 1200)
			l.State, l.Word, l.Capture.Connected = Ended, "exit code 0", false
			l.Notices = []string{"the model is compiled: ops inside of it cannot be seen, allocator " +
				"history is used instead"}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			sc, v, _ := open(t, of())
			if len(v.look.Windows) > 1 {
				v.Show(v.look.Windows[1].ID, false)
			}
			sc.Golden(name)
		})
	}
}

func TestKeysBecomeOrders(t *testing.T) {
	sc, _, f := open(t, running(t, 20))
	sc.Press("r")
	if len(f.orders) != 1 || !reflect.DeepEqual(f.orders[0], Order{Kind: Describe, Steps: 1}) {
		t.Errorf("orders %+v", f.orders)
	}
	sc.Press("E")
	pick, ok := sc.Sent[len(sc.Sent)-1].(leaf.PickMsg)
	if !ok {
		t.Fatalf("a sent %+v", sc.Sent)
	}
	sc.Send(pick.Choices[1].Msg)
	if len(f.orders) != 2 || !reflect.DeepEqual(f.orders[1], Order{Kind: Every, Steps: 10}) {
		t.Errorf("orders %+v", f.orders)
	}
	f.refuse = errors.New("the job has ended")
	sc.Press("r")
	if last, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok || !last.Error ||
		last.Text != "the job has ended" {
		t.Errorf("a refused order says %+v", sc.Sent)
	}
}

// A key chooses how steps are captured, next to the measured cost of each way.
func TestTheDepthIsChosenNextToItsCost(t *testing.T) {
	l := running(t, 20)
	l.Capture.Depth = "ops"
	l.Capture.Depths = []Depth{{How: "ops", Name: "op by op", Shows: "each op", Cost: 31 * time.Millisecond},
		{How: "history", Name: "allocator history", Shows: "segments"}}
	sc, _, f := open(t, l)
	sc.Press("I")
	pick, ok := sc.Sent[len(sc.Sent)-1].(leaf.PickMsg)
	if !ok || len(pick.Choices) != 2 {
		t.Fatalf("d sent %+v", sc.Sent)
	}
	if got, want := pick.Choices[0].Detail, "current; costs 31.0 ms; each op"; got != want {
		t.Errorf("the filter in force is described as %q, want %q", got, want)
	}
	if got := pick.Choices[1].Detail; got != "segments" { // it was not measured yet
		t.Errorf("what was not tried is shown as %q", got)
	}
	sc.Send(pick.Choices[1].Msg)
	if len(f.orders) != 1 || !reflect.DeepEqual(f.orders[0], Order{Kind: Deepen, How: "history"}) {
		t.Errorf("orders %+v", f.orders)
	}
	l.Capture.Depths = l.Capture.Depths[:1]
	if sc, _, _ = open(t, l); len(sc.Sent) > 0 {
		t.Fatalf("it sends %+v by itself", sc.Sent)
	}
	if sc.Press("I"); len(sc.Sent) > 0 {
		t.Errorf("d sent %+v although there is no choice", sc.Sent)
	}
}

// While a plan is being made the training runs parts of plans, to learn what they cost. None of them is the
// plan that the user asked for.
func TestAStepInWhichAPlanIsTriedIsNotUnderAPlan(t *testing.T) {
	look := running(t, 20)
	look.Steps[len(look.Steps)-1].Trial = true
	sc, v, _ := open(t, look)
	text := sc.Text(120, 36)
	if want := " while a plan is being made"; !strings.Contains(text, want) ||
		!strings.Contains(v.Status(sc.State), want) || !strings.Contains(text, "▸ ") ||
		strings.Contains(text, "under a plan") || strings.Contains(text, "▶") {
		t.Errorf("status %q, screen\n%s", v.Status(sc.State), text)
	}
}

func TestDetachingWarnsAboutPlans(t *testing.T) {
	for lean, want := range map[string]string{
		"": "The job keeps running, and nothing is left in it.",
		"a plan": "It trains with a plan, which ends too: if a step does not fit without it, the " +
			"job runs out of memory.",
	} {
		look := running(t, 20)
		look.Capture.Lean = lean
		sc, _, _ := open(t, look)
		sc.Press("X")
		if pick, ok := sc.Sent[len(sc.Sent)-1].(leaf.PickMsg); !ok || pick.Footer != want {
			t.Errorf("X with %q says %+v", lean, sc.Sent)
		}
	}
}

func TestOnlyCapturedStepsOpen(t *testing.T) {
	sc, v, _ := open(t, running(t, 20))
	sc.Text(120, 36)
	sc.Press("enter")
	if m, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok || !strings.Contains(m.Text, "only totals") {
		t.Errorf("opening a step of totals sent %+v", sc.Sent)
	}
	sc.Press("end", "up", "up", "up")
	sent := v.Update(sc.State, viewtest.Key("enter"))()
	if m, ok := sent.(OpenMsg); !ok || m.Window.First != 3 {
		t.Errorf("opening step 3 sent %+v", sent)
	}
}

func TestTheSelectedStepStaysAndTheNewestFollows(t *testing.T) {
	sc, v, _ := open(t, running(t, 20))
	sc.Text(120, 36)
	v.Take(running(t, 30))
	if st, _ := v.look.step(v.steps.Selected()); st.Index != 29 {
		t.Errorf("the newest step is not followed: %d", st.Index)
	}
	sc.Press("down", "down")
	v.Take(running(t, 40))
	if st, _ := v.look.step(v.steps.Selected()); st.Index != 27 {
		t.Errorf("the selected step moved to %d", st.Index)
	}
}

// Refusals and notices are shown in full below the steps, and the newest steps stay
// above it.
func TestNoticesBelowTheStepsAreNotCut(t *testing.T) {
	const why = "code under torch.compile would run eagerly if it were described op by op, so what it " +
		"allocates is captured by the allocator's history"
	const notice = "the training opened a file of more than 2 GiB while a step was captured: what the step " +
		"took is with it and not without it"
	l := running(t, 160)
	l.Capture.No, l.Notices = why, []string{notice}
	sc, _, _ := open(t, l)
	text := strings.Join(strings.Fields(sc.Text(80, 20)), " ")
	for _, want := range []string{"nothing is captured: " + why, notice, "159 40.5 ms"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is cut:\n%s", want, sc.Text(80, 20))
		}
	}
}

// esc closes the output before it leaves the view, and is the root's again afterwards.
func TestEscLeavesTheOutputForTheSteps(t *testing.T) {
	l := running(t, 20)
	l.Output = []string{"epoch 0"}
	sc, v, _ := open(t, l)
	for _, leave := range []string{"esc", "O"} {
		sc.Press("O")
		if !v.out || !binds(v, sc.State, leave) {
			t.Errorf("O: output %v, and %s is bound: %v", v.out, leave, binds(v, sc.State, leave))
		}
		sc.Press(leave)
		if v.out || binds(v, sc.State, "esc") {
			t.Errorf("%s: output %v, esc is bound: %v", leave, v.out, binds(v, sc.State, "esc"))
		}
	}
}

// binds reports whether a view answers a key now.
func binds(v *View, s *leaf.State, k string) bool {
	return slices.ContainsFunc(v.Bindings(s), func(b key.Binding) bool {
		return slices.Contains(b.Keys(), k)
	})
}
