package combine

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func bench(b *testing.B, m plan.Manager, p *plan.Problem, f float64) {
	low := p.MustReside().Total()
	high, _ := p.PeakLive()
	for range b.N {
		if _, err := m.Plan(context.Background(), p, plan.Request{Budget: low + int64(f*float64(high-low)), Evaluator: evaluator}); err != nil {
			b.Fatal(err)
		}
	}
}
func slow(p *plan.Problem) *plan.Problem {
	p.Hardware.D2H.BytesPerSecond /= 5
	p.Hardware.H2D.BytesPerSecond /= 5
	return p
}
func BenchmarkCapChain(b *testing.B)  { bench(b, capuchin{}, slow(plantest.Chain(34000, 1<<20, 1<<20)), .3) }
func BenchmarkHomeChain(b *testing.B) { bench(b, home{}, slow(plantest.Chain(34000, 1<<20, 1<<20)), .3) }
func BenchmarkCapRandom(b *testing.B) { bench(b, capuchin{}, plantest.Random(3, 67000), .3) }
