//go:build standin

package main

import (
	"os"
	"testing"
)

// TestQuickCasesFailAndAreFixed runs four short cases: each runs out of memory as it is, and finishes with
// the accepted fix, which needs less memory.
func TestQuickCasesFailAndAreFixed(t *testing.T) {
	python := os.Getenv("GMEMTOP_TORCH")
	if python == "" {
		t.Skip("needs GMEMTOP_TORCH: cases are PyTorch scripts")
	}
	t.Chdir("../..")
	r := runner{python: python, recordings: t.TempDir()}
	for _, name := range []string{
		"validate-with-grad", "one-backward", "attention-scores", "activations-kept-by-hook",
	} {
		t.Run(name, func(t *testing.T) {
			a, failed, fixed, err := r.both(t.Context(), "develop", name)
			if err != nil {
				t.Fatal(err)
			}
			if saved := savingOf(failed, fixed); saved <= 0 {
				t.Errorf("the fix %q saved %d bytes", a.Fix, saved)
			}
		})
	}
}
