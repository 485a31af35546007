//go:build standin

package main

import (
	"os"
	"testing"
)

// TestQuickCasesFailAndAreFixed runs short cases: each runs out of memory as it is, and finishes with the
// accepted fix, which needs less memory. The healthy one just finishes.
func TestQuickCasesFailAndAreFixed(t *testing.T) {
	python := os.Getenv("GMEMTOP_TORCH")
	if python == "" {
		t.Skip("needs GMEMTOP_TORCH: cases are PyTorch scripts")
	}
	t.Chdir("../..")
	r := runner{python: python, recordings: t.TempDir()}
	for _, c := range [][2]string{
		{"develop", "validate-with-grad"}, {"develop", "one-backward"}, {"develop", "attention-scores"},
		{"develop", "activations-kept-by-hook"}, {"healthy", "lstm-truncated"},
	} {
		t.Run(c[1], func(t *testing.T) {
			a, failed, fixed, err := r.both(t.Context(), c[0], c[1])
			if err != nil {
				t.Fatal(err)
			}
			if saved := savingOf(failed, fixed); saved <= 0 && len(a.Lever) > 0 {
				t.Errorf("the fix %q saved %d bytes", a.Fix, saved)
			}
		})
	}
}
