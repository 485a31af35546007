//go:build standin

package estimate_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickTheStartImportsNothingOfTorch: an estimate adds its own source to a script's start. Modules of
// torch that are slow to import wait until the script wants them.
func TestQuickTheStartImportsNothingOfTorch(t *testing.T) {
	const list = "import sys, torch\nprint('loaded', *sorted(sys.modules))\n"
	modules := func(said string) []string {
		for line := range strings.Lines(said) {
			if names := strings.Fields(line); len(names) > 0 && names[0] == "loaded" {
				return names[1:]
			}
		}
		t.Fatalf("the script printed no list of modules: %s", said)
		return nil
	}
	_, said := one(t, estimate.RealOptions{Options: estimate.Options{Steps: 1}}, list+network+"step()\n")
	alone := modules(standintest.Python(t, standin.Machine{}, list))
	for _, name := range modules(said) {
		root, _, _ := strings.Cut(name, ".")
		if (root == "torch" || root == "sympy") && !slices.Contains(alone, name) {
			t.Errorf("the estimate's start imports %s, which the script's own does not", name)
		}
	}
}

// TestQuickCardsThatTheEnvironmentNames: a command that may use cards 5 and 6 of a machine finds two.
func TestQuickCardsThatTheEnvironmentNames(t *testing.T) {
	o := estimate.RealOptions{Options: estimate.Options{Steps: 1,
		Env: append(os.Environ(), "CUDA_VISIBLE_DEVICES=5,6")}}
	_, said := one(t, o, network+"print('cards', torch.cuda.device_count())\nstep()\n")
	if !strings.Contains(said, "cards 2\n") {
		t.Errorf("the script printed %s", said)
	}
}
