package milp

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeHighs puts a shell script on PATH, alone, under the name of HiGHS.
func fakeHighs(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "highs"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func TestANativeSolverIsNotBelieved(t *testing.T) {
	m, _, _ := parseModel(t, "var a 0 1 int\nvar b 0 1 int\nmin - 2 a - b\nr: a + b <= 1")
	say := func(status, a, b string) string {
		return "echo 'Model status\n" + status +
			"\n\n# Primal solution values\nFeasible\nObjective -3\n# Columns 2\nC0 " + a +
			"\nC1 " + b + "\n' > solution; echo 'Dual bound -3'"
	}
	for name, script := range map[string]string{
		"oversteps a row":    say("Optimal", "1", "1"),
		"oversteps a bound":  say("Optimal", "2", "-1"),
		"is not whole":       say("Optimal", "0.5", "0.5"),
		"is no number":       say("Optimal", "nan", "0"),
		"is malformed":       say("Optimal", "x", "0"),
		"names too much":     say("Optimal", "1\nC7 1", "0"),
		"is not there":       "exit 3",
		"stands in the dark": "kill -9 $$",
	} {
		t.Run(name, func(t *testing.T) {
			fakeHighs(t, script)
			if s, err := Solve(context.Background(), m, Options{Solver: SolverNative}); err == nil ||
				s.X != nil {
				t.Errorf("native: %+v", s)
			}
			s, err := Solve(context.Background(), m, Options{})
			if err != nil || s.Status != StatusOptimal || s.Objective != -2 ||
				!strings.Contains(s.Solver, "WebAssembly") {
				t.Errorf("auto: %+v, %v", s, err)
			}
		})
	}
	t.Run("claims optimality short of its bound", func(t *testing.T) {
		fakeHighs(t, say("Optimal", "0", "1"))
		if s, err := Solve(context.Background(), m, Options{}); err != nil || s.Status != StatusFeasible ||
			s.Objective != -1 {
			t.Errorf("%+v, %v", s, err)
		}
	})
	t.Run("calls infeasible what its start satisfies", func(t *testing.T) {
		fakeHighs(t, "printf 'Model status\\nInfeasible\\n' > solution")
		if s, err := Solve(context.Background(), m, Options{Solver: SolverNative, Start: []float64{0, 0}}); err == nil {
			t.Errorf("%+v", s)
		}
	})
}
