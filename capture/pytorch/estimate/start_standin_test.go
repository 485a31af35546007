//go:build standin

package estimate_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickTheStartImportsNothingOfTorch: an estimate adds only its own source to the start of a script.
// Modules of torch that are slow to import wait until the script imports them.
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

// TestQuickCardsThatTheEnvironmentNames: a script that may use cards 5 and 6 of a machine finds two, even if
// only the shell script that starts it says so.
func TestQuickCardsThatTheEnvironmentNames(t *testing.T) {
	dir := t.TempDir()
	line := "CUDA_VISIBLE_DEVICES=5,6 exec " + standintest.Interpreter(t) + " train.py"
	o := estimate.RealOptions{Options: estimate.Options{Steps: 1, Dir: dir, Argv: []string{"sh", "-c", line}}}
	_, said := one(t, o, network+"print('cards', torch.cuda.device_count())\nstep()\n")
	if !strings.Contains(said, "cards 2\n") {
		t.Errorf("the script printed %s", said)
	}
}

// TestQuickTheCommandSaysWhichPythonItRuns: a launcher such as uv chooses its Python. The one on PATH has no
// torch, or a different one, whose libraries need other functions.
func TestQuickTheCommandSaysWhichPythonItRuns(t *testing.T) {
	python := standintest.Interpreter(t)
	libraries, err := exec.Command(python, "-c", "import importlib.util as u, os\n"+
		"print(os.path.dirname(u.find_spec('torch').origin) + '/lib', end='')").Output()
	if err != nil {
		t.Fatal(err)
	}
	older := t.TempDir()
	const version = "__version__ = '1.13.0+cu117'\ncuda = '11.7'\n"
	if err := errors.Join(os.Symlink(string(libraries), filepath.Join(older, "lib")),
		os.WriteFile(filepath.Join(older, "version.py"), []byte(version), 0o666)); err != nil {
		t.Fatal(err)
	}
	for name, torch := range map[string]string{"none": "", "another": older} {
		bin, dir := t.TempDir(), t.TempDir()
		program := func(name, text string) error {
			return os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o777)
		}
		if err := errors.Join(program("python", "echo "+torch),
			program("uv", "shift; exec "+python+` "$@"`)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
		o := estimate.RealOptions{Options: estimate.Options{Steps: 1, Dir: dir,
			Argv: []string{"uv", "run", filepath.Join(dir, "train.py")}}}
		if p, _ := one(t, o, network+"step()\n"); p.Steps != 1 {
			t.Errorf("with %s torch on PATH: %d steps", name, p.Steps)
		}
	}
}
