//go:build standin && linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gmemtop/gmemtop/capture/await"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/replay/acceptance"
)

// reporting prepares doctor --gpu-report on a machine, and returns the file that it will write. collect takes
// the command's error and returns its result.
func reporting(t *testing.T, m standin.Machine, arguments ...string) (cmd *exec.Cmd, file string,
	collect func(error) standintest.Result) {
	t.Helper()
	lib := standintest.Library(t)
	program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "gpu.json")
	arguments = append([]string{"doctor", "--gpu-report", file, "--python", standintest.Interpreter(t),
		"--tiny"}, arguments...)
	cmd, collect = standintest.Start(t, lib, m, program, arguments...)
	return cmd, file, collect
}

// reported runs doctor --gpu-report and reads the file.
func reported(t *testing.T, m standin.Machine, arguments ...string) (*acceptance.Report, standintest.Result) {
	t.Helper()
	cmd, file, collect := reporting(t, m, arguments...)
	r := collect(cmd.Run())
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; %v\n%s%s", err, r.Err, r.Stdout, r.Stderr)
	}
	report, err := acceptance.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	private(t, string(b))
	for _, p := range r.Reports {
		for _, v := range p.Violations {
			t.Errorf("process %d: %s", p.PID, v)
		}
	}
	return report, r
}

// private fails if a file meant for strangers names this machine, its user, or a file.
func private(t *testing.T, text string) {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{dir, os.Getenv("HOME"), os.TempDir(), os.Getenv("GMEMTOP_TORCH"),
		`"` + host + `"`, " " + host + " ", "GPU-"} {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("the report holds %q:\n%s", secret, text)
		}
	}
}

// exitOf returns the exit code of a command.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return 0
}

func TestQuickAGPUReportOnTheStandIn(t *testing.T) {
	names := "doctor,gpt2-record,gpt2-stats,snapshot,oom"
	r, did := reported(t, standin.Machine{Compute: true, Clock: "virtual"}, "--checks", names)
	if did.Err != nil {
		t.Errorf("%v\n%s%s", did.Err, did.Stdout, did.Stderr)
	}
	if len(r.Results) != strings.Count(names, ",")+1 {
		t.Errorf("%d results", len(r.Results))
	}
	for _, x := range r.Results {
		if x.Outcome != acceptance.OK || len(x.Figures) == 0 {
			t.Errorf("%s: %s", x.Check, x)
		}
	}
	if !r.GPU.StandIn || !strings.Contains(r.GPU.Name, "H100") || r.Torch == nil || r.GPU.Memory < 70<<30 {
		t.Errorf("%+v, %+v", r.GPU, r.Torch)
	}
	for _, want := range []string{"This is all that ", "a stand-in, not a GPU", "nothing was sent",
		"attach it to an issue of the project"} {
		if !strings.Contains(did.Stdout, want) {
			t.Errorf("standard output does not say %q:\n%s", want, did.Stdout)
		}
	}
}

// Two ranks of DDP over NCCL are recorded on two GPUs; with one GPU the check says what is missing.
func TestAGPUReportOfTwoRanks(t *testing.T) {
	r, did := reported(t, standin.Machine{Compute: true, Clock: "virtual", Devices: 2}, "--checks", "ranks")
	x, _ := r.Result("ranks")
	if did.Err != nil || x.Outcome != acceptance.OK {
		t.Fatalf("%s; %v\n%s%s", x, did.Err, did.Stdout, did.Stderr)
	}
	for _, want := range []struct {
		name  string
		value float64
	}{{"ranks", 2}, {"steps", 20}} {
		if i := slices.IndexFunc(x.Figures, func(f acceptance.Figure) bool {
			return f.Name == want.name
		}); i < 0 || x.Figures[i].Value != want.value {
			t.Errorf("%s is not %v: %+v", want.name, want.value, x.Figures)
		}
	}
	r, _ = reported(t, standin.Machine{}, "--checks", "ranks")
	if x, _ := r.Result("ranks"); x.Outcome != acceptance.Skipped || x.Reason != "needs two GPUs" {
		t.Errorf("on one GPU: %s", x)
	}
}

// If a GPU is lost during a check, that check fails with its own exit code; later checks still run.
func TestQuickAFailingGPUIsReported(t *testing.T) {
	r, did := reported(t, standin.Machine{Fail: []string{"cudaMalloc:1=700"}}, "--checks", "snapshot,doctor")
	x, _ := r.Result("snapshot")
	if x.Outcome != acceptance.Failed || x.Reason == "" {
		t.Errorf("%s", x)
	}
	if x, _ := r.Result("doctor"); x.Outcome != acceptance.OK {
		t.Errorf("%s", x)
	}
	if code := exitOf(t, did.Err); code != exitFinding {
		t.Errorf("exit code %d", code)
	}
}

func TestQuickWithoutAGPUThereIsNoReport(t *testing.T) {
	cmd, file, collect := reporting(t, standin.Machine{Devices: -1})
	did := collect(cmd.Run())
	if code := exitOf(t, did.Err); code != exitUnsupported ||
		!strings.Contains(did.Stderr, "there is no GPU to check") {
		t.Errorf("exit code %d\n%s", code, did.Stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
}

// Ctrl-C during a training ends the command with 130 and leaves neither a file nor a process.
func TestQuickStoppingAGPUReportLeavesNothing(t *testing.T) {
	keep := t.TempDir()
	cmd, file, collect := reporting(t, standin.Machine{}, "--checks", "attach", "--keep", keep)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the training has begun", func() bool {
		b, _ := os.ReadFile(filepath.Join(keep, "attach-alone.txt"))
		return bytes.Contains(b, []byte("step 1 "))
	})
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	did := collect(cmd.Wait())
	if code := exitOf(t, did.Err); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, did.Stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was written")
	}
	if left := runningIn(t, keep); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// runningIn returns the command lines of processes that work in a folder.
func runningIn(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && at == dir {
			b, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, string(bytes.ReplaceAll(b, []byte{0}, []byte{' '})))
		}
	}
	return found
}
