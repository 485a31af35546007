package feed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// orders is a source that takes orders and remembers them. A watch sends orders from its own goroutines.
type orders struct {
	mu  sync.Mutex
	got []string
	err error
}

func (o *orders) take(order string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.got = append(o.got, strings.TrimSpace(order))
	return o.err
}

func (o *orders) Order(_ context.Context, x capture.Order) error {
	return o.take(string(x.Do) + " " + x.How)
}
func (o *orders) Detach(context.Context) error { return o.take("detach") }

// taken returns the orders so far.
func (o *orders) taken() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.got, " ")
}

// refuse makes it answer with an error from now on.
func (o *orders) refuse(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// follow runs a feed until the test ends.
func follow(t *testing.T, source job.Source) (*Process, *job.Process) {
	w := job.NewWatch(job.Options{})
	f := NewProcess(w.Process, "for the first training step")
	ctx, cancel := context.WithCancel(context.Background())
	stop := f.Start()
	if source != nil {
		w.Run(ctx, source)
	}
	t.Cleanup(func() { cancel(); stop(); w.Wait() })
	return f, w.Process
}

// until waits for a look that satisfies ok.
func until(t *testing.T, f live.Feed, what string, ok func(l live.Look) bool) live.Look {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), torchtest.Patience(t))
	defer cancel()
	for l := f.Look(); ; l = f.Look() {
		if ok(l) {
			return l
		}
		if f.Wait(ctx, l.Version) != nil {
			t.Fatalf("never came: %s; last look %+v", what, l)
		}
	}
}

func stepOf(i int64) capture.Step {
	return capture.Step{Index: i, Start: 1e9 + i*40e6, End: 1e9 + (i+1)*40e6, RSS: maybe.Known(2 << 30),
		Parameters: maybe.Known(1 << 20), Gradients: maybe.Known(1 << 20),
		OptimizerState: maybe.Known(2 << 20), Cost: 40 * time.Microsecond}
}

func TestASessionBecomesAFeed(t *testing.T) {
	f, s := follow(t, nil)
	until(t, f, "what is waited for", func(l live.Look) bool {
		return l.State == live.Waiting &&
			l.Word == "for the first training step"
	})
	s.Begin(capture.Info{PID: 7, Argv: []string{"python", "dir/train.py"}, Torch: "2.14.1"})
	for i := range int64(20) {
		s.Step(stepOf(i))
	}
	l := until(t, f, "20 steps", func(l live.Look) bool { return len(l.Steps) == 20 })
	if l.State != live.Running || l.Title != "train.py" || l.Figure != "resident memory" ||
		l.Steps[3].Bytes != maybe.Known(2<<30) || l.Steps[3].Duration != maybe.Known(40e6) {
		t.Errorf("%+v", l)
	}
	if l.Report.Duration != 40e6 || !l.Capture.Measured || l.Capture.Share != 0.001 {
		t.Errorf("report %+v, capture %+v", l.Report, l.Capture)
	}
	var sum int64
	for _, p := range l.Parts {
		sum += p.Bytes
	}
	if sum != l.Whole.Bytes || sum != 2<<30 {
		t.Errorf("parts %+v do not add up to %+v", l.Parts, l.Whole)
	}
	s.End(capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "RuntimeError: boom"})
	l = until(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
	if l.Word != "exit code 1: RuntimeError: boom" || len(l.Steps) != 20 {
		t.Errorf("%q", l.Word)
	}
}

func TestARankIsSaidAsFarAsItIsKnown(t *testing.T) {
	for _, c := range []struct {
		rank, world maybe.Int
		want        []live.Fact
	}{
		{},
		{rank: maybe.Known(0), want: []live.Fact{{Name: "rank", Value: "0"}}},
		{maybe.Known(3), maybe.Known(8), []live.Fact{{Name: "rank", Value: "3 of 8"}}},
	} {
		f, s := follow(t, nil)
		s.Begin(capture.Info{PID: 7, Rank: c.rank, WorldSize: c.world})
		l := until(t, f, "the process", func(l live.Look) bool { return len(l.Facts) > 0 })
		l.Facts = slices.DeleteFunc(l.Facts, func(x live.Fact) bool { return x.Name != "rank" })
		if !slices.Equal(l.Facts, c.want) {
			t.Errorf("rank %v of %v: %v, not %v", c.rank, c.world, l.Facts, c.want)
		}
	}
}

// Totals are taken as often as they are cheap: the last step of a job may have none.
func TestGPUJobShowsAllocatedMemoryWhicheverStepsHaveTotals(t *testing.T) {
	f, s := follow(t, nil)
	s.Begin(capture.Info{PID: 7, Device: "cuda:0"})
	for i := range int64(5) {
		step := stepOf(i)
		step.RSS = maybe.Int{}
		if i < 2 {
			step.RSS, step.Allocated = maybe.Known(9<<30), maybe.Known(3<<30+i)
			step.PeakAllocated = maybe.Known(4<<30 + i)
		}
		s.Step(step)
	}
	l := until(t, f, "5 steps", func(l live.Look) bool { return len(l.Steps) == 5 })
	if l.Figure != "allocated memory" || l.Report.Top < 0 || l.Steps[l.Report.Top].Bytes.Or(0)>>30 != 3 {
		t.Errorf("%s, at most in step %d of %+v", l.Figure, l.Report.Top, l.Steps)
	}
}

func TestACapturedStepBecomesATimelineOnce(t *testing.T) {
	f, s := follow(t, &orders{})
	s.Begin(capture.Info{PID: 7})
	s.Step(stepOf(0))
	s.Window(capture.Window{Trace: timelinetest.Sample(t), First: 0, Last: 0, How: capture.HowOps})
	first := until(t, f, "a window", func(l live.Look) bool { return len(l.Windows) == 1 }).Windows[0]
	if first.Timeline.Main() == nil || first.How != "op by op" {
		t.Errorf("%+v", first)
	}
	s.Step(stepOf(1))
	second := until(t, f, "a step more", func(l live.Look) bool { return len(l.Steps) == 2 }).Windows[0]
	if second.Timeline != first.Timeline || second.ID != first.ID {
		t.Error("the window was read twice")
	}
}

func TestStepUnderAPlanIsMarkedWheneverItsWindowArrives(t *testing.T) {
	f, s := follow(t, nil)
	s.Begin(capture.Info{PID: 7})
	under := func(i int64) capture.Step {
		x := stepOf(i)
		x.Carried.Plan = 3
		return x
	}
	s.Step(stepOf(0))
	s.Step(stepOf(1))
	s.Window(capture.Window{First: 0, Last: 1, How: capture.HowOps, Trace: timelinetest.Sample(t)})
	s.Step(under(2))
	s.Window(capture.Window{First: 2, Last: 3, How: capture.HowOps, Trace: timelinetest.Sample(t)})
	// the plan of a step is reported after it
	s.Window(capture.Window{First: 4, Last: 4, How: capture.HowOps, Trace: timelinetest.Sample(t)})
	s.Step(stepOf(3))
	s.Step(under(4))
	l := until(t, f, "three windows and five steps", func(l live.Look) bool {
		return len(l.Windows) == 3 &&
			len(l.Steps) == 5
	})
	for i, want := range []bool{false, true, true} {
		if l.Windows[i].UnderPlan != want {
			t.Errorf("window %d is said to be under a plan: %v", i, l.Windows[i].UnderPlan)
		}
	}
	for i, want := range []bool{false, false, true, false, true} {
		if l.Steps[i].UnderPlan != want {
			t.Errorf("step %d is said to be under a plan: %v", i, l.Steps[i].UnderPlan)
		}
	}
	if l.Capture.Lean != "a plan" {
		t.Errorf("detaching warns that the process trains with %q", l.Capture.Lean)
	}
	tried := stepOf(5)
	tried.Carried.Plan = -1
	s.Step(tried)
	x := until(t, f, "a step more", func(l live.Look) bool { return len(l.Steps) == 6 })
	if x.Steps[5].UnderPlan || !x.Steps[5].Trial || x.Capture.Lean != "" {
		t.Errorf("a step in which a plan is only tried is %+v, and detaching warns of %q", x.Steps[5],
			x.Capture.Lean)
	}
	s.Begin(capture.Info{PID: 7, Offloads: true})
	s.Step(stepOf(6))
	until(t, f, "that saved tensors wait on the host",
		func(l live.Look) bool { return l.Capture.Lean == "what it saves on the host" })
	s.Begin(capture.Info{PID: 7})
	s.Step(stepOf(7))
	until(t, f, "nothing to lose", func(l live.Look) bool { return l.Capture.Lean == "" })
}

func TestOrdersReachTheSourceAndItsRefusalComesBack(t *testing.T) {
	o := &orders{}
	f, s := follow(t, o)
	s.Begin(capture.Info{PID: 7})
	for _, kind := range []live.OrderKind{live.Describe, live.Every, live.Detach} {
		if err := f.Order(t.Context(), live.Order{Kind: kind, Steps: 10}); err != nil {
			t.Error(err)
		}
	}
	if got := o.taken(); got != "describe every detach" {
		t.Errorf("the source got %s", got)
	}
	s.Step(stepOf(0))
	until(t, f, "the order in force", func(l live.Look) bool {
		return l.Capture.Every == 10 &&
			l.Capture.Pending && l.Capture.Connected
	})
	o.refuse(errors.New("the job has ended"))
	if err := f.Order(t.Context(), live.Order{Kind: live.Describe}); err == nil {
		t.Error("the source's refusal is not returned")
	}
}

// A depth's cost is how much longer its last window took, per step; depths that the agent does not have are
// not offered.
func TestTheCostOfADepthIsThatOfItsLastWindow(t *testing.T) {
	v := capture.View{Info: capture.Info{Capabilities: []string{"steps", capture.HowOps,
		capture.HowProfile}}, Windows: []capture.Window{
		{First: 2, Last: 3, How: capture.HowOps, Cost: 90 * time.Millisecond},
		{First: 10, Last: 11, How: capture.HowOps, Cost: 60 * time.Millisecond},
		{First: 12, Last: 12, How: capture.HowProbes, Cost: time.Second}}}
	list := depths(v)
	if len(list) != 2 || list[0].How != capture.HowOps || list[0].Cost != 30*time.Millisecond ||
		list[1].How != capture.HowProfile || list[1].Cost != 0 {
		t.Errorf("%+v", list)
	}
}

func TestTailKeepsTheLastLinesAndAProgressBarsLastState(t *testing.T) {
	f, s := follow(t, nil)
	if l := f.Look(); l.Output != nil {
		t.Error("a job that was not started here has output")
	}
	s.Output([]byte("loading\nepoch 1:  10%\repoch 1:  20%\r\nloss \x1b[31m3.2\n"))
	l := until(t, f, "output", func(l live.Look) bool { return len(l.Output) == 3 })
	if l.Output[0] != "loading" || l.Output[1] != "epoch 1:  20%" || strings.Contains(l.Output[2], "\x1b") {
		t.Errorf("%q", l.Output)
	}
}

func TestRisingCountsBecomeCountsPerStep(t *testing.T) {
	f, s := follow(t, nil)
	for i, ooms := range []int64{0, 0, 2, 2, 3} {
		x := stepOf(int64(i))
		x.Allocated, x.Reserved, x.OOMs = maybe.Known(1<<30), maybe.Known(2<<30), maybe.Known(ooms)
		s.Step(x)
	}
	l := until(t, f, "5 steps", func(l live.Look) bool { return len(l.Steps) == 5 })
	var got []int64
	for _, st := range l.Steps {
		got = append(got, st.OOMs)
	}
	if got[2] != 2 || got[3] != 0 || got[4] != 1 || l.Figure != "allocated memory" {
		t.Errorf("%v %s", got, l.Figure)
	}
}

// Steps that are not kept one by one any more stay on the screen, summed up.
func TestStepsThatAreNotKeptAreSummedUp(t *testing.T) {
	for _, allocator := range []bool{false, true} {
		w := job.NewWatch(job.Options{Keep: capture.Limits{Steps: 100}})
		t.Cleanup(func() { w.Wait() })
		f := NewProcess(w.Process, "")
		t.Cleanup(f.Start())
		bytes, tensors := maybe.Known(2<<30), maybe.Known(4<<20)
		for i := range int64(1000) {
			x := stepOf(i)
			if allocator {
				x.Allocated, bytes, tensors = maybe.Known(3<<30), maybe.Known(3<<30), maybe.Int{}
			}
			w.Process.Step(x)
		}
		l := until(t, f, "all steps", func(l live.Look) bool {
			n := len(l.Steps)
			return n > 0 && l.Steps[n-1].Index == 999
		})
		next := int64(0)
		for _, p := range l.Rolled {
			if p.First != next || p.Bytes != bytes || p.Tensors != tensors {
				t.Errorf("%+v, where step %d is next", p, next)
			}
			next = p.First + p.Steps
		}
		if next != l.Steps[0].Index || next < 800 {
			t.Errorf("spans up to step %d, and steps from %d on", next, l.Steps[0].Index)
		}
	}
}

// A look says from when steps are counted, and tells a job that ended from one that was detached from.
func TestALookSaysFromWhenStepsAreCountedAndWhoEnded(t *testing.T) {
	for reason, detached := range map[string]bool{capture.Detached: true, capture.Exited: false} {
		f, s := follow(t, nil)
		f.countsFrom("since attach")
		s.Begin(capture.Info{PID: 7, Capabilities: []string{"steps"}})
		l := until(t, f, "the process", func(l live.Look) bool { return len(l.Facts) > 0 })
		want := live.Fact{Name: "steps", Value: "counted from 0, like enumerate(), since attach"}
		if l.Since != "since attach" || !slices.Contains(l.Facts, want) {
			t.Errorf("since %q, facts %v", l.Since, l.Facts)
		}
		s.End(capture.End{Reason: reason})
		l = until(t, f, "the end", func(l live.Look) bool { return l.State == live.Ended })
		if l.Detached != detached {
			t.Errorf("%s: detached is %v", reason, l.Detached)
		}
	}
}
