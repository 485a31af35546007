package recompute

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// training returns the training of n random layers: sizes and times differ, some layers work in place, some
// skip ahead.
func training(seed uint64, n int) *plan.Problem {
	r := rand.New(rand.NewPCG(seed, 99))
	b := plantest.New()
	type layer struct {
		in, out, skip plan.BufferID
		time          int64
	}
	x := b.Buffer("input", 1000, timeline.Input)
	b.Op("input", traces.PhaseForward, 10, nil, []plan.BufferID{x})
	b.P.Ops[0].Rerunnable = false
	layers := make([]layer, n)
	for i := range layers {
		l := layer{in: x, skip: plan.NoBuffer, time: int64(10 + r.IntN(200)),
			out: b.Buffer(fmt.Sprintf("x%d", i), int64(200+r.IntN(1000)), timeline.Activation)}
		reads := []plan.BufferID{x}
		if i > 3 && r.IntN(4) == 0 {
			l.skip = layers[i-3].out
			reads = append(reads, l.skip)
		}
		b.Op(fmt.Sprintf("layer%d", i), traces.PhaseForward, l.time, reads, []plan.BufferID{l.out})
		if r.IntN(3) == 0 {
			b.Op(fmt.Sprintf("inplace%d", i), traces.PhaseForward, 5, nil, nil)
			b.Mutate(l.out)
		}
		layers[i], x = l, l.out
	}
	grad := b.Buffer("grad", 500, timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, 10, []plan.BufferID{x}, []plan.BufferID{grad})
	for i := n - 1; i >= 0; i-- {
		l := layers[i]
		next := b.Buffer(fmt.Sprintf("grad%d", i), b.P.Buffers[l.in].Size, timeline.Gradient)
		reads := []plan.BufferID{grad, l.in}
		if r.IntN(2) == 0 {
			reads = append(reads, l.out)
		}
		if l.skip != plan.NoBuffer {
			reads = append(reads, l.skip)
		}
		b.Op(fmt.Sprintf("backward%d", i), traces.PhaseBackward, 2*l.time, reads, []plan.BufferID{next})
		grad = next
	}
	return b.End()
}

// part returns a budget between what must reside and the peak, in percent of that distance.
func part(p *plan.Problem, percent int64) int64 {
	peak, _ := p.PeakLive()
	least := p.MustReside().Total()
	return least + (peak-least)*percent/100
}

// outcome is the result of a manager's plan.
func outcome(t *testing.T, m plan.Manager, p *plan.Problem, budget int64) (footprint, again int64,
	pl *plan.Plan) {
	t.Helper()
	pl, err := m.Plan(context.Background(), p, plan.Request{Budget: budget})
	if errors.As(err, new(*plan.Unavailable)) { // unsolved: nothing that fits
		return math.MaxInt64, 0, nil
	}
	if err != nil {
		t.Fatalf("%s: %v", m.Info().Name, err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	got, err := sim.Run(context.Background(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return pl.Footprint, got.RecomputeTime, pl
}
