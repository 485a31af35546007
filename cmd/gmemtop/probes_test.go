package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/capture/usdt"
)

// TestProbeScripts runs --probes as users meet it, for real where the kernel permits probes: against the
// program that package usdt's own tests watch.
func TestProbeScripts(t *testing.T) {
	sources, err := filepath.Abs("../../capture/usdt/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script/probes", UpdateScripts: *update, RequireExplicitExec: true,
		RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits,
			"build": func(ts *testscript.TestScript, _ bool, _ []string) {
				ts.Check(buildWatched(sources, ts.MkAbs(".")))
			},
		},
		Condition: func(cond string) (bool, error) {
			if cond != "probes" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			_, err := usdt.Try()
			return err == nil, nil
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, ".cache"))
			return nil
		},
	})
}

// buildWatched compiles the program that is watched and its libraries into dir.
func buildWatched(sources, dir string) error {
	for _, args := range [][]string{
		{"-shared", "-fPIC", "-I" + sources, "-o", filepath.Join(dir, "libc10_cuda.so"),
			filepath.Join(sources, "c10.S")},
		{"-O2", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.570.1"),
			filepath.Join(sources, "cuda.S"), filepath.Join(sources, "cuda.c")},
		{"-O2", "-pthread", "-o", filepath.Join(dir, "target"), filepath.Join(sources, "target.c"), "-ldl"},
	} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
