package planner_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// recorded returns a rank's recording that the program carries.
func recorded(t *testing.T, name string) *traces.Trace {
	t.Helper()
	trace, err := load.Open(t.Context(), "../../../../traces/samples/"+name, load.Options{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// Whichever rank is in view, the screen plans for the fullest of those that captured the same step, and its
// figures are those of all of them: the memory of the fullest and the step of the slowest. A rank with
// another step, and a device that nobody captured, do not count.
func TestAFleetPlansForAllRanksThatCapturedTheStep(t *testing.T) {
	ctx := t.Context()
	first := job.NewWatch(job.Options{})
	j := job.New(first)
	defer j.Close()
	small, large, other := recorded(t, "resnet18-steps-cpu.gmt"), recorded(t, "gpt-steps-cpu.gmt"),
		recorded(t, "gpt-steps-cpu.gmt")
	for i, w := range []capture.Window{{Trace: small, First: 5, Last: 6}, {Trace: large, First: 5, Last: 6},
		{Trace: other, First: 7, Last: 8}} {
		p, info := first.Process, capture.Info{PID: 10 + i, Rank: maybe.Known(int64(i)),
			WorldSize: maybe.Known(int64(3))}
		if i > 0 {
			p = j.Add(info, nil)
		}
		p.Begin(info)
		p.Step(capture.Step{Index: 8, Start: 1, End: 2})
		p.History.Window(w)
	}
	f, alone := planner.NewFleet(j), planner.New()
	h := f.Hardware()[0]
	device := func(recording *traces.Trace) *timeline.Device {
		tl, err := timeline.Build(ctx, recording, nil)
		if err != nil {
			t.Fatal(err)
		}
		return tl.Main()
	}
	problem := func(d *timeline.Device) *plan.Problem {
		p, err := f.Problem(ctx, d, h)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	names := []string{"caching"}
	measured := func(c *replay.Comparison, err error) plan.Measurement {
		t.Helper()
		if err != nil || len(c.Results) == 0 || !c.Results[0].Valid {
			t.Fatalf("%+v %v", c, err)
		}
		return c.Results[0].Measurement
	}
	quiet := func(replay.Progress) {}
	named := *large // as the screen shows it in Diff
	named.Process.Rank = maybe.Known(int64(1))
	p, q := problem(device(small)), problem(device(&named))
	ranks := func(p *plan.Problem) int { n, _ := f.Ranks(p); return n }
	if ranks(p) != 2 || ranks(q) != 2 || ranks(problem(device(other))) != 1 {
		t.Errorf("they stand for %d, %d and %d ranks", ranks(p), ranks(q), ranks(problem(device(other))))
	}
	each := func(recording *traces.Trace) plan.Measurement {
		p, err := alone.Problem(ctx, device(recording), h)
		if err != nil {
			t.Fatal(err)
		}
		return measured(alone.Compare(ctx, p, names, 0, quiet))
	}
	a, b := each(small), each(large)
	if _, fullest := f.Ranks(p); p.Hash() != q.Hash() || fullest != "rank 1" {
		t.Errorf("from different ranks other plans are asked for, or the fullest is %q", fullest)
	}
	for name, of := range map[string]*plan.Problem{"small": p, "large": q} {
		m := measured(f.Compare(ctx, of, names, 0, quiet))
		if m.Footprint != max(a.Footprint, b.Footprint) || m.StepTime != max(a.StepTime, b.StepTime) ||
			a.Footprint == b.Footprint || len(m.Usage) == 0 {
			t.Errorf("from the %s one: %d in %d; alone %d in %d and %d in %d", name, m.Footprint, m.StepTime,
				a.Footprint, a.StepTime, b.Footprint, b.StepTime)
		}
	}
	if d := device(recorded(t, "resnet18-steps-cpu.gmt")); ranks(problem(d)) != 1 {
		t.Error("a recording that is no rank's stands for several")
	}
}
