package sim_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// serial is a random problem whose hardware has no copy engines, with a random plan.
func serial(t *testing.T, seed uint64) (*plan.Problem, *plan.Plan) {
	t.Helper()
	p := plantest.Random(seed, 10+int(seed%60))
	p.Hardware.NoEngines = true
	p.Hardware.D2H.Latency, p.Hardware.H2D.Latency = 700, 1300
	pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 0.8))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	return p, pl
}

// work adds up the first queue's work under a plan: its ops, recomputed ops, and all copies.
func work(p *plan.Problem, pl *plan.Plan) (sum int64) {
	for _, s := range pl.Steps {
		switch {
		case s.Kind == plan.Out:
			sum += p.Hardware.D2H.Time(pl.Instances[s.Instance].Size)
		case s.Kind == plan.In:
			sum += p.Hardware.H2D.Time(pl.Instances[s.Instance].Size)
		case s.Queue == 0 && (s.Kind == plan.Run || s.Kind == plan.Again):
			sum += p.DurationOf(pl, s.Op)
		}
	}
	return sum
}

func TestWithoutEnginesAStepTakesComputeAndCopies(t *testing.T) {
	copied, single := 0, 0
	for seed := range uint64(200) {
		p, pl := serial(t, seed)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sum, copies := work(p, pl), int64(0)
		for _, s := range pl.Steps {
			switch s.Kind {
			case plan.Out:
				copies += p.Hardware.D2H.Time(pl.Instances[s.Instance].Size)
			case plan.In:
				copies += p.Hardware.H2D.Time(pl.Instances[s.Instance].Size)
			}
		}
		if m.CopyTime != copies {
			t.Errorf("seed %d: copies of %d ns, they take %d", seed, m.CopyTime, copies)
		}
		if m.Makespan < sum {
			t.Errorf("seed %d: a step of %d ns, and its first queue has work for %d", seed, m.Makespan, sum)
		}
		if m.SwappedOut > 0 {
			copied++
		}
		if p.Streams > 1 {
			continue
		}
		single++
		p.Hardware.LaunchGap = 0
		if m, err = sim.Run(context.Background(), p, pl, sim.Options{}); err != nil {
			t.Fatal(err)
		}
		if m.Makespan != sum || m.Stall != 0 {
			t.Errorf("seed %d: a step of %d ns with stalls of %d, compute and copies take %d", seed,
				m.Makespan, m.Stall, sum)
		}
	}
	if copied < 100 || single < 40 {
		t.Errorf("only %d plans copy and %d problems have one stream: the law was hardly tested",
			copied, single)
	}
}

// TestHooksTakeTimeIfTensorsLeaveAndReturn: once any tensor leaves memory and returns, hooks run for
// every tensor that autograd saves, and if any op runs again they record the ops of the forward pass.
func TestHooksTakeTimeIfTensorsLeaveAndReturn(t *testing.T) {
	hooked, noted := 0, 0
	for seed := range uint64(400) {
		p := plantest.Random(seed, 10+int(seed%60))
		if p.Streams > 1 {
			continue
		}
		p.Hardware.NoEngines, p.Hardware.LaunchGap = true, 0
		p.Hardware.SaveTime, p.Hardware.NoteTime, p.Hardware.AgainTime = 5003, 701, 97
		for i := range p.Ops {
			p.Ops[i].Phase, p.Ops[i].Module = traces.PhaseForward, "layer"
			if i%3 == 0 {
				p.Ops[i].Name = plan.SaveOp
			}
		}
		d := plantest.RandomDecisions(p, seed, 0.8)
		pl, err := plan.Assemble(p, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
			t.Fatal(err)
		}
		m, err := sim.Run(context.Background(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want, again := work(p, pl), int64(0)
		for _, r := range pl.Reruns {
			want += int64(len(r.Ops)) * p.Hardware.AgainTime
			for _, op := range r.Ops {
				again += p.DurationOf(pl, op) + p.Hardware.AgainTime
			}
		}
		var saving, noting int64
		for i := range p.Ops {
			x := p.Hardware.HookTime(&p.Ops[i], false)
			saving, noting = saving+x, noting+p.Hardware.HookTime(&p.Ops[i], true)-x
		}
		switch {
		case len(pl.Reruns) > 0:
			noted++
			want += saving + noting
		case len(pl.Absences) > 0:
			hooked++
			want += saving
		}
		if m.Makespan != want || m.RecomputeTime != again {
			t.Errorf("seed %d: a step of %d ns, work and hooks take %d; %d ns of ops run again, not %d", seed,
				m.Makespan, want, m.RecomputeTime, again)
		}
	}
	if hooked < 5 || noted < 5 {
		t.Errorf("only %d plans have hooks and %d record ops: the law was hardly tested", hooked, noted)
	}
}

func TestDiscardedTensorsHaveNoHooks(t *testing.T) {
	b := plantest.New()
	x := b.Buffer("x", 1<<20, timeline.Activation)
	for range 2 {
		b.Op(plan.SaveOp, traces.PhaseForward, 1000, nil, []plan.BufferID{x})
		b.Op("read", traces.PhaseForward, 1000, []plan.BufferID{x}, nil)
		b.Op("other", traces.PhaseForward, 1000, nil, nil)
	}
	p := b.End()
	p.Hardware.NoEngines, p.Hardware.LaunchGap, p.Hardware.SaveTime = true, 0, 5003
	gone := plan.Absence{Buffer: x, How: plan.Discard, After: 1, Before: 3, Release: 2, Fetch: 3}
	pl, err := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{gone}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.Place(context.Background(), p, pl, place.Options{}); err != nil {
		t.Fatal(err)
	}
	if m, err := sim.Run(context.Background(), p, pl, sim.Options{}); err != nil || m.Makespan != 6000 {
		t.Errorf("a step of %d ns, not of 6000: %v", m.Makespan, err)
	}
}

func TestWithoutEnginesNothingOverlapsACopyOfItsQueue(t *testing.T) {
	for seed := range uint64(100) {
		p, pl := serial(t, seed)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{Spans: true})
		if err != nil {
			t.Fatal(err)
		}
		var end int64
		for _, s := range m.Spans {
			if s.Stall && s.Start >= s.End {
				t.Errorf("seed %d: a wait without duration is shown: %+v", seed, s)
			}
			if s.Stall || s.Queue != 0 {
				continue
			}
			if s.Start < end {
				t.Fatalf("seed %d: step %d begins at %d, and the queue is busy until %d", seed, s.Step,
					s.Start, end)
			}
			end = s.End
		}
	}
}

// Without engines, the share of a link means nothing; and engines never make a step slower.
func TestWithoutEnginesTheirShareMeansNothing(t *testing.T) {
	slower := 0
	for seed := range uint64(100) {
		p, pl := serial(t, seed)
		var times [2]int64
		for k, together := range []float64{1, 0.5} {
			q := *p
			q.Hardware.Together = together
			m, err := sim.Run(context.Background(), &q, pl, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			times[k] = m.StepTime
		}
		if times[0] != times[1] {
			t.Errorf("seed %d: %d ns, and %d where engines would share a link", seed, times[0], times[1])
		}
		q := *p
		q.Hardware.NoEngines, q.Hardware.Together = false, 1
		d := plantest.RandomDecisions(&q, seed, 0.8)
		of, err := plan.Assemble(&q, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(context.Background(), &q, of, place.Options{Rule: place.BestFit}); err != nil {
			t.Fatal(err)
		}
		m, err := sim.Run(context.Background(), &q, of, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Streams == 1 && m.StepTime > times[0] {
			t.Errorf("seed %d: %d ns with engines, %d without", seed, m.StepTime, times[0])
		}
		if m.StepTime < times[0] {
			slower++
		}
	}
	if slower < 30 {
		t.Errorf("copies cost time in only %d of 100 plans: the law was hardly tested", slower)
	}
}
