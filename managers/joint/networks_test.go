package joint_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/joint"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/recompute"
	"github.com/gmemtop/gmemtop/managers/swap"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// published are the managers after others' methods that plan in moments: a MILP has its own tests.
func published() []plan.Manager {
	all := append(swap.All(), combine.All()...)
	all = append(all, recompute.All()...)
	quick := all[:0]
	for _, m := range all {
		switch m.Info().Name {
		case "tvdnn", "tvdnn-ilp", "checkmate", "checkmate-lp":
		default:
			quick = append(quick, m)
		}
	}
	return quick
}

// At ten budgets from 95 % of the live peak with everything kept down to what joint can reach: no other
// plan that fits is faster, or as fast and smaller, on more than two.
func TestJointIsBestOnEightOfTenBudgetsOfVGG(t *testing.T) {
	t.Parallel()
	won, table := contest(t, joint.Network(t, "VGG-16"), 10_000_000, published())
	if won < 8 {
		t.Errorf("best on %d of 10\n%s", won, table)
	}
}

func contest(t testing.TB, p *plan.Problem, work int64, others []plan.Manager) (won int, table string) {
	ctx := context.Background()
	peak, _ := p.PeakLive()
	low := p.MustReside().Total()
	r := plan.Request{Budget: low, Work: work, Evaluator: sim.Simulator{}}
	if pl, err := (joint.Joint{}).Plan(ctx, p, r); err != nil {
		t.Fatal(err)
	} else {
		low = max(low, pl.Footprint)
	}
	last := int64(0)
	for k := range int64(10) {
		b := low + (peak*95/100-low)*(9-k)/9
		mine, err := joint.Joint{}.Plan(
			ctx,
			p,
			plan.Request{Budget: b, Work: work, Evaluator: sim.Simulator{}},
		)
		if err != nil {
			t.Fatal(err)
		}
		me, err := sim.Run(ctx, p, mine, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if mine.Footprint > b {
			t.Errorf("%d bytes do not fit %d", mine.Footprint, b)
		}
		if me.StepTime < last {
			t.Errorf("%d ns within %d bytes, and %d within more", me.StepTime, b, last)
		}
		last = me.StepTime
		best := true
		line := fmt.Sprintf(
			"%12d bytes: joint %d ns, %.2f %% above its bound, planned in %.2f s;",
			b,
			me.StepTime,
			(float64(me.StepTime)/float64(mine.StepBound)-1)*100,
			mine.Planning.Seconds(),
		)
		for _, m := range others {
			pl, err := m.Plan(ctx, p, plan.Request{Budget: b, Evaluator: sim.Simulator{}})
			if err != nil || pl == nil || pl.Policy != nil || pl.Footprint > b {
				continue
			}
			x, err := sim.Run(ctx, p, pl, sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if x.StepTime < mine.StepBound && pl.SectionBytes == 0 {
				t.Errorf(
					"%s takes %d ns within %d bytes, below the bound %d",
					m.Info().Name,
					x.StepTime,
					b,
					mine.StepBound,
				)
			}
			if x.StepTime < me.StepTime || x.StepTime == me.StepTime && pl.Footprint < mine.Footprint {
				best = false
				line += fmt.Sprintf(" %s %d ns in %d;", m.Info().Name, x.StepTime, pl.Footprint)
			}
		}
		table += line + "\n"
		if best {
			won++
		}
	}
	return won, table
}

// BenchmarkContest reports on how many of ten budgets joint is best.
func BenchmarkContest(b *testing.B) {
	for _, name := range []string{"VGG-16", "ResNet-50", "GPT-2 small"} {
		b.Run(name, func(b *testing.B) {
			p := joint.Network(b, name)
			for b.Loop() {
				won, table := contest(b, p, 0, published())
				b.ReportMetric(float64(won), "best-of-10")
				b.Log("\n" + table)
			}
		})
	}
}
