package plan_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

const kib = 1 << 10

// adam is a step of two parameters whose optimizer goes through them one by one: each has two moments of 8
// KiB, and beside that there is state too small to leave and some that the forward pass reads.
func adam() (p *plan.Problem, moments []plan.BufferID) {
	b := plantest.New()
	x := b.Buffer("x", 20*kib, timeline.Activation)
	var parameters, gradients []plan.BufferID
	for range 2 {
		parameters = append(parameters, b.Persistent("p", 8*kib, timeline.Parameter))
		gradients = append(gradients, b.Buffer("g", 8*kib, timeline.Gradient))
		moments = append(moments, b.Persistent("m", 8*kib, timeline.OptimizerState),
			b.Persistent("v", 8*kib, timeline.OptimizerState))
	}
	count := b.Persistent("step", 4, timeline.OptimizerState)
	average := b.Persistent("average", 8*kib, timeline.OptimizerState)
	b.Op("forward", traces.PhaseForward, 10, append(parameters, average), []plan.BufferID{x})
	b.Op("backward", traces.PhaseBackward, 10, []plan.BufferID{x}, gradients)
	for k := range 2 {
		for _, m := range moments[2*k : 2*k+2] {
			b.Op("moment", traces.PhaseOptimizer, 10, gradients[k:k+1], nil)
			b.Mutate(m)
			b.Mutate(count)
		}
		b.Op("update", traces.PhaseOptimizer, 10, moments[2*k:2*k+2], nil)
		b.Mutate(parameters[k])
		b.Mutate(average)
	}
	return b.End(), moments
}

func TestOptimizerStateIsThereWhileTheOptimizerUsesIt(t *testing.T) {
	for _, c := range []struct {
		kind traces.DeviceKind
		life [4][2]plan.OpID // of the moments
	}{
		{traces.DeviceCPU, [4][2]plan.OpID{{2, 5}, {3, 5}, {5, 8}, {6, 8}}}, // one parameter at a time
		{traces.DeviceGPU, [4][2]plan.OpID{{2, 8}, {2, 8}, {2, 8}, {2, 8}}}, // kernels that take lists
	} {
		p, moments := adam()
		p.Source = &timeline.Device{Info: traces.Device{Kind: c.kind}}
		q, bytes := p.Parked()
		if bytes != 32*kib {
			t.Errorf("%d bytes wait on the host", bytes)
		}
		var added int64
		for i := range q.Buffers {
			x, y := &p.Buffers[i], &q.Buffers[i]
			k := -1
			for j, m := range moments {
				if m == plan.BufferID(i) {
					k = j
				}
			}
			switch {
			case k < 0 && (y.Life != x.Life || y.Start != x.Start || y.End != x.End):
				t.Errorf("%s is no moment, and lives [%d, %d)", y.Name, y.Start, y.End)
			case k >= 0 && (y.Life != plan.Inside || [2]plan.OpID{y.Start, y.End} != c.life[k]):
				t.Errorf("moment %d lives [%d, %d)", k, y.Start, y.End)
			case k >= 0:
				added += p.Hardware.H2D.Time(y.Size) + p.Hardware.D2H.Time(y.Size)
			}
		}
		for i := range q.Ops {
			added -= q.Ops[i].Duration - p.Ops[i].Duration
		}
		if added != 0 {
			t.Errorf("the copies' time and that of the ops differ by %d ns", added)
		}
		if before, after := p.Held(), q.Held(); before-after < 8*kib {
			t.Errorf("it holds %d bytes, and held %d", after, before)
		}
	}
}

// rms is a step of two parameters whose optimizer is done with one of a parameter's two tensors when it takes
// up the other. ops are the names of both ops, and sizes those of the parameters.
func rms(ops [2]string, sizes [2]int64) (p *plan.Problem, state []plan.BufferID) {
	b := plantest.New()
	var parameters, gradients []plan.BufferID
	for _, size := range sizes {
		parameters = append(parameters, b.Persistent("p", size, timeline.Parameter))
		gradients = append(gradients, b.Buffer("g", size, timeline.Gradient))
		state = append(state, b.Persistent("square", size, timeline.OptimizerState),
			b.Persistent("momentum", size, timeline.OptimizerState))
	}
	b.Op("backward", traces.PhaseBackward, 10, parameters, gradients)
	for k := range 2 {
		b.Op(ops[0], traces.PhaseOptimizer, 10, gradients[k:k+1], nil)
		b.Mutate(state[2*k])
		b.Op(ops[1], traces.PhaseOptimizer, 10, gradients[k:k+1], nil)
		b.Mutate(state[2*k+1])
		b.Op("add_", traces.PhaseOptimizer, 10, state[2*k+1:2*k+2], nil)
		b.Mutate(parameters[k])
	}
	return b.End(), state
}

func TestStateOfAParameterStaysUntilAnothersComes(t *testing.T) {
	for name, c := range map[string]struct {
		ops  [2]string
		life [4][2]plan.OpID
	}{
		"one by one": {[2]string{"mul_", "addcdiv_"}, [4][2]plan.OpID{{1, 4}, {2, 4}, {4, 7}, {5, 7}}},
		// such kernels read their tensors without telling the process, so all state comes before the step
		"in lists": {[2]string{"aten::_foreach_mul_", "aten::_foreach_addcdiv_"},
			[4][2]plan.OpID{{1, 7}, {1, 7}, {1, 7}, {1, 7}}},
		"fused": {[2]string{"aten::_fused_adam_", "aten::_fused_adam_"},
			[4][2]plan.OpID{{1, 7}, {1, 7}, {1, 7}, {1, 7}}},
	} {
		p, state := rms(c.ops, [2]int64{8 * kib, 16 * kib})
		p.Source = &timeline.Device{Info: traces.Device{Kind: traces.DeviceCPU}}
		q, _ := p.Parked()
		for k, s := range state {
			if b := &q.Buffers[s]; [2]plan.OpID{b.Start, b.End} != c.life[k] {
				t.Errorf("%s: state %d lives [%d, %d), want %v", name, k, b.Start, b.End, c.life[k])
			}
		}
	}
}

func TestAPlanThatParksIsOneOfAnotherProblem(t *testing.T) {
	p, _ := adam()
	q, _ := p.Parked()
	pl, err := plan.Assemble(q, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	pl.Manager, pl.Parks = "test", true
	if _, err := place.Place(context.Background(), q, pl, place.Options{Rule: place.BestFit}); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := pl.WriteJSON(&file, p); err != nil {
		t.Fatal(err)
	}
	read, err := plan.ReadJSON(&file, p)
	if err != nil || !read.Parks || read.Footprint != pl.Footprint {
		t.Errorf("read again: %+v, %v", read, err)
	}
	if pl.Parks = false; plan.Validate(p, pl) == nil {
		t.Error("it is valid for a step whose state stays")
	}
	none, _ := made(t, 1, 10, 0)
	if _, err := (&plan.Plan{Parks: true}).Of(none); !errors.Is(err, plan.ErrInvalid) {
		t.Errorf("of a step without optimizer state: %v", err)
	}
}

func TestTheLeastBudgetCountsStateThatCanLeave(t *testing.T) {
	p, _ := adam()
	must := p.MustReside().Total()
	small := (*plan.TooSmall)(nil)
	if err := p.CheckLeast(must - 1); err != nil {
		t.Error(err)
	}
	if err := p.CheckLeast(must / 3); !errors.As(err, &small) {
		t.Errorf("%v", err)
	}
}
