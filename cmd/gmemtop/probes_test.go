package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/tui/live"
)

// TestProbeScripts runs --probes as users meet it, for real where the kernel permits probes: against the
// program that package usdt's own tests watch.
func TestProbeScripts(t *testing.T) {
	sources, err := filepath.Abs("../../capture/usdt/testdata")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script/probes", UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": cmdExits,
			"build": func(ts *testscript.TestScript, _ bool, _ []string) { ts.Check(buildWatched(sources, ts.MkAbs("."))) },
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
		{"-shared", "-fPIC", "-I" + sources, "-o", filepath.Join(dir, "libc10_cuda.so"), filepath.Join(sources, "c10.S")},
		{"-O2", "-shared", "-fPIC", "-o", filepath.Join(dir, "libcuda.so.570.1"), filepath.Join(sources, "cuda.S"), filepath.Join(sources, "cuda.c")},
		{"-O2", "-pthread", "-o", filepath.Join(dir, "target"), filepath.Join(sources, "target.c"), "-ldl"},
	} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

func TestARowOfProbesShowsTheMostThatItsIntervalHeldAndClaimsNothingOfSteps(t *testing.T) {
	s := job.NewWatch(job.Options{}).Process
	f := &probeFeed{sessionFeed: newSessionFeed(s, "")}
	for i := range int64(100) { // grows without end: of steps that would be a leak
		s.Step(capture.Step{Index: i, Start: i * 1e9, End: (i + 1) * 1e9, Allocated: i << 20, PeakAllocated: i<<20 + 5, Reserved: capture.Unknown, RSS: capture.Unknown,
			Parameters: capture.Unknown, Retries: capture.Unknown, OOMs: capture.Unknown})
	}
	f.take(t.Context())
	l := f.Look()
	if len(l.Steps) != 100 || l.Steps[99].Bytes != 99<<20+5 || l.Steps[99].Held != 99<<20 || l.Steps[99].Duration != 1e9 || l.Steps[99].Cost != capture.Unknown {
		t.Fatalf("%d rows, last %+v", len(l.Steps), l.Steps[len(l.Steps)-1])
	}
	if l.Report.Trend.Leaking || l.Report.Trend.Points > 0 || l.Report.Duration != 0 || len(l.Report.Spikes) > 0 || l.Report.Top != 99 {
		t.Errorf("report %+v", l.Report)
	}
	if len(l.Alerts) > 0 {
		t.Errorf("alerts %+v", l.Alerts)
	}
	s.Step(capture.Step{Index: 100, Start: 100e9, End: 101e9, Allocated: 7, PeakAllocated: 8, OOMs: 2})
	f.take(t.Context())
	if l = f.Look(); len(l.Steps) != 101 || l.Steps[100].Bytes != 8 || l.Steps[100].OOMs != 2 {
		t.Errorf("%d rows, last %+v", len(l.Steps), l.Steps[len(l.Steps)-1])
	}
	if len(l.Alerts) != 1 || l.Alerts[0].Kind != live.OutOfMemory { // this is a fact, whatever a row stands for
		t.Errorf("alerts %+v", l.Alerts)
	}
	for _, kind := range []live.OrderKind{live.Describe, live.Every} {
		if err := f.Order(t.Context(), live.Order{Kind: kind, Steps: 1}); !errors.Is(err, errNothingToAsk) {
			t.Errorf("order %d: %v", kind, err)
		}
	}
}

func TestTheDoctorSaysWhyThereAreNoProbesAndWhatToDo(t *testing.T) {
	f := probesFinding("6.1.0", fmt.Errorf("%w: this needs root; run it with sudo; or not", usdt.ErrPermission))
	if f.Available || f.Why != "probes are not permitted: this needs root" || f.Fix != "run it with sudo; or not" {
		t.Errorf("%+v", f)
	}
	if f := probesFinding("6.18.1", nil); !f.Available || !strings.Contains(f.Detail, "Linux 6.18.1") || f.Why+f.Fix != "" {
		t.Errorf("%+v", f)
	}
	// Whatever this machine answers, it is yes, or no with a reason and a remedy.
	if f := checkProbes(); f.Available == (f.Why != "") || f.Available == (f.Fix != "") {
		t.Errorf("%+v", f)
	}
	if f := checkProbes(); f.Available && (runtime.GOOS != "linux" || runtime.GOARCH != "amd64" || os.Geteuid() != 0 && !capable(39)) {
		t.Errorf("probes by user %d: %+v", os.Geteuid(), f)
	}
}
