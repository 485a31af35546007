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
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Finding is the result of one check. If something is unavailable, Command is a shell command that fixes it
// or works around it, and Fix says where to run it, or what else helps.
type Finding struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Detail    string `json:"detail"`
	Why       string `json:"why,omitempty"`
	Command   string `json:"command,omitempty"`
	Fix       string `json:"fix,omitempty"`
}

// missing says why something is unavailable, which command fixes it, and what else to know.
func (f *Finding) missing(why, command, fix string) Finding {
	f.Available, f.Why, f.Command, f.Fix = false, why, command, fix
	return *f
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
	driver := checkDriver()
	return Diagnosis{report.SchemaVersion, build.This(), []Finding{
		checkTerminal(t), checkColour(t), checkUnicode(t), checkCache(t), checkPython(ctx), checkTorch(ctx),
		driver, checkNVML(&driver), checkDevice(&driver), checkRun(), checkAttach(), checkProbes(),
		checkTrainings(ctx),
	}}
}

// WriteText writes a paragraph for each finding.
func (d *Diagnosis) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, d.Build)
	write(&b, d.Findings)
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteMissing prints only what does not work.
func (d *Diagnosis) WriteMissing(w io.Writer) error {
	var b strings.Builder
	write(&b, slices.DeleteFunc(slices.Clone(d.Findings), func(f Finding) bool { return f.Available }))
	_, err := io.WriteString(w, strings.TrimPrefix(b.String(), "\n"))
	return err
}

// write prints findings, each after an empty line.
func write(b *strings.Builder, list []Finding) {
	for _, f := range list {
		mark := "yes"
		if !f.Available {
			mark = " no"
		}
		fmt.Fprintf(b, "\n%s  %-16s %s\n", mark, f.Name, f.Detail)
		if f.Why != "" {
			fmt.Fprintf(b, "     why: %s\n", f.Why)
		}
		if f.Command != "" {
			fmt.Fprintf(b, "     fix: %s\n", f.Command)
		}
		if f.Fix != "" {
			fmt.Fprintf(b, "          %s\n", f.Fix)
		}
	}
}

func checkTerminal(t Terminal) Finding {
	f := Finding{Name: "terminal", Detail: "standard output is not a terminal"}
	if !t.Tty {
		return f.missing("replay prints its report once instead of opening the screen", "gmemtop doctor",
			"in a terminal, without a pipe or a redirection")
	}
	w, h, err := term.GetSize(t.Out.Fd())
	if err != nil {
		return f.missing("its size is unknown: "+err.Error(), "stty rows 24 cols 80",
			"with the size that your window has")
	}
	f.Available = w >= 60 && h >= 16 && t.Env("TERM") != "dumb"
	f.Detail = fmt.Sprintf("%dx%d, TERM=%s", w, h, t.Env("TERM"))
	switch {
	case t.Env("TERM") == "dumb":
		f.missing("TERM=dumb says that the terminal cannot place text", "export TERM=xterm-256color",
			"or whatever your terminal is")
	case !f.Available:
		f.missing("the screen needs 60x16", `printf '\033[8;24;80t'`,
			"or enlarge the window by hand; 80x24 shows all views")
	}
	return f
}

func checkColour(t Terminal) Finding {
	f := Finding{Name: "colour", Available: t.Colored}
	switch {
	case t.Color == "never":
		f.missing("--color never", "gmemtop --color auto", "")
	case t.Env("NO_COLOR") != "" && t.Color == "auto":
		f.missing("NO_COLOR is set", "unset NO_COLOR", "or use --color always")
	case !f.Available:
		f.missing("standard output is not a terminal, or a dumb one", "gmemtop doctor --color always",
			"other commands have --color, too")
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
		f.missing("the locale does not say UTF-8, so block characters may come out wrong",
			"export LC_ALL=C.UTF-8", "or use --ascii")
	}
	return f
}

// checkCache tries the folder of decoded copies, which makes opening a large trace fast the second time.
func checkCache(t Terminal) Finding {
	f := Finding{Name: "cache"}
	dir, err := os.UserCacheDir()
	if err != nil {
		f.Detail = "none"
		return f.missing(err.Error(), "export XDG_CACHE_HOME=$(mktemp -d)", "or set HOME")
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
		return f.missing("it cannot be made: "+output.Reason(err).Error(),
			"export XDG_CACHE_HOME=$(mktemp -d)",
			"or any other folder that you may write")
	}
	probe, err := os.CreateTemp(dir, "doctor-")
	if err != nil {
		return f.missing("it cannot be written: "+output.Reason(err).Error(), "chmod u+rwx "+quote(dir),
			"or set XDG_CACHE_HOME to another folder")
	}
	probe.Close()
	os.Remove(probe.Name())
	f.Available = true
	return f
}

// askPython limits how long Python may take to answer.
const askPython = 10 * time.Second

// Most environments of Python are activated like this.
const (
	activate    = "source .venv/bin/activate"
	activateFix = "or whatever activates the environment that your training runs in"
)

// quote quotes a path for a shell.
func quote(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// runPython runs code in the python3 on the PATH and returns what it prints.
func runPython(ctx context.Context, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPython)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", code).Output()
	return strings.TrimSpace(string(out)), err
}

func checkPython(ctx context.Context) Finding {
	f := Finding{Name: "python"}
	path, err := exec.LookPath("python3")
	if err != nil {
		f.Detail = "none"
		return f.missing("python3 is not on the PATH", activate, activateFix)
	}
	version, err := runPython(ctx, "import platform; print(platform.python_version())")
	if err != nil {
		f.Detail = path
		return f.missing("it does not run: "+err.Error(), activate, activateFix+"; "+path+" -V shows why")
	}
	f.Available, f.Detail = true, path+", "+version
	return f
}

// trainingPython returns the Python to train with: the named one, or else python3 if it has torch, or "".
func trainingPython(ctx context.Context, named string) string {
	if named != "" {
		path, err := filepath.Abs(named)
		if err == nil && strings.ContainsRune(named, filepath.Separator) {
			return path
		}
		return named // a name on the PATH
	}
	path, err := runPython(ctx, "import importlib.util, sys; "+
		"print(sys.executable if importlib.util.find_spec('torch') else '')")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(path)
}

// checkTorch asks for PyTorch's version without importing it, which would take seconds and GPU memory.
func checkTorch(ctx context.Context) Finding {
	f := Finding{Name: "pytorch", Detail: "none"}
	version, err := runPython(ctx, "import importlib.metadata as m; print(m.version('torch'))")
	if err != nil {
		why := "the python3 on the PATH has no package torch"
		if errors.Is(err, exec.ErrNotFound) {
			why = "there is no python3 on the PATH"
		}
		return f.missing(why, activate, activateFix+"; saved traces open without it")
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
		f.missing(fmt.Sprintf("gmemtop watches torch %d.%d and newer", oldestTorch/100, oldestTorch%100),
			"pip install --upgrade torch",
			"in the environment that your training runs in; snapshots of this one open")
	}
	return f
}
