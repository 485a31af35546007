package recompute

import (
	"context"
	"fmt"
	"testing"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// BenchmarkDecide is planning without places, on trainings of about 10,000 and 100,000 buffers.
func BenchmarkDecide(b *testing.B) {
	for _, layers := range []int{5_000, 50_000} {
		p := training(1, layers)
		limit := part(p, 15)
		b.Run(fmt.Sprintf("sqrt/%d", len(p.Buffers)), func(b *testing.B) {
			for b.Loop() {
				s := newSegmenter(p, chain.New(p))
				if _, _, err := s.decide(context.Background(), limit); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("dtr/%d", len(p.Buffers)), func(b *testing.B) {
			for b.Loop() {
				o := newOnline(p, chain.New(p), dtr{}, limit, plan.Request{})
				if _, err := o.run(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
