// Package doctor reports which parts of gmemtop work on this machine, and how to fix the rest.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Finding is the result of one check. Fix says how to make something unavailable available.
type Finding struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Detail    string `json:"detail"`
	Why       string `json:"why,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// Diagnosis is all findings.
type Diagnosis struct {
	SchemaVersion int         `json:"schema_version"`
	Build         build.Build `json:"build"`
	Findings      []Finding   `json:"findings"`
}

// Terminal is where gmemtop writes to, as set by flags and the environment.
type Terminal struct {
	// Out is standard output; Tty means that it is a terminal.
	Out *os.File
	Tty bool
	// Color is the value of --color, Colored the result of it and the environment.
	Color   string
	Colored bool
	Units   timeline.Units
	// Environ is the environment; Env returns one of its variables, "" if it is not set.
	Environ []string
	Env     func(name string) string
}

// Diagnose runs all checks.
func Diagnose(ctx context.Context, t Terminal) Diagnosis {
	return Diagnosis{report.SchemaVersion, build.This(), []Finding{
		checkTerminal(t), checkColour(t), checkUnicode(t), checkCache(t), checkPython(ctx), checkTorch(ctx),
		checkDriver(), checkNVML(), checkDevice(), checkRun(), checkAttach(), checkProbes(),
		checkTrainings(ctx),
	}}
}

// WriteText writes a paragraph for each finding.
func (d *Diagnosis) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, d.Build)
	for _, f := range d.Findings {
		mark := "yes"
		if !f.Available {
			mark = " no"
		}
		fmt.Fprintf(&b, "\n%s  %-16s %s\n", mark, f.Name, f.Detail)
		if f.Why != "" {
			fmt.Fprintf(&b, "     why: %s\n", f.Why)
		}
		if f.Fix != "" {
			fmt.Fprintf(&b, "     fix: %s\n", f.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func checkTerminal(t Terminal) Finding {
	f := Finding{Name: "terminal", Detail: "standard output is not a terminal"}
	if !t.Tty {
		f.Why, f.Fix = "replay prints its report once instead of opening the screen",
			"run gmemtop in a terminal, without a pipe or a redirection"
		return f
	}
	w, h, err := term.GetSize(t.Out.Fd())
	if err != nil {
		f.Why, f.Fix = "its size is unknown: "+err.Error(),
			"run gmemtop in another terminal, without a wrapper that hides it"
		return f
	}
	f.Available = w >= 60 && h >= 16 && t.Env("TERM") != "dumb"
	f.Detail = fmt.Sprintf("%dx%d, TERM=%s", w, h, t.Env("TERM"))
	switch {
	case t.Env("TERM") == "dumb":
		f.Why, f.Fix = "TERM=dumb says that the terminal cannot place text",
			"export TERM=xterm-256color, or what else your terminal is"
	case !f.Available:
		f.Why, f.Fix = "the screen needs 60x16", "enlarge the window; 80x24 shows all views"
	}
	return f
}

func checkColour(t Terminal) Finding {
	f := Finding{Name: "colour", Available: t.Colored}
	switch {
	case t.Color == "never":
		f.Why, f.Fix = "--color never", "leave out --color never"
	case t.Env("NO_COLOR") != "" && t.Color == "auto":
		f.Why, f.Fix = "NO_COLOR is set", "unset NO_COLOR, or use --color always"
	case !f.Available:
		f.Why, f.Fix = "standard output is not a terminal, or a dumb one",
			"use --color always to have colours in a pipe"
	}
	f.Detail = "none"
	if f.Available {
		f.Detail = colorprofile.Env(t.Environ).String()
	}
	return f
}

func checkUnicode(t Terminal) Finding {
	locale := cmp.Or(t.Env("LC_ALL"), t.Env("LC_CTYPE"), t.Env("LANG"))
	f := Finding{Name: "unicode", Detail: "locale " + cmp.Or(locale, "not set")}
	upper := strings.ToUpper(locale)
	f.Available = strings.Contains(upper, "UTF-8") || strings.Contains(upper, "UTF8")
	if !f.Available {
		f.Why, f.Fix = "the locale does not say UTF-8, so block characters may come out wrong",
			"export LC_ALL=C.UTF-8, or use --ascii"
	}
	return f
}

// checkCache tries the folder of decoded copies, which makes opening a large trace fast the second time.
func checkCache(t Terminal) Finding {
	f := Finding{Name: "cache"}
	dir, err := os.UserCacheDir()
	if err != nil {
		f.Detail, f.Why, f.Fix = "none", err.Error(), "set HOME or XDG_CACHE_HOME"
		return f
	}
	dir = filepath.Join(dir, "gmemtop")
	n, size := 0, int64(0)
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // count only what can be read
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n, size = n+1, size+info.Size()
		}
		return nil
	})
	f.Detail = fmt.Sprintf("%s: %d decoded traces, %s", dir, n, t.Units.Bytes(size))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.Why, f.Fix = "it cannot be made: "+output.Reason(err).Error(),
			"set XDG_CACHE_HOME to a folder that you may write"
		return f
	}
	probe, err := os.CreateTemp(dir, "doctor-")
	if err != nil {
		f.Why, f.Fix = "it cannot be written: "+output.Reason(err).Error(),
			"chmod u+rwx "+dir+", or set XDG_CACHE_HOME to another folder"
		return f
	}
	probe.Close()
	os.Remove(probe.Name())
	f.Available = true
	return f
}

// askPython limits how long Python may take to answer.
const askPython = 10 * time.Second

// RunPython runs code in the python3 on the PATH and returns what it prints.
func RunPython(ctx context.Context, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPython)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", code).Output()
	return strings.TrimSpace(string(out)), err
}

func checkPython(ctx context.Context) Finding {
	f := Finding{Name: "python"}
	path, err := exec.LookPath("python3")
	if err != nil {
		f.Detail, f.Why, f.Fix = "none", "python3 is not on the PATH",
			"activate the environment that your training runs in"
		return f
	}
	version, err := RunPython(ctx, "import platform; print(platform.python_version())")
	if err != nil {
		f.Detail, f.Why, f.Fix = path, "it does not run: "+err.Error(),
			"run "+path+" -V to see why; activate the environment that your training runs in"
		return f
	}
	f.Available, f.Detail = true, path+", "+version
	return f
}

// checkTorch asks for PyTorch's version without importing it, which would take seconds and GPU memory.
func checkTorch(ctx context.Context) Finding {
	f := Finding{Name: "pytorch", Detail: "none"}
	version, err := RunPython(ctx, "import importlib.metadata as m; print(m.version('torch'))")
	if err != nil {
		f.Why = "the python3 on the PATH has no package torch"
		if errors.Is(err, exec.ErrNotFound) {
			f.Why = "there is no python3 on the PATH"
		}
		f.Fix = "source .venv/bin/activate, or what else activates the environment that your training runs " +
			"in; saved traces open without it"
		return f
	}
	return torchFinding(version)
}

// oldestTorch is the oldest version that the agent supports, as 100*major + minor.
const oldestTorch = 202

// torchFinding reports what gmemtop can do with a version of torch. A version that cannot be parsed counts as
// new; the agent checks for itself.
func torchFinding(version string) Finding {
	f := Finding{Name: "pytorch", Available: true, Detail: "torch " + version}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && 100*major+minor < oldestTorch {
		f.Available = false
		f.Why = fmt.Sprintf("trainings are watched from torch %d.%d on", oldestTorch/100, oldestTorch%100)
		f.Fix = "pip install --upgrade torch, in the environment that your training runs in; snapshots " +
			"of this one open"
	}
	return f
}

// checkDriver looks for NVIDIA's kernel driver by the files that it creates.
func checkDriver() Finding {
	f := Finding{Name: "nvidia driver", Detail: "none"}
	if runtime.GOOS != "linux" {
		f.Why, f.Fix = "gmemtop looks for GPUs on Linux only",
			"run gmemtop on the machine that trains; saved traces open here"
		return f
	}
	b, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		f.Why = "/proc/driver/nvidia/version: " + output.Reason(err).Error()
		f.Fix = "sudo modprobe nvidia, or in a container docker run --gpus all; saved traces open without it"
		return f
	}
	line, _, _ := strings.Cut(string(b), "\n")
	f.Detail = strings.TrimSpace(strings.TrimPrefix(line, "NVRM version:"))
	devices, _ := filepath.Glob("/dev/nvidia[0-9]*")
	if len(devices) == 0 {
		f.Why, f.Fix = "the driver is loaded and there is no /dev/nvidia0",
			"sudo nvidia-modprobe -c 0, or in a container docker run --gpus all"
		return f
	}
	for _, d := range devices {
		file, err := os.OpenFile(d, os.O_RDWR, 0)
		if err != nil {
			f.Why, f.Fix = d+": "+output.Reason(err).Error(),
				"sudo usermod -aG $(stat -c %G "+d+") $USER, and log in again"
			return f
		}
		file.Close()
	}
	f.Available = true
	f.Detail += fmt.Sprintf(", %d devices", len(devices))
	return f
}

// checkDevice asks the CUDA driver for GPUs that can carry plans out.
func checkDevice() Finding {
	f := Finding{Name: "replay on a GPU", Detail: "compare --target cuda, and t in the Managers view"}
	devices, err := cuda.Devices("")
	if err != nil {
		f.Why, f.Fix, _ = strings.Cut(err.Error(), ": ")
		return f
	}
	f.Available = true
	for _, d := range devices {
		f.Detail += fmt.Sprintf("; cuda:%d %s", d.Ordinal, planner.About(d))
	}
	return f
}
