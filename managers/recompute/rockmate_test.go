package recompute

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// stepOf returns the step time of a manager's plan, plantest.Never if it does not fit.
func stepOf(t *testing.T, m plan.Manager, p *plan.Problem, budget int64) int64 {
	t.Helper()
	pl, err := m.Plan(t.Context(), p, plan.Request{Budget: budget, Evaluator: sim.Simulator{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	x, err := sim.Run(t.Context(), p, pl, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if pl.Footprint > budget {
		return plantest.Never
	}
	return x.StepTime
}

// layered is a training of blocks that each keep a small tensor that is expensive to make and a large one
// that is cheap, as dropout after attention does.
func layered(blocks int) *plan.Problem {
	b := plantest.New()
	b.P.Hardware.D2H.BytesPerSecond, b.P.Hardware.H2D.BytesPerSecond = 1<<18, 1<<18
	x := b.Buffer("x", 1<<20, timeline.Activation)
	input := b.Op("input", traces.PhaseForward, 0, nil, []plan.BufferID{x})
	b.P.Ops[input].Rerunnable = false
	type block struct{ in, dear, cheap plan.BufferID }
	var all []block
	for range blocks {
		l := block{in: x, dear: b.Buffer("dear", 1<<20, timeline.Activation),
			cheap: b.Buffer("cheap", 6<<20, timeline.Activation)}
		b.Op("product", traces.PhaseForward, 9_000_000, []plan.BufferID{x}, []plan.BufferID{l.dear})
		b.Op("mask", traces.PhaseForward, 500_000, []plan.BufferID{l.dear}, []plan.BufferID{l.cheap})
		x = b.Buffer("x", 1<<20, timeline.Activation)
		b.Op("out", traces.PhaseForward, 2_000_000, []plan.BufferID{l.cheap}, []plan.BufferID{x})
		all = append(all, l)
	}
	grad := b.Buffer("grad", 1<<20, timeline.Gradient)
	b.Op("loss", traces.PhaseBackward, 0, []plan.BufferID{x}, []plan.BufferID{grad})
	for i := len(all) - 1; i >= 0; i-- {
		next := b.Buffer("grad", 1<<20, timeline.Gradient)
		b.Op("backward", traces.PhaseBackward, 20_000_000,
			[]plan.BufferID{grad, all[i].in, all[i].dear, all[i].cheap}, []plan.BufferID{next})
		grad = next
	}
	return b.End()
}

// By hand: with the large tensors gone and the rest held, each block but the last makes its mask again.
func TestABlockIsHeldInPart(t *testing.T) {
	t.Parallel()
	const blocks = 12
	p := layered(blocks)
	var keep int64
	for i := range p.Ops {
		keep += p.Ops[i].Duration
	}
	const budget = (2*blocks + 2 + 6 + 1) << 20 // inputs and dear ones; gradients; one cheap one
	if got := stepOf(t, rockmate{}, p, budget); got != keep+(blocks-1)*500_000 {
		t.Errorf("%d ns are added, and %d blocks make a mask again", got-keep, blocks-1)
	}
	if got := stepOf(t, Rotor(), p, budget); got < keep+(blocks-1)*2_000_000 {
		t.Errorf("rotor adds %d ns: the blocks are no test", got-keep)
	}
}

// Rockmate has all of rotor's ways.
func TestRockmateIsNoSlowerThanRotor(t *testing.T) {
	t.Parallel()
	gpt := networkstest.Problem(t, "GPT-2 small", 8, "v100-pcie-16gb")
	faster := 0
	for name, p := range map[string]*plan.Problem{"gpt2": gpt, "blocks": layered(16),
		"chain": plantest.EvenLayers(20).Problem()} {
		peak, _ := p.PeakLive()
		floor := p.MustReside().Total()
		for share := int64(1); share <= 9; share += 2 {
			budget := floor + (peak-floor)*share/10
			mine, rotors := stepOf(t, rockmate{}, p, budget), stepOf(t, Rotor(), p, budget)
			t.Logf("%s, %d0 %%: %d and %d", name, share, mine, rotors)
			if float64(mine) > float64(rotors)*1.001 {
				t.Errorf("%s at %d0 %%: rockmate takes %d ns, rotor %d", name, share, mine, rotors)
			}
			if mine < rotors {
				faster++
			}
		}
	}
	if faster < 5 {
		t.Errorf("faster than rotor %d times alone", faster)
	}
}

func TestBlocksThatLookTheSameAreSolvedOnce(t *testing.T) {
	p := layered(10)
	c := newChains(p, chain.New(p), rotorWork)
	s := newBlocks(p, c.b, c.passes[0], rotorWork)
	s.solve(t.Context())
	if n := len(s.known); n == 0 || n > 3 { // the first, the last, and those between
		t.Errorf("%d of %d blocks were solved", n, c.stages())
	}
}
