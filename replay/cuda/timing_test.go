//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestTheFakeDeviceAndTheSimulatorAgreeOnTime: the problem's hardware has the fake device's figures, so the
// step time and stalls measured on it must be the simulator's.
func TestTheFakeDeviceAndTheSimulatorAgreeOnTime(t *testing.T) {
	target := device(t, 1<<30, func(o *Options) { o.Charts = true })
	stalled, swapped := 0, 0
	for seed := range uint64(12) {
		p := *plantest.Chain(5+int(seed%4), 1<<17, 100_000+40_000*int64(seed%3))
		link := plan.Link{BytesPerSecond: 1e9, Latency: 1500}
		p.Hardware.D2H, p.Hardware.H2D, p.Hardware.LaunchGap = link, link, 500
		pl := planned(t, &p, plantest.RandomDecisions(&p, seed, 0.8))
		got, err := target.Run(context.Background(), &p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want, err := sim.Run(context.Background(), &p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got, want int64) {
			if math.Abs(float64(got-want)) > 0.03*float64(want)+20_000 {
				t.Errorf("seed %d: %s is %d ns on the device and %d simulated", seed, what, got, want)
			}
		}
		near("the step", got.StepTime, want.StepTime)
		near("the stall", got.Stall, want.Stall)
		near("recomputing", got.RecomputeTime, want.RecomputeTime)
		if got.Makespan <= 0 || len(got.Spans) == 0 || got.Target != "cuda:0" {
			t.Errorf("seed %d: makespan %d, %d spans, target %s", seed, got.Makespan, len(got.Spans),
				got.Target)
		}
		if want.Stall > 0 {
			stalled++
		}
		if want.SwappedOut > 0 {
			swapped++
		}
	}
	if stalled < 3 || swapped < 3 {
		t.Errorf("only %d plans stalled and %d swapped: the law was hardly tested", stalled, swapped)
	}
}

// TestAStandInTakesTheRecordedTime runs ops of many sizes alone: whatever its mix of bytes and instructions,
// a stand-in alone takes the recorded time.
func TestAStandInTakesTheRecordedTime(t *testing.T) {
	target := device(t, 1<<30, nil)
	for _, c := range []struct{ size, duration int64 }{{1 << 10, 5_000}, {1 << 20, 50_000},
		{1 << 20, 400_000}, {1 << 12, 2_000_000}, {1 << 20, 0}} {
		p := plantest.Chain(3, c.size, c.duration)
		pl, err := KeepAll(p)
		if err != nil {
			t.Fatal(err)
		}
		m, err := target.Run(context.Background(), p, pl, plan.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var all int64
		for i := range p.Ops {
			all += p.Ops[i].Duration
		}
		if math.Abs(float64(m.StepTime-all)) > 0.01*float64(all)+3_000 {
			t.Errorf("with ops of %d bytes and %d ns an iteration takes %d ns, but %d were recorded",
				c.size, c.duration, m.StepTime, all)
		}
	}
}

func TestKeepingEverythingIsTimedBeforeAndAfter(t *testing.T) {
	var said []string
	target := device(t, 1<<30, func(o *Options) { o.Used = func() (int64, bool) { return 5 << 20, true } })
	p := plantest.Chain(4, 1<<14, 50_000)
	pl := planned(t, p, plantest.RandomDecisions(p, 1, 1))
	m, err := target.Run(context.Background(), p, pl,
		plan.RunOptions{Progress: func(doing string) { said = append(said, doing) }})
	if err != nil {
		t.Fatal(err)
	}
	if m.KeepAllBefore <= 0 || m.KeepAllAfter <= 0 || m.KeepAll() >= m.StepTime || !m.Verified ||
		m.OutRate <= 0 || m.InRate <= 0 || m.Launches == 0 {
		t.Errorf("%+v", m)
	}
	if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes,
		"NVML counts 5.00 MiB for this process") {
		t.Errorf("notes: %s", notes)
	}
	if got := strings.Join(said, ", "); got != "verify, keep everything, time, keep everything" {
		t.Errorf("it said: %s", got)
	}
}

// TestKeepingEverythingIsTimedEvenIfItDoesNotFit: plans are for the very cases in which keeping everything
// does not fit; overlapping blocks take the same time.
func TestKeepingEverythingIsTimedEvenIfItDoesNotFit(t *testing.T) {
	p := plantest.Chain(8, 1<<20, 100_000)
	all, err := KeepAll(p)
	if err != nil {
		t.Fatal(err)
	}
	step := func(limit int64) int64 {
		var got int64
		target := device(t, 1<<30, nil)
		err := target.with(context.Background(), func(led *ledger, k []driver.Kernel) error {
			r := &measurer{ctx: context.Background(), led: led, k: k, opt: target.opt}
			if err := target.measureRates(r); err != nil {
				return err
			}
			led.limit = limit
			folded, err := r.keepAllPlan(p)
			if err != nil {
				return err
			}
			if folded.Footprint > limit {
				t.Errorf("%d bytes are taken, but only %d may be", folded.Footprint, limit)
			}
			got, err = r.keepAll(p, folded)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if all.Footprint < 4<<20 {
		t.Fatal("the problem is too small to try anything")
	}
	whole, folded := step(1<<29), step(all.Footprint/3)
	if math.Abs(float64(folded-whole)) > 0.01*float64(whole) {
		t.Errorf("%d ns where it fits, %d where it does not", whole, folded)
	}
}

func TestAllocatorsUnderACapGiveMemoryBackOnlyWhenWorkOnItIsDone(t *testing.T) {
	target := device(t, 1<<30, nil)
	for _, c := range []struct{ settings, call string }{{"", "cuMemFree_v2"},
		{"expandable_segments:True", "cuMemUnmap"}} {
		p, pl, want := pressed(t, plan.Policy{Name: "caching", Settings: c.settings})
		target.opt.Iterations, target.opt.skipVerification = 1, true
		got, err := target.Run(context.Background(), p, pl, plan.RunOptions{Cap: want.Footprint})
		if err != nil {
			t.Fatal(err)
		}
		if got.Footprint != want.Footprint || got.Reserved != want.Reserved {
			t.Errorf("%q: %d bytes needed and %d held, simulated %d and %d", c.settings, got.Footprint,
				got.Reserved, want.Footprint, want.Reserved)
		}
		reset(1<<30, 0)
		err = target.with(context.Background(), func(led *ledger, k []driver.Kernel) error {
			r := &measurer{ctx: context.Background(), led: led, k: k, opt: target.opt}
			return r.session(p, pl, want.Footprint, func(x *execution) error {
				before := lib.Calls(c.call)
				if err := x.verify(); err != nil {
					return err
				}
				if lib.Calls(c.call) == before {
					t.Errorf("%q: no memory was given back under the cap", c.settings)
				}
				if lib.Peak() > want.Footprint+resultBytes+512 {
					t.Errorf("%q: %d bytes were held under a cap of %d", c.settings, lib.Peak(),
						want.Footprint)
				}
				return nil
			})
		})
		if err != nil {
			t.Errorf("%q: %v", c.settings, err)
		}
	}
}

// pressed returns a small problem, an online allocator's plan for it, and the simulated figures: it needs
// less than it holds without pressure.
func pressed(t *testing.T, policy plan.Policy) (*plan.Problem, *plan.Plan, plan.Measurement) {
	t.Helper()
	for seed := range uint64(200) {
		p := plantest.Random(seed, 16)
		for i := range p.Buffers {
			p.Buffers[i].Size = min(p.Buffers[i].Size*40, 5<<20)
		}
		for i := range p.Ops {
			p.Ops[i].Variants, p.Ops[i].Duration = nil, p.Ops[i].Duration/10
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		pl := kept(t, p, policy)
		m, err := sim.Run(context.Background(), p, pl, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Reserved > m.Footprint && p.Streams == 1 {
			return p, pl, m
		}
	}
	t.Fatal("no problem puts pressure on the allocator")
	return nil, nil, plan.Measurement{}
}

func TestDevicesAreListed(t *testing.T) {
	target := device(t, 1<<30, nil)
	two := machine(1<<30, 0)
	two.Devices = 2
	lib.Reset(two)
	list, err := Devices(lib.Path())
	if err != nil || len(list) != 2 || list[0].UUID == list[1].UUID {
		t.Errorf("%+v, %v", list, err)
	}
	_, info, err := Open(context.Background(), target.opt)
	if err != nil || info.Name != "Stand-in GPU" {
		t.Errorf("%+v, %v", info, err)
	}
	var none driver.Info
	if _, got, err := Open(context.Background(), Options{Ordinal: 5, Library: lib.Path()}); err == nil ||
		got != none {
		t.Errorf("GPU 5 of 2: %+v, %v", got, err)
	}
}
