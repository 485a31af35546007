package place_test

import (
	"context"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// BenchmarkPlan takes the parts that every planner pays for, on a training of 100,000 buffers of which every
// second activation is swapped.
func BenchmarkPlan(b *testing.B) {
	const layers = 33_000
	p := plantest.Chain(layers, 1<<20, 100_000)
	var d plan.Decisions
	for k, g := range p.Gaps(1<<20, 4) {
		if k%2 == 0 {
			d.Absences = append(d.Absences, plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before,
				Release: g.After + 2, Fetch: g.Before - 1})
		}
	}
	assemble := func() *plan.Plan {
		pl, err := plan.Assemble(p, d)
		if err != nil {
			b.Fatal(err)
		}
		return pl
	}
	pl := assemble()
	if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
		b.Fatal(err)
	}
	b.Run("assemble", func(b *testing.B) {
		for b.Loop() {
			assemble()
		}
	})
	b.Run("place", func(b *testing.B) {
		for b.Loop() {
			if _, err := place.Place(context.Background(), p, assemble(), place.Options{Rule: place.BestFit}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("validate", func(b *testing.B) {
		for b.Loop() {
			if err := plan.Validate(p, pl); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("simulate", func(b *testing.B) {
		for b.Loop() {
			if _, err := sim.Run(context.Background(), p, pl, sim.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
