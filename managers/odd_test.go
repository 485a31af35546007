package managers_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces"
)

// odd are changes that turn a problem into one as recordings seldom give, and hardware as few have.
var odd = map[string]func(p *plan.Problem){
	"accesses alone":  func(p *plan.Problem) { p.Kind = traces.Accesses },
	"lifetimes alone": func(p *plan.Problem) { p.Kind = traces.Lifetimes },
	"no clock": func(p *plan.Problem) {
		p.HasTimes = false
		for i := range p.Ops {
			p.Ops[i].Duration = 0
		}
	},
	"two iterations as one": func(p *plan.Problem) { p.Iterations = 2 },
	"buffers of no bytes": func(p *plan.Problem) {
		for i := 0; i < len(p.Buffers); i += 3 {
			p.Buffers[i].Size = 0
		}
		for i := range p.Ops { // a workspace has the size that its variant says
			p.Ops[i].Variants, p.Ops[i].Workspace = nil, plan.NoBuffer
		}
	},
	"large buffers": func(p *plan.Problem) {
		for i := range p.Buffers {
			p.Buffers[i].Size <<= 10
		}
	},
	"eager alone": func(p *plan.Problem) { p.EagerOnly = true },
	"a slow host": func(p *plan.Problem) { p.Hardware.AgainTime, p.Hardware.LaunchGap = 5000, 3000 },
	"no link":     func(p *plan.Problem) { p.Hardware.D2H, p.Hardware.H2D = plan.Link{}, plan.Link{} },
	"latency":     func(p *plan.Problem) { p.Hardware.D2H.Latency, p.Hardware.H2D.Latency = 1e6, 1e6 },
	"no phases": func(p *plan.Problem) {
		for i := range p.Ops {
			p.Ops[i].Phase, p.Ops[i].Module, p.Ops[i].Class = traces.PhaseUnknown, "", plan.ClassOther
		}
	},
	"uses of a kind that is not told": func(p *plan.Problem) {
		for i := 0; i < len(p.Accesses); i += 4 {
			p.Accesses[i].Mode = plan.Use
		}
	},
}

func TestOddProblemsHaveValidPlansThatMeasureWhatTheySay(t *testing.T) {
	for name, change := range odd {
		plans := 0
		for seed := range uint64(3) {
			p := plantest.Random(seed, 10+int(seed)*6)
			if seed == 0 {
				p = plantest.Chain(5, 8<<20, 1_000_000)
			}
			change(p)
			if err := p.Finish(); err != nil {
				t.Fatalf("%s, seed %d: %v", name, seed, err)
			}
			for _, m := range managers.All() {
				who := m.Info().Name
				if slow(who) && seed > 0 {
					continue
				}
				for _, share := range []float64{0, 0.5} {
					budget := budgetOf(p, share)
					pl, err := m.Plan(context.Background(), p,
						plan.Request{Budget: budget, Seed: 1, Work: workOf(who), Evaluator: sim.Simulator{}})
					if errors.As(err, new(*plan.Unavailable)) || errors.As(err, new(*plan.TooSmall)) {
						continue
					}
					if err == nil {
						err = plan.Validate(p, pl)
					}
					if err != nil {
						t.Errorf("%s, seed %d, budget %d: %s: %v", name, seed, budget, who, err)
						continue
					}
					got, err := sim.Run(context.Background(), p, pl, sim.Options{})
					if err != nil {
						t.Errorf("%s, seed %d: %s: %v", name, seed, who, err)
						continue
					}
					if live, _ := pl.PeakLive(); got.PeakLive != live || pl.Policy == nil &&
						got.Footprint != pl.Footprint {
						t.Errorf("%s, seed %d: %s plans %d bytes, %d alive, and %d and %d are measured", name,
							seed, who, pl.Footprint, live, got.Footprint, got.PeakLive)
					}
					if fits := budget == 0 || got.Footprint <= budget; fits && pl.StepBound > got.StepTime {
						t.Errorf("%s, seed %d: %s proves that %d ns is the least and takes %d", name, seed,
							who, pl.StepBound, got.StepTime)
					}
					plans++
				}
			}
		}
		if plans < 50 {
			t.Errorf("%s: only %d plans were made", name, plans)
		}
	}
}
