package joint

import (
	"context"
	"math"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Portfolio plans as [Joint] does, then asks other managers, searches on from their plans, and returns the
// best of all: it is never worse than any of them, as the evaluator measures. Make one with [New].
type Portfolio struct {
	joint Joint
	seeds []plan.Manager
}

// New returns a portfolio of the seeds and our own planner. Seeds that cannot serve a problem, or fail, are
// passed over.
func New(seeds ...plan.Manager) Portfolio { return Portfolio{seeds: seeds} }

// Info implements plan.Manager.
func (Portfolio) Info() plan.Info {
	return plan.Info{
		Name: "portfolio", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Takes the best plan of all other managers and of joint, and searches on from it.",
	}
}

// Plan implements plan.Manager. Work bounds joint's own search; seeds are asked with the request's budget and
// seed, and their own default work. Its step time need not fall as the budget grows where a seed's does not.
func (f Portfolio) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	return f.joint.plan(ctx, p, r, f.Info(), f.seeds)
}

// askSeeds asks every seed for its plan, notes it, and searches on from those that can be searched on from.
func (f *finder) askSeeds(seeds []plan.Manager) {
	for _, seed := range seeds {
		if f.ctx.Err() != nil {
			return
		}
		r := f.r
		r.Work, r.Progress = 0, nil
		pl, err := seed.Plan(f.ctx, f.p, r)
		if err != nil || pl == nil || pl.Policy != nil || plan.Validate(f.p, pl) != nil {
			continue // a manager that cannot serve this problem, or one whose footprint only a target knows
		}
		x := &outcome{pl: pl}
		if f.r.Evaluator == nil {
			x.time = f.perIteration(f.views[0].m.baseTime) // nothing tells plans apart but whether they fit
		} else if me, err := f.r.Evaluator.Evaluate(f.ctx, f.p, pl); err == nil {
			x.time = me.StepTime
		} else {
			continue
		}
		pl.Note("%s made this plan; nothing better was found", seed.Info().Name)
		f.note(x)
		if f.r.Budget > 0 {
			f.searchOn(pl)
		}
	}
}

// searchOn improves a plan of another manager: its absences are read as choices, its positions are ours.
func (f *finder) searchOn(pl *plan.Plan) {
	for _, v := range f.views {
		if v.section == pl.SectionBytes {
			v.searchOn(pl)
		}
	}
}

func (v *view) searchOn(pl *plan.Plan) {
	s, m := v.s, v.m
	limit := v.f.r.Budget
	v.rnd = rand.New(rand.NewPCG(v.f.r.Seed, uint64(limit)))
	v.target = (v.f.bound(limit)+1)*int64(v.p.Iterations) - 1
	for i := range s.memory.limit {
		s.memory.limit[i] = limit
	}
	v.c.excess()
	for g := range s.setting.choice {
		s.setting.choice[g] = keep
	}
	for i := range m.variants {
		s.setting.setWay(int(m.variants[i].op), m.fast[m.variants[i].op])
	}
	for i := range m.variants {
		if o := m.variants[i].op; pl.Variants != nil && pl.Variants[o] != m.fast[o] {
			s.setting.setWay(int(o), pl.Variants[o])
		}
	}
	for k := range pl.Absences {
		x := &pl.Absences[k]
		g := m.gapOf(x.Buffer, x.Before)
		switch {
		case g < 0 || m.gaps[g].dead:
		case x.How == plan.Swap && m.gaps[g].canSwap:
			s.setting.choice[g] = swap
		case x.How == plan.Recompute && m.gaps[g].canRecompute:
			s.setting.choice[g] = recompute
		}
	}
	s.setting.lead = 0
	x := v.estimate()
	s.take(&x)
	v.improve(&x, s.steps+v.f.rungWork)
	s.set(&x)
	if y, err := v.realize(limit, v.f.pack, math.MaxInt64); err == nil {
		v.f.note(y)
	}
}
