//go:build cuda && linux && cgo

package cuda

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin/control"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

func TestValidPlansPassOnTheDeviceInEveryOrder(t *testing.T) {
	target := device(t, 1<<30, nil)
	moved := 0
	for seed := range uint64(40) {
		p, pl := placed(t, seed, 0.7)
		moved += len(pl.Absences)
		for _, order := range []uint64{control.Late, control.Once, control.Drawn + seed} {
			lib.Order(order)
			if _, err := target.Run(context.Background(), p, pl, plan.RunOptions{}); err != nil {
				t.Fatalf("seed %d, order %d: %v", seed, order, err)
			}
		}
	}
	if moved == 0 {
		t.Error("no plan moved anything")
	}
}

// verifyOnly runs the verification alone.
func verifyOnly(t *testing.T, target *Target, p *plan.Problem, pl *plan.Plan) error {
	t.Helper()
	return target.with(context.Background(), func(led *ledger, k []driver.Kernel) error {
		r := &measurer{ctx: context.Background(), led: led, k: k, opt: target.opt}
		return r.session(p, pl, led.limit, (*execution).verify)
	})
}

// TestLeavingOutAnyWaitOfAPlanIsDetected removes each wait of a plan, one at a time. If the validator then
// finds the plan wrong, the device must too.
func TestLeavingOutAnyWaitOfAPlanIsDetected(t *testing.T) {
	target := device(t, 1<<30, nil)
	needed, stale := 0, 0
	for seed := range uint64(12) {
		p, pl := placed(t, seed, 0.8)
		for s := range pl.Steps {
			if pl.Steps[s].Kind != plan.Wait {
				continue
			}
			broken := *pl
			broken.Steps = append([]plan.Step(nil), pl.Steps...)
			broken.Steps[s] = plan.Step{Kind: plan.Wait, Queue: pl.Steps[s].Queue, On: pl.Steps[s].On}
			broken.Steps[s].Queue = queueOf(p, pl, pl.Steps[s].On) // it waits for itself: nothing
			err := plan.Validate(p, withOwnWaits(t, p, &broken))
			if err == nil || strings.Contains(err.Error(), "on the host is overwritten") {
				// in the second case the executor has two places on the host for the two copies, and an order
				// of its own
				continue
			}
			needed++
			if caught(t, target, p, &broken) {
				continue
			}
			if strings.Contains(err.Error(), "on the host is read before") {
				// the copy before it lies at the same place on the host and holds the same value: what is
				// read too early is right
				stale++
			} else {
				t.Errorf("seed %d: without step %d (queue %d waits for step %d, %s) the device finds no "+
					"fault; the validator: %v", seed, s,
					pl.Steps[s].Queue, pl.Steps[s].On, pl.Steps[pl.Steps[s].On].Kind, err)
			}
		}
	}
	if stale > needed/100 {
		t.Errorf("leaving out %d of %d waits goes undetected, because old copies on the host are right",
			stale, needed)
	}
	if needed < 300 {
		t.Errorf("only %d waits were needed: the law was hardly tested", needed)
	}
}

// withOwnWaits returns the plan with the waits that the executor adds for its places on the host written into
// it.
func withOwnWaits(t *testing.T, p *plan.Problem, pl *plan.Plan) *plan.Plan {
	t.Helper()
	g, err := compile(p, pl)
	if err != nil {
		t.Fatal(err)
	}
	out := *pl
	out.Steps, out.Instances = nil, append([]plan.Instance(nil), pl.Instances...)
	moved := make([]int32, len(pl.Steps))
	for s, st := range pl.Steps {
		if g.behind[s] >= 0 {
			out.Steps = append(out.Steps, plan.Step{Kind: plan.Wait, Queue: p.OutQueue(), Op: st.Op,
				On: moved[g.behind[s]]})
		}
		if st.Kind == plan.Wait {
			st.On = moved[st.On]
		}
		moved[s] = int32(len(out.Steps))
		switch st.Kind {
		case plan.Alloc:
			out.Instances[st.Instance].From = moved[s]
		case plan.Free:
			out.Instances[st.Instance].To = moved[s]
		}
		out.Steps = append(out.Steps, st)
	}
	for i := range out.Instances {
		if int(pl.Instances[i].To) == len(pl.Steps) {
			out.Instances[i].To = int32(len(out.Steps))
		}
	}
	return &out
}

func queueOf(p *plan.Problem, pl *plan.Plan, step int32) int16 {
	return (&program{p: p, pl: pl}).queue(&pl.Steps[step])
}

// caught reports whether the device finds a plan wrong, in the order of its waits or in one of a few random
// orders.
func caught(t *testing.T, target *Target, p *plan.Problem, pl *plan.Plan) bool {
	t.Helper()
	for order := range uint64(60) {
		if order == control.Once {
			continue
		}
		lib.Order(order)
		err := verifyOnly(t, target, p, pl)
		if errors.Is(err, errWrong) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return false
}

// TestLeavingOutAnyKindOfWaitOfTheExecutorIsDetected leaves out all waits of one kind. There are waits
// between iterations, of the plan, for places on the host and for memory that changes queues: whichever kind
// is missing, the device finds wrong bytes or an access to memory that holds nothing.
func TestLeavingOutAnyKindOfWaitOfTheExecutorIsDetected(t *testing.T) {
	if lib == nil {
		t.Skip("needs g++: the stand-in GPU is compiled by the test")
	}
	for kind := range waitKinds {
		found, tried := false, 0
		for seed := uint64(0); seed < 60 && !found; seed++ {
			reset(1<<30, 0)
			opt := Options{Library: lib.Path(), Margin: 1 << 20, omit: func(k waitKind, _ int) bool {
				if k == kind {
					tried++
				}
				return k == kind
			}}
			target := New(opt)
			p, pl := placed(t, seed, 0.9)
			if kind == waitSlot { // places on the host are reused only under a limit
				p.Hardware.PinnedBytes, _ = pl.PinnedPeak(p)
			}
			if kind == waitTaken {
				// memory of one stream whose first use is on another, as side streams in a training do it
				for i := 1; i < len(p.Buffers); i += 2 {
					// every other one: what its own stream alone used is handed on without asking
					p.Buffers[i].Stream = (p.Buffers[i].Stream + 1) % int16(p.Streams)
				}
			}
			if kind == waitTaken || kind == waitGiven {
				pl = kept(t, p, plan.Policy{Name: map[waitKind]string{waitTaken: "caching",
					waitGiven: plan.PolicyAsync}[kind]})
			}
			lib.Order(control.Drawn + seed)
			err := verifyOnly(t, target, p, pl)
			if found = errors.Is(err, errWrong) || errors.Is(err, driver.ErrAccess); !found && err != nil {
				t.Fatalf("kind %d, seed %d: %v", kind, seed, err)
			}
		}
		if !found {
			t.Errorf("waits of kind %d can be left out (%d were)", kind, tried)
		}
	}
	reset(1<<30, 0)
}

// kept returns the plan that keeps everything, with an online allocator.
func kept(t *testing.T, p *plan.Problem, policy plan.Policy) *plan.Plan {
	t.Helper()
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	pl.Policy = &policy
	pl.Order(p)
	return pl
}

func TestBrokenPlansAreCaught(t *testing.T) {
	target := device(t, 1<<30, nil)
	overlaps, lost := 0, 0
	for seed := range uint64(20) {
		p, pl := placed(t, seed, 0.7)
		if broken, ok := overlapped(p, pl, int(seed)); ok {
			overlaps++
			if err := verifyOnly(t, target, p, broken); !errors.Is(err, errWrong) {
				t.Errorf("seed %d: two live blocks overlap: %v", seed, err)
			}
		}
		for s := range pl.Steps {
			if pl.Steps[s].Kind != plan.In {
				continue
			}
			broken := *pl
			broken.Steps = append([]plan.Step(nil), pl.Steps...)
			broken.Steps[s] = plan.Step{Kind: plan.Wait, Queue: p.InQueue(), On: lastWork(pl, s)}
			for k := range broken.Steps { // nothing can wait for a missing step
				if st := &broken.Steps[k]; st.Kind == plan.Wait && int(st.On) == s {
					st.On = broken.Steps[s].On
				}
			}
			if plan.Validate(p, &broken) == nil {
				continue // it is overwritten before anybody reads it
			}
			lost++
			if err := verifyOnly(t, target, p, &broken); !errors.Is(err, errWrong) {
				t.Errorf("seed %d: step %d, a copy in, is left out: %v", seed, s, err)
			}
		}
	}
	if overlaps < 10 || lost < 20 {
		t.Errorf("%d overlaps and %d lost copies were tried", overlaps, lost)
	}
}

func lastWork(pl *plan.Plan, s int) int32 {
	for s--; s >= 0; s-- {
		if k := pl.Steps[s].Kind; k == plan.Run || k == plan.Again {
			return int32(s)
		}
	}
	return 0
}

// overlapped moves an instance onto another that is alive at the same time and read later.
func overlapped(p *plan.Problem, pl *plan.Plan, skip int) (*plan.Plan, bool) {
	broken := *pl
	broken.Instances = append([]plan.Instance(nil), pl.Instances...)
	for i := range pl.Instances {
		x := &broken.Instances[i]
		for k := range pl.Instances {
			y := &pl.Instances[k]
			if i == k || x.From < 0 || x.Size < 8 || y.Size < 8 || y.From >= x.From || y.To <= x.From ||
				p.Buffers[x.Buffer].Life != plan.Inside || y.Offset+x.Size > pl.Footprint {
				continue
			}
			if !readBehind(p, pl, y, x.From) {
				continue
			}
			if skip--; skip < 0 {
				x.Offset = y.Offset
				return &broken, true
			}
		}
	}
	return nil, false
}

// readBehind reports whether an op after the one that first writes at step from reads the value of instance
// y, which was not written since.
func readBehind(p *plan.Problem, pl *plan.Plan, y *plan.Instance, from int32) bool {
	ran := 0
	for s := from; s < y.To; s++ {
		if pl.Steps[s].Kind != plan.Run {
			continue
		}
		for _, a := range p.AccessesOf(pl.Steps[s].Op) {
			if a.Buffer == y.Buffer {
				return ran > 0 && a.Mode == plan.Read
			}
		}
		ran++
	}
	return false
}
