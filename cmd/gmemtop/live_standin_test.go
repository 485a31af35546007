//go:build standin

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// onStandin returns the environment of processes on a machine of the test's own whose ops compute, and a
// function that looks through what they reported when they have ended.
func onStandin(t *testing.T, m standin.Machine) (env []string, ended func()) {
	t.Helper()
	lib := standintest.Library(t)
	t.Setenv("GMEMTOP_TORCH", standintest.Interpreter(t))
	dir := t.TempDir()
	m.Board, m.Report, m.Compute = filepath.Join(dir, "board"), filepath.Join(dir, "reports"), true
	if err := os.Mkdir(m.Report, 0o777); err != nil {
		t.Fatal(err)
	}
	env = append(lib.Environ(m), "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1",
		"CUBLAS_WORKSPACE_CONFIG=:16:8", "CUBLASLT_WORKSPACE_SIZE=128") // or the 32 MiB of an H100 would be most of what a small model takes
	return env, func() {
		t.Helper()
		reports, err := standin.ReadReports(m.Report)
		if err != nil || len(reports) == 0 {
			t.Errorf("%d processes reported: %v", len(reports), err)
		}
		standintest.Result{Reports: reports}.Check(t)
	}
}

// TestEveryManagerLearnsTheSameOnAStandinGPU has every manager that works in a running training, those that
// choose addresses as well, carried out for some steps of a training by PyTorch's own CUDA code, on and off
// at random, and compares parameters, gradients, buffers and optimizer state behind every step with those of
// the same training alone. The GPU does its work as late as it may, or in an order that is drawn.
func TestEveryManagerLearnsTheSameOnAStandinGPU(t *testing.T) {
	for _, x := range []struct{ script, flags, order string }{
		{"mlp.py", "--batch 1024 --inputs 16 --layers 4 --width 64 --dropout 0.1", standin.Late},
		{"gpt2.py", "--batch 2 --sequence 32 --layers 2 --width 32 --heads 2 --vocabulary 100", "5"},
	} {
		t.Run(x.script+"-"+x.order, func(t *testing.T) {
			env, ended := onStandin(t, standin.Machine{Order: x.order})
			argv := append([]string{"testdata/exactly.py", "../../examples/" + x.script, "--device", "cuda", "--steps", "1000000"}, strings.Fields(x.flags)...)
			stop := filepath.Join(t.TempDir(), "stop")
			l := launchLive(t, pytorch.Launch{Argv: argv, Env: append(env, "STOP="+stop)})
			toggles, r := int64(0), rand.New(rand.NewPCG(5, 6))
			var names []string
			for _, x := range l.everyPlan() {
				toggles += l.someSteps(r, toggles, x)
				names = append(names, x.manager)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			got := l.end()
			steps := strings.Count(got, "\n")
			cmd := exec.Command(torch(t), argv...)
			cmd.Env = append(env, fmt.Sprintf("STEPS=%d", steps))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if want := results(out); got != want {
				t.Errorf("of %d steps some computed something else than without plans", steps)
			}
			ended()
			t.Logf("%d steps, %d toggles of %s", steps, toggles, strings.Join(names, ", "))
		})
	}
}

// TestQuickCommandsOnAStandinGPU runs commands as users do, on trainings by PyTorch's own CUDA code:
// testdata/standin has a txtar file a topic.
func TestQuickCommandsOnAStandinGPU(t *testing.T) {
	commandsOnStandin(t, "testdata/standin")
}

// TestCommandsWithPlansOnAStandinGPU runs commands that have plans carried out, which take their time: under
// other allocators than torch's usual one, on a card that is too small, on one of several, and beside CUDA
// graphs.
func TestCommandsWithPlansOnAStandinGPU(t *testing.T) {
	commandsOnStandin(t, "testdata/standin_plans")
}

// commandsOnStandin runs the txtar files of a folder.
func commandsOnStandin(t *testing.T, dir string) {
	t.Helper()
	lib, python := standintest.Library(t), standintest.Interpreter(t)
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds:                map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": cmdExits},
		Setup: func(env *testscript.Env) error {
			for _, v := range append(lib.Environ(standin.Machine{Board: filepath.Join(env.WorkDir, ".board")}), "OMP_NUM_THREADS=1") {
				name, value, _ := strings.Cut(v, "=")
				if strings.HasPrefix(name, "STANDIN_") || name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" || name == "OMP_NUM_THREADS" {
					env.Setenv(name, value)
				}
			}
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_RUNTIME_DIR", torchtest.Folder(t))
			env.Setenv("TORCH", python)
			return nil
		},
	})
}
