package replay_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
)

// slowDevice stands in for hardware: it returns the simulator's figures, changed by the test. It must never
// run while managers plan.
type slowDevice struct {
	planning *int
	asked    *[]string
	change   func(pl *plan.Plan, m *plan.Measurement) error
}

func (slowDevice) Name() string { return "cuda:0" }

func (d slowDevice) Run(ctx context.Context, p *plan.Problem, pl *plan.Plan,
	o plan.RunOptions) (plan.Measurement, error) {
	if *d.planning != 0 {
		return plan.Measurement{}, errors.New("a manager plans meanwhile")
	}
	*d.asked = append(*d.asked, pl.Manager)
	o.Progress("time")
	m, err := replay.Simulated{}.Run(ctx, p, pl, o)
	m.KeepAllBefore, m.KeepAllAfter, m.Verified = 38_000_000, 38_000_000, true
	if err == nil {
		err = d.change(pl, &m)
	}
	return m, err
}

// enacted compares on the simulator and a device, and returns the comparison and its progress reports.
func enacted(t *testing.T,
	change func(pl *plan.Plan, m *plan.Measurement) error) (*replay.Comparison, []string, []string) {
	t.Helper()
	return enactedOn(t, plantest.Chain(12, 8<<20, 1_000_000), change)
}

// enactedOn is enacted for another problem.
func enactedOn(t *testing.T, p *plan.Problem,
	change func(pl *plan.Plan, m *plan.Measurement) error) (*replay.Comparison, []string, []string) {
	t.Helper()
	p.Hardware.D2H, p.Hardware.H2D = plan.Link{BytesPerSecond: 4e9}, plan.Link{BytesPerSecond: 4e9}
	var asked, said []string
	planning := 0
	c, err := replay.Compare(t.Context(), p, []plan.Manager{pool.Baselines()[0], swap.All()[0]},
		replay.Options{Parallel: 2,
			Devices: []replay.Device{{Target: slowDevice{&planning, &asked, change},
				About: "a device for tests, 12.0 GiB"}},
			Update: func(u replay.Progress) {
				switch {
				case u.Target != "":
					said = append(said, u.Manager+" "+u.Doing)
				case u.Done:
					planning--
				case u.Finished == 0 && u.Total == 0:
					planning++
					time.Sleep(time.Millisecond) // a device that did not wait would begin now
				}
			}})
	if err != nil {
		t.Fatal(err)
	}
	return c, asked, said
}

func TestADeviceMeasuresEveryPlanOnceAllAreMade(t *testing.T) {
	c, asked, said := enacted(t, func(*plan.Plan, *plan.Measurement) error { return nil })
	if got := strings.Join(asked, ", "); got != "caching, vdnn-all" {
		t.Errorf("carried out: %s", got)
	}
	if got := strings.Join(said, ", "); got != "caching time, caching time, vdnn-all time, vdnn-all time" {
		t.Errorf("said: %s", got)
	}
	for i, m := range c.Measured {
		if s := c.Simulated(&m); s != &c.Results[i] || !m.Available || m.Target != "cuda:0" ||
			len(c.Causes(&m, s)) != 0 {
			t.Errorf("%s: %+v next to %+v", m.Info.Name, m, s)
		}
	}
}

// keeps is a manager of the family that moves data, and moves nothing.
type keeps struct{}

func (keeps) Info() plan.Info { return plan.Info{Name: "keeps", Family: plan.Swapping} }

func (keeps) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	return pool.Baselines()[0].Plan(ctx, p, r)
}

// A running training carries out no plan that moves nothing, or nothing that PyTorch can move. The comparison
// says so for every manager that could have moved something, and that is no failure of the training.
func TestAManagerThatMovesNothingInATrainingSaysWhy(t *testing.T) {
	var asked []string
	nothing := func(context.Context, *plan.Problem, *plan.Plan) (*plan.Plan, error) { return nil, nil }
	device := slowDevice{new(int), &asked, nil}
	c, err := replay.Compare(t.Context(), plantest.Chain(12, 8<<20, 1_000_000),
		[]plan.Manager{pool.Baselines()[0], swap.All()[0], keeps{}},
		replay.Options{Parallel: 1, Eager: nothing,
			Devices: []replay.Device{{Target: device, About: "a training", Eager: true}}})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, m := range c.Measured {
		fmt.Fprintf(&said, "%s %v %v: %s\n", m.Info.Name, m.Available, m.Err, m.Reason)
	}
	const want = "vdnn-all false <nil>: PyTorch cannot carry out any part of its plan: all of the 88.0 MiB " +
		"that the plan would move or drop stay in memory for the same reason as the largest of them, " +
		"what input makes in input (8.00 MiB): " +
		"autograd needs it again before it could have left; try another manager\n" +
		"keeps false <nil>: nothing leaves memory under its plan; at the step's peak, where loss runs, " +
		"there are 104 MiB of activations, 12.0 MiB of parameters and 8.00 MiB of gradients (the largest: " +
		"what input makes in input, 8.00 MiB): make the largest of these smaller, or try another manager\n"
	if got := said.String(); got != want || asked != nil {
		t.Errorf("it says\n%s\nand not\n%s\nand %q were carried out", got, want, asked)
	}
}

// TestEveryMeasuredFigureIsNextToItsSimulation reads the row of a plan that stalls twice as long as
// simulated, which makes its step longer by as much.
func TestEveryMeasuredFigureIsNextToItsSimulation(t *testing.T) {
	c, _, _ := enacted(t, func(pl *plan.Plan, m *plan.Measurement) error {
		if pl.Manager == "vdnn-all" {
			m.StepTime += m.Stall
			m.Stall *= 2
			m.OutRate, m.InRate, m.Footprint = 3.7e9, 4.1e9, m.Footprint+m.Footprint/100
		}
		return nil
	})
	s := text(t, c, replay.TextOptions{})
	_, measured, _ := strings.Cut(s, "measured  on cuda:0")
	var head, row string
	for line := range strings.Lines(measured) {
		switch f := strings.Join(strings.Fields(line), " "); {
		case strings.HasPrefix(f, "manager "):
			head = f
		case strings.HasPrefix(f, "vdnn-all in theory "):
			row = f
		}
	}
	if head != "manager runs footprint off step p95 off overhead simulated stall simulated out in" {
		t.Errorf("the heading is %q", head)
	}
	y := &c.Results[1].Measurement
	off := replay.Percent(float64(y.Stall) / float64(y.StepTime))
	for _, want := range []string{" +1.0 % ", " " + off + " ",
		timeline.Duration(2*y.Stall) + " " + timeline.Duration(y.Stall), "3.7 GB/s 4.1 GB/s"} {
		if !strings.Contains(row, want) {
			t.Errorf("no %q in the row %q", want, row)
		}
	}
}

// TestDifferencesAreExplainedOnlyByCounters checks that the causes of a difference are those that the run's
// counters show, and that none is made up.
func TestDifferencesAreExplainedOnlyByCounters(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*plan.Measurement)
	}{
		{"not as simulated: none of the counters shows why",
			func(m *plan.Measurement) { m.StepTime += m.StepTime / 10 }},
		{"not as simulated: none of the counters shows why",
			func(m *plan.Measurement) { m.Footprint += m.Footprint / 10 }},
		{"copies to the host reached 2 GB/s, simulated with 4",
			func(m *plan.Measurement) { m.StepTime, m.OutRate, m.InRate = m.StepTime*2, 2e9, 4.1e9 }},
		{"keeping everything took 38.0 ms before and 50.0 ms after",
			func(m *plan.Measurement) { m.KeepAllAfter = 50_000_000 }},
		{"30 of 37 launches found the device with nothing to do",
			func(m *plan.Measurement) { m.StepTime, m.Dry, m.Launches = m.StepTime*2, 30, 37 }},
		{"it released its cache 4 times an iteration, simulated 0",
			func(m *plan.Measurement) { m.StepTime, m.Retries = m.StepTime*2, 4 }},
	} {
		cmp, _, _ := enacted(t, func(pl *plan.Plan, m *plan.Measurement) error {
			if pl.Manager == "vdnn-all" {
				c.change(m)
			}
			return nil
		})
		s := text(t, cmp, replay.TextOptions{})
		if !strings.Contains(s, c.want) || strings.Count(s, "not as simulated") != 1 {
			t.Errorf("%q is not mentioned in\n%s", c.want, s)
		}
	}
}

// TestWithoutEnginesWorkIsShownNextToTheSimulation runs on a busy machine: steps last twice as long with and
// without a plan, and the thread works as long as simulated, or longer because of slower copies.
func TestWithoutEnginesWorkIsShownNextToTheSimulation(t *testing.T) {
	for _, c := range []struct {
		more int64 // nanoseconds that copies take beyond the simulation
		said string
	}{{0, ""}, {9_000_000, "vdnn-all (in theory) is not as simulated: copies took "}} {
		p := plantest.Chain(12, 8<<20, 1_000_000)
		p.Hardware.NoEngines = true
		cmp, _, _ := enactedOn(t, p, func(pl *plan.Plan, m *plan.Measurement) error {
			m.WorkBefore, m.WorkAfter = 38_000_000, 38_000_000
			m.Work = m.StepTime + c.more
			if m.CopyTime > 0 {
				m.CopyTime += c.more
			}
			m.OutRate, m.InRate = 1e9, 1e9 // less than the links' own, which have a fixed cost beside it
			m.KeepAllBefore, m.KeepAllAfter, m.StepTime = 2*m.KeepAllBefore, 2*m.KeepAllAfter, 5*m.StepTime
			if pl.Manager != "vdnn-all" {
				m.Work = m.WorkBefore
			}
			return nil
		})
		s := text(t, cmp, replay.TextOptions{})
		r, y := &cmp.Measured[1], &cmp.Results[1]
		if !r.Worked || r.Measurement.SwappedOut == 0 {
			t.Fatalf("%+v", r)
		}
		if off := r.Work - y.Overhead - float64(c.more)/float64(cmp.Baseline); off < -0.01 || off > 0.01 {
			t.Errorf("the thread works %.3f more, and %.3f was simulated", r.Work, y.Overhead)
		}
		var js strings.Builder
		if err := cmp.WriteJSON(&js, timeline.IEC); err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf(`"work_overhead": %v`, r.Work); !strings.Contains(js.String(), want) {
			t.Errorf("JSON lacks %s", want)
		}
		if c.said == "" && strings.Contains(s, "not as simulated") || !strings.Contains(s, c.said) ||
			strings.Contains(s, "GB/s, simulated") || !strings.Contains(s, "work") {
			t.Errorf("want %q in\n%s", c.said, s)
		}
	}
}

func TestAFailingDeviceLeavesTheSimulatorsResults(t *testing.T) {
	lost := errors.New("cuda:0: the GPU was lost")
	c, _, _ := enacted(t, func(pl *plan.Plan, _ *plan.Measurement) error {
		if pl.Manager == "caching" {
			return lost
		}
		return nil
	})
	if m := c.Measured[0]; m.Available || !errors.Is(m.Err, lost) || !c.Results[0].Available ||
		!c.Measured[1].Available {
		t.Errorf("%+v", c.Measured)
	}
	s := text(t, c, replay.TextOptions{})
	if !strings.Contains(s, "not available: caching on cuda:0\n  cuda:0: the GPU was lost") {
		t.Errorf("no reason in\n%s", s)
	}
	var b strings.Builder
	if err := c.WriteJSON(&b, timeline.IEC); err != nil {
		t.Fatal(err)
	}
	var out struct {
		Results []struct {
			Manager, Target, Reason string
			Verified                bool
			Overhead                float64
		}
	}
	if err := json.Unmarshal([]byte(b.String()), &out); err != nil || len(out.Results) != 4 {
		t.Fatalf("%d results, %v", len(out.Results), err)
	}
	if r := out.Results[2]; r.Target != "cuda:0" || r.Reason == "" || r.Verified {
		t.Errorf("%+v", r)
	}
	if r := out.Results[3]; r.Manager != "vdnn-all" || r.Target != "cuda:0" || !r.Verified {
		t.Errorf("%+v", r)
	}
}

// TestTheHostsTimeIsNoCauseOnAGPU has a training report the time that its thread took for ops that ran again:
// on a GPU the thread only issues them.
func TestTheHostsTimeIsNoCauseOnAGPU(t *testing.T) {
	m := &replay.Result{Measurement: plan.Measurement{Allocated: true, RecomputeTime: 9_000_000}}
	s := &replay.Result{Measurement: plan.Measurement{RecomputeTime: 700_000}}
	for _, onCPU := range []bool{false, true} {
		c := replay.Comparison{Problem: &plan.Problem{Hardware: plan.Hardware{NoEngines: onCPU}}}
		if causes := c.Causes(m, s); len(causes) > 0 != onCPU {
			t.Errorf("on a CPU %v: %q", onCPU, causes)
		}
	}
}

// A training that carries out another plan than the given one, made for less, is compared with what is
// simulated of that one.
func TestAPlanThatWasMadeForLessIsShownInPlaceOfTheFirst(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 1_000_000)
	less, err := swap.All()[0].Plan(t.Context(), p, plan.Request{Budget: p.Held() * 3 / 4})
	if err != nil {
		t.Fatal(err)
	}
	c, _, _ := enactedOn(t, p, func(pl *plan.Plan, m *plan.Measurement) error {
		if pl.Manager == "vdnn-all" {
			m.Plan = less
		}
		return nil
	})
	m, r := &c.Measured[1], &c.Results[1]
	want, err := replay.Simulated{}.Run(t.Context(), p, less, plan.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m.Plan != less || c.Simulated(m) != r || r.Info.Name != "vdnn-all" || !r.Fits ||
		r.Measurement.Footprint != want.Footprint || r.Overhead == 0 {
		t.Errorf("measured %+v next to %+v, and %d bytes are simulated", m, c.Simulated(m), want.Footprint)
	}
	if first := &c.Results[0]; first.Plan == less || c.Simulated(&c.Measured[0]) != first {
		t.Errorf("the other plan became %+v", first)
	}
}

// TestAStoppedMeasurementIsNoResult: the plan under way when the caller stops has no figures, and no fault.
func TestAStoppedMeasurementIsNoResult(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	var asked []string
	stopping := func(*plan.Plan, *plan.Measurement) error {
		stop(replay.ErrStopped)
		return context.Canceled
	}
	device := replay.Device{Target: slowDevice{new(int), &asked, stopping}, About: "python train.py",
		Pools: true}
	c, err := replay.Compare(ctx, plantest.Chain(12, 8<<20, 1_000_000), []plan.Manager{pool.Exact()},
		replay.Options{Parallel: 1, Update: func(replay.Progress) {}, Devices: []replay.Device{device}})
	if !errors.Is(err, context.Canceled) || len(asked) != 1 || len(c.Measured) != 0 {
		t.Fatalf("%q were carried out: %+v, %v", asked, c.Measured, err)
	}
	var b strings.Builder
	if err := c.WriteText(&b, replay.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	if want := "measured  no plan, in the training itself, python train.py\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}
