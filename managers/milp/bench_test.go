package milp

import (
	"context"
	"testing"
	"time"
)

func BenchmarkIntervalKnapsack500x300(b *testing.B) {
	m := intervalKnapsack(42, 500, 300, 60, 4, true)
	for _, s := range solvers {
		if s.run == nil {
			continue
		}
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				s, err := solveWith(context.Background(), m, Options{Gap: 0.01, TimeLimit: 20 * time.Second},
					s.run)
				if err != nil || s.X == nil {
					b.Fatal(s.Status, err)
				}
				b.ReportMetric(-s.Objective, "kept")
				b.ReportMetric(100*s.Gap, "gap%")
			}
		})
	}
}

func BenchmarkRelaxation20000x5000(b *testing.B) {
	if _, err := compile(); err != nil {
		b.Fatal(err)
	}
	m := intervalKnapsack(42, 20000, 5000, 40, 4, true)
	for b.Loop() {
		s, err := Solve(context.Background(), m, Options{LPOnly: true, Solver: SolverWASM})
		if err != nil || s.Gap > 1e-9 {
			b.Fatal(s.Status, s.Gap, err)
		}
	}
}

func BenchmarkSmallModel(b *testing.B) {
	if _, err := compile(); err != nil {
		b.Fatal(err)
	}
	m := intervalKnapsack(42, 20, 10, 5, 4, true)
	for b.Loop() {
		if s, err := Solve(context.Background(), m, Options{Solver: SolverWASM}); err != nil ||
			s.Status != StatusOptimal {
			b.Fatal(s.Status, err)
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	var m *Model
	for b.Loop() {
		m = intervalKnapsack(42, 20000, 5000, 40, 4, true)
	}
	b.ReportMetric(float64(len(m.index)), "entries")
}
