//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// stage is a checkup on a GPU that does not exist, with a script in place of gmemtop.
func stage(t *testing.T, program string) *checkup {
	t.Helper()
	folder := t.TempDir()
	file := filepath.Join(folder, "gmemtop")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+program+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newCheckup(Options{Program: file, Folder: folder, Environ: os.Environ(),
		Build: Build{Version: "v1.2.3", Revision: "0123abcd"}})
	s.facts.gpu = GPU{Name: "NVIDIA Test 24GB", Memory: 24 << 30, Driver: "590.00", CUDA: "13.2", Count: 1}
	s.facts.torch = &Torch{Version: "2.15.0+cu132", CUDA: "13.2", Python: "3.11.7"}
	s.size = tiny
	return s
}

// one returns the result of a list of one check.
func one(t *testing.T, s *checkup, name string) Result {
	t.Helper()
	c, ok := Find(name)
	if !ok {
		t.Fatalf("no check %s", name)
	}
	r, err := s.all(t.Context(), []Check{c})
	if err != nil {
		t.Fatal(err)
	}
	return r.Results[0]
}

func TestAFailingCheckIsReportedAsFailed(t *testing.T) {
	for _, c := range []struct {
		program string
		want    Outcome
		reason  string
	}{
		{`echo '{"findings": [{"name": "nvml", "available": true}]}'`, OK, ""},
		{`echo '{"findings": []}'`, Failed, "doctor says nothing about GPUs"},
		{`echo 'not JSON'`, Failed, "doctor's JSON"},
		{`echo "gmemtop: device lost at /home/jane/x" >&2; exit 1`, Failed,
			"device lost at <path> (exit code 1)"},
		{`echo "gmemtop: this program was built without CUDA" >&2; exit 5`, Skipped,
			"this program was built without CUDA"},
		{`kill -SEGV $$`, Failed, "code"},
	} {
		r := one(t, stage(t, c.program), "doctor")
		if r.Outcome != c.want || !strings.Contains(r.Reason, c.reason) {
			t.Errorf("%s: %+v", c.program, r)
		}
	}
}

// A plan whose bytes were not verified, or a comparison that measured nothing, is never ok.
func TestAPlanThatWasNotVerifiedFailsTheCheck(t *testing.T) {
	row :=
		`{"manager": "%s", "executor": "ideal", "target": "%s", "available": true, "verified": %v, ` +
			`"footprint_bytes": %d, "overhead": %g}`
	sim := fmt.Sprintf(row, "autoswap", "sim", false, 1000, 0.1)
	for _, c := range []struct {
		rows         []string
		want         Outcome
		asPredicted  float64
		withVerified float64
	}{
		{[]string{sim, fmt.Sprintf(row, "autoswap", "cuda:0", true, 1010, 0.11)}, OK, 1, 1},
		{[]string{sim, fmt.Sprintf(row, "autoswap", "cuda:0", true, 1030, 0.11)}, OK, 0, 1},
		{[]string{sim, fmt.Sprintf(row, "autoswap", "cuda:0", true, 1010, 0.13)}, OK, 0, 1},
		{[]string{sim, fmt.Sprintf(row, "autoswap", "cuda:0", false, 1010, 0.11)}, Failed, 1, 0},
		{[]string{sim}, Failed, 0, 0},
	} {
		text := `{"problem": {"step_time_ns": 1000}, "results": [` + strings.Join(c.rows, ", ") + `]}`
		r := one(t, stage(t, "cat <<'END'\n"+text+"\nEND"), "compare-ResNet-50-75")
		verified, _ := r.figure("verified", "")
		predicted, _ := r.figure("as_predicted", "")
		if r.Outcome != c.want || predicted != c.asPredicted || verified != c.withVerified {
			t.Errorf("%s: %+v", text, r)
		}
	}
}

// A recorded step of ten seconds is carried out if every check is to run, and skipped by name if the time is
// limited.
func TestLongStepsAreForRunsWithoutALimit(t *testing.T) {
	row :=
		`{"manager": "autoswap", "executor": "ideal", "target": "%s", "available": true, "verified": true, ` +
			`"footprint_bytes": 1000}`
	text := `{"problem": {"step_time_ns": 9600000000}, "results": [` + fmt.Sprintf(row,
		"sim") + ", " + fmt.Sprintf(row, "cuda:0") + `]}`
	for _, c := range []struct {
		limited bool
		want    Outcome
	}{{false, OK}, {true, Skipped}} {
		s := stage(t, "cat <<'END'\n"+text+"\nEND")
		if c.limited {
			s.end = time.Now().Add(time.Hour)
		}
		if r := one(t, s, "compare-gpt-steps-cpu-75"); r.Outcome != c.want || c.limited &&
			!strings.Contains(r.Reason, "a check has 150 s") {
			t.Errorf("limited: %v: %+v", c.limited, r)
		}
	}
}

func TestATinyNetworkIsNotTakenForOneThatDoesNotFit(t *testing.T) {
	s := stage(t, "exit 1")
	s.facts.limit = true
	if r := one(t, s, "beyond-vgg16"); r.Outcome != Skipped ||
		!strings.HasPrefix(r.Reason, "needs networks of ordinary size") {
		t.Errorf("%+v", r)
	}
}

func TestNetworksFitTheDevice(t *testing.T) {
	for _, c := range []struct {
		free    int64
		standIn bool
		tiny    bool
		want    string
	}{
		{80 * gib, false, false, "full"}, {0, false, false, "full"}, {19 * gib, false, false, "small"},
		{3 * gib, false, false, "tiny"},
		{80 * gib, false, true, "tiny"}, {80 * gib, true, false, "tiny"},
	} {
		s := newCheckup(Options{Folder: t.TempDir(), Tiny: c.tiny})
		s.facts.free, s.facts.gpu.StandIn = c.free, c.standIn
		if got := s.sizeFor().name; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestABrokenCheckFailsAloneAndTheRestGoesOn(t *testing.T) {
	s := stage(t, "")
	list := []Check{
		{Name: "doctor", run: func(context.Context, *trial) error { panic("oh") }},
		{Name: "attach", run: func(context.Context, *trial) error { return nil }},
		{Name: "ranks", needs: needTwoGPUs, run: func(context.Context, *trial) error { return nil }},
		{Name: "oom", Least: time.Hour, run: func(context.Context, *trial) error { return nil }},
	}
	s.end = time.Now().Add(time.Minute)
	r, err := s.all(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	var got []Outcome
	for _, x := range r.Results {
		got = append(got, x.Outcome)
	}
	if fmt.Sprint(got) != "[failed ok skipped not_run]" || r.Failed() != 1 {
		t.Errorf("%v", r.Results)
	}
	// Checks that were ok do not run again in the same folder; nothing else in it is reused.
	again := newCheckup(s.Options)
	again.facts, again.size = s.facts, s.size
	for i := range list {
		list[i].run = func(context.Context, *trial) error { return errors.New("again") }
	}
	if r, err = again.all(t.Context(), list); err != nil || r.Failed() != 2 || r.Results[1].Outcome != OK {
		t.Errorf("%v, %v", r, err)
	}
	other := newCheckup(s.Options)
	other.facts, other.size = s.facts, s.size
	other.facts.gpu.Name = "NVIDIA Another"
	if r, err = other.all(t.Context(), list[1:2]); err != nil || r.Failed() != 1 {
		t.Errorf("a result on another card was taken over: %v, %v", r, err)
	}
}

func TestACheckThatDoesNotEndIsStoppedByTheTime(t *testing.T) {
	s := stage(t, "sleep 1000 & sleep 1000")
	s.end = time.Now().Add(300 * time.Millisecond)
	c, _ := Find("doctor")
	c.Least = 0
	r, err := s.all(t.Context(), []Check{c})
	if err != nil || r.Results[0].Outcome != NotRun {
		t.Errorf("%v, %v", r, err)
	}
	if left := marked(tokenName + "=" + s.token); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// Stopping ends the program, its process group, and a process that left the group for its own session and
// ignores every signal that it can.
func TestStoppingLeavesNoProcess(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("needs setsid: a program that starts another one in a session of its own")
	}
	s := stage(t, "trap '' TERM HUP INT; setsid sh -c \"trap '' TERM HUP INT; while :; do sleep 1; done\" "+
		"& touch started; while :; do sleep 1; done")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(s.Folder, "started")); err == nil &&
				len(marked(tokenName+"="+s.token)) >= 2 {
				cancel()
				return
			}
			time.Sleep(10 * time.Millisecond) // between two looks
		}
	}()
	c, _ := Find("doctor")
	if _, err := s.all(ctx, []Check{c}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := alive(marked(tokenName + "=" + s.token))
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v are left", left)
		}
	}
}

// alive returns the processes that can still be signalled.
func alive(pids []int) []int {
	var list []int
	for _, pid := range pids {
		if syscall.Kill(pid, 0) == nil {
			list = append(list, pid)
		}
	}
	return list
}

// The user's environment does not reach the gmemtop that is checked.
func TestSettingsOfTheUserReachNoCheck(t *testing.T) {
	s := stage(t, `echo "gmemtop: $(env | grep -c '^GMEMTOP_BUDGET') settings" >&2; exit 1`)
	s.Environ = append(s.Environ, "GMEMTOP_BUDGET=1GiB")
	if r := one(t, s, "doctor"); !strings.HasPrefix(r.Reason, "0 settings") {
		t.Errorf("%+v", r)
	}
}

func TestScriptsAreUnpacked(t *testing.T) {
	dir := t.TempDir()
	if err := unpack(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gpt2.py", "learn.py"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			!bytes.Contains(b, []byte("torch")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnUnknownOverheadDoesNotPass(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		tiny      bool
		want      string
	}{
		{-0.001, 0.004, false, ""},
		{0.001, 0.02, false, ""},
		{0.006, 0.01, false, "it costs more than half a percent"},
		{0.006, 0.01, true, "needs networks of ordinary size: a step of a tiny one takes next to nothing"},
		{-0.33, 0.23, true, "needs a quieter machine: watching costs between -33.0 and 23.0 % of a step"},
		{-0.01, 0.012, false, "needs a quieter machine: watching costs between -1.0 and 1.2 % of a step"},
	} {
		err := costs([2]float64{c.low, c.high}, c.tiny)
		var skipped skipped
		switch {
		case c.want == "" && err == nil:
		case err == nil || err.Error() != c.want:
			t.Errorf("%v to %v: %v, not %q", c.low, c.high, err, c.want)
		case errors.As(err, &skipped) != strings.HasPrefix(c.want, "needs"):
			t.Errorf("%v to %v: %T", c.low, c.high, err)
		}
	}
}

// figure returns a figure of a result by its name and what it belongs to.
func (r *Result) figure(name, of string) (float64, bool) {
	for _, f := range r.Figures {
		if f.Name == name && f.Of == of {
			return f.Value, true
		}
	}
	return 0, false
}
