package combine

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// BenchmarkPlan plans a chain on a link five times slower than compute, for less than a third of what lies
// between floor and peak. Three buffers a layer.
func BenchmarkPlan(b *testing.B) {
	for _, layers := range []int{3_400, 34_000} {
		p := plantest.Chain(layers, mib, opTime)
		p.Hardware.D2H.BytesPerSecond /= 5
		p.Hardware.H2D.BytesPerSecond /= 5
		low := p.MustReside().Total()
		high, _ := p.PeakLive()
		for _, m := range All() {
			b.Run(fmt.Sprintf("%s/%d", m.Info().Name, len(p.Buffers)), func(b *testing.B) {
				for range b.N {
					if _, err := m.Plan(context.Background(), p, plan.Request{Budget: low + 3*(high-low)/10,
						Evaluator: evaluator}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
