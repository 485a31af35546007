package doctor

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

// Anything unavailable, on this machine or in a poorer environment, has a reason and one command that a shell
// takes; anything available has neither.
func TestUnavailableFindingsHaveAReasonAndAFix(t *testing.T) {
	for name, set := range map[string]map[string]string{
		"as it is":      nil,
		"no programs":   {"PATH": t.TempDir()},
		"no folders":    {"XDG_CACHE_HOME": "/dev/null", "XDG_RUNTIME_DIR": "/dev/null"},
		"a poor screen": {"TERM": "dumb", "NO_COLOR": "1", "LC_ALL": "C"},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range set {
				t.Setenv(k, v)
			}
			d := Diagnose(t.Context(), Terminal{Color: "auto", Environ: os.Environ(), Env: os.Getenv})
			if len(d.Findings) < 12 {
				t.Fatalf("%d findings: %+v", len(d.Findings), d)
			}
			for _, f := range d.Findings {
				if f.Detail == "" || f.Available != (f.Why == "") || f.Available != (f.Command == "") {
					t.Errorf("%+v", f)
				}
				if out, err := shell(f.Command); err != nil {
					t.Errorf("%s: sh does not take %q: %v, %s", f.Name, f.Command, err, out)
				}
			}
		})
	}
}

// shell has a shell check a command's syntax without running it.
func shell(command string) ([]byte, error) {
	return exec.Command("/bin/sh", "-n", "-c", command).CombinedOutput()
}

func TestTheCommandThatBringsADriverFitsTheMachine(t *testing.T) {
	const vendor, release = "sys/bus/pci/devices/0000:01:00.0/vendor", "etc/os-release"
	gpu := map[string]string{vendor: "0x10de\n"}
	for _, c := range []struct {
		files map[string]string
		want  string
	}{
		{nil, "gmemtop estimate -- python train.py"},
		{map[string]string{vendor: "0x1002\n"}, "gmemtop estimate -- python train.py"},
		{map[string]string{".dockerenv": ""}, "docker run --gpus all IMAGE"},
		{map[string]string{"run/.containerenv": ""}, "docker run --gpus all IMAGE"},
		{map[string]string{"lib/modules/6.1.0/updates/dkms/nvidia.ko.xz": "", release: "ID=debian\n"},
			"sudo modprobe nvidia"},
		{map[string]string{release: "NAME=\"Debian\"\nID=debian\n"}, "sudo apt install nvidia-driver"},
		{map[string]string{release: "ID=ubuntu\nID_LIKE=debian\n"}, "sudo ubuntu-drivers install"},
		{map[string]string{release: "ID=\"fedora\"\n"}, "sudo dnf install akmod-nvidia"},
		{map[string]string{release: "ID=slackware\n"}, "sudo modprobe nvidia"},
	} {
		root := t.TempDir()
		all := maps.Clone(c.files)
		if all[vendor] == "" && len(all) > 0 {
			maps.Copy(all, gpu)
		}
		for name, text := range all {
			path := filepath.Join(root, name)
			err := os.MkdirAll(filepath.Dir(path), 0o755)
			err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644))
			if err != nil {
				t.Fatal(err)
			}
		}
		if command, fix := machine(root).driver(); command != c.want || fix == "" {
			t.Errorf("%v: %q (%s), want %q", c.files, command, fix, c.want)
		}
	}
}

func TestPathsAreQuotedForAShell(t *testing.T) {
	for path, want := range map[string]string{
		"/home/a/.cache": "/home/a/.cache", "/a b": "'/a b'", "/a'b$(id)": `'/a'\''b$(id)'`,
	} {
		if got := quote(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestAttachFinding(t *testing.T) {
	for _, c := range []struct {
		system, architecture string
		scope                int
		capable, gdb         bool
		want                 string // the detail, or the reason and the fix
	}{
		{"linux", "amd64", 0, false, true, "your own processes: by ptrace, from Python 3.14 on by its " +
			"own remote debugging as well, and by gdb as the last resort"},
		{"linux", "amd64", 0, false, false, "your own processes: by ptrace, from Python 3.14 on by its " +
			"own remote debugging as well; there is no gdb, which is the last resort"},
		{"linux", "amd64", 2, true, false, "any process of this machine that is visible from here: by " +
			"ptrace, from Python 3.14 on by its own remote debugging as well; there is no gdb, which is " +
			"the last resort"},
		{"linux", "amd64", 1, false, true, "kernel.yama.ptrace_scope is 1: only a parent may trace a " +
			"process | sudo sysctl kernel.yama.ptrace_scope=0 | or once: sudo gmemtop attach PID"},
		{"linux", "amd64", 2, false, true,
			"kernel.yama.ptrace_scope is 2: only an administrator may trace | sudo gmemtop attach PID | "},
		{"linux", "amd64", 3, true, true, "kernel.yama.ptrace_scope is 3: nobody may trace until this " +
			"machine is booted with another setting | gmemtop run -- python train.py | watches a training " +
			"from its start"},
		{"linux", "arm64", 0, true, true, "attaching needs Linux on x86-64; this is linux on arm64 | " +
			"gmemtop run -- python train.py | watches a training from its start"},
		{"darwin", "amd64", 0, true, true, "attaching needs Linux on x86-64; this is darwin on amd64 | " +
			"gmemtop run -- python train.py | watches a training from its start"},
	} {
		f := attachFinding(c.system, c.architecture, c.scope, c.capable, c.gdb)
		got := f.Detail
		if !f.Available {
			got = f.Why + " | " + f.Command + " | " + f.Fix
		}
		if got != c.want {
			t.Errorf("%s/%s, scope %d, capable %v, gdb %v: %q, want %q", c.system, c.architecture, c.scope,
				c.capable, c.gdb, got, c.want)
		}
	}
}

func TestTorchFinding(t *testing.T) {
	for version, want := range map[string]bool{"1.13.1": false, "2.1.2+cu121": false, "2.2.0": true,
		"2.15.0a0+git12": true, "3.0": true, "unknown": true} {
		f := torchFinding(version)
		if f.Available != want || !strings.Contains(f.Detail, version) || !want &&
			(f.Why != "gmemtop watches torch 2.2 and newer" || f.Command == "") {
			t.Errorf("%s: %+v", version, f)
		}
	}
	if text := fmt.Sprintf("\nOLDEST = %d, %d ", oldestTorch/100,
		oldestTorch%100); strings.Count(pytorch.Agent(), text) != 1 {
		t.Errorf("the agent does not say %q", text)
	}
}

func TestProbesFinding(t *testing.T) {
	f := probesFinding("6.1.0", fmt.Errorf("%w: this needs root; run it with sudo; or not",
		usdt.ErrPermission))
	if f.Available || f.Why != "probes are not permitted: this needs root" ||
		f.Fix != "run it with sudo; or not" {
		t.Errorf("%+v", f)
	}
	if f := probesFinding("6.18.1", nil); !f.Available || !strings.Contains(f.Detail, "Linux 6.18.1") ||
		f.Why+f.Fix != "" {
		t.Errorf("%+v", f)
	}
	// On any machine the answer is yes, or no with a reason and a fix.
	if f := checkProbes(); f.Available == (f.Why != "") || f.Available == (f.Fix != "") {
		t.Errorf("%+v", f)
	}
	if f := checkProbes(); f.Available && (runtime.GOOS != "linux" || runtime.GOARCH != "amd64" ||
		os.Geteuid() != 0 && !capable(39)) {
		t.Errorf("probes by user %d: %+v", os.Geteuid(), f)
	}
}

func TestAReportHasAFileAndATime(t *testing.T) {
	for want, change := range map[string]func(g *GPUReport){
		"":              func(*GPUReport) {},
		"name of a":     func(g *GPUReport) { g.File = "-" },
		"--minutes 0":   func(g *GPUReport) { g.Minutes = 0 },
		"--minutes NaN": func(g *GPUReport) { g.Minutes = math.NaN() },
		"--device -1":   func(g *GPUReport) { g.Device = -1 },
	} {
		g := GPUReport{File: "gpu.json", Minutes: 9}
		change(&g)
		err := g.Check()
		if want == "" && err != nil || want != "" && (!exit.IsMistake(err) ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want a mistake with %q", g, err, want)
		}
	}
}
