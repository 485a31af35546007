//go:build standin

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// TestQuickCommandsOnAStandinGPU runs commands as users do, on trainings by PyTorch's own CUDA code.
// testdata/standin has one txtar file per topic.
func TestQuickCommandsOnAStandinGPU(t *testing.T) {
	commandsOnStandin(t, "testdata/standin")
}

// TestCommandsWithPlansOnAStandinGPU runs commands that carry plans out, which takes time: under allocators
// other than torch's usual one, on a card that is too small, on one of several, and beside CUDA graphs.
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
		Cmds: map[string]func(ts *testscript.TestScript, neg bool,
			args []string){"exits": cmdExits},
		Setup: func(env *testscript.Env) error {
			for _, v := range append(lib.Environ(standin.Machine{Board: filepath.Join(env.WorkDir,
				".board")}), "OMP_NUM_THREADS=1") {
				name, value, _ := strings.Cut(v, "=")
				if strings.HasPrefix(name, "STANDIN_") || name == "LD_PRELOAD" || name == "LD_LIBRARY_PATH" ||
					name == "OMP_NUM_THREADS" {
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
