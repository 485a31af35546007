package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/export"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/torchsnapshot"
)

// drives is what a hostile name holds: an escape sequence, a C1 control, a bell, a change of direction, and
// line ends followed by a forged line.
const drives = "\x1b]0;planted\x07\u009b31m\u202e\x7f\rplanted:\nplanted:"

// hostile returns the embedded sample with all of that in every string.
func hostile(t *testing.T) *traces.Trace {
	t.Helper()
	tr, err := load.Open(t.Context(), "sample:gpt-steps-cpu", load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(tr.Strings); i++ {
		tr.Strings[i] += drives
	}
	for i := range tr.Devices {
		tr.Devices[i].Name += drives
	}
	value, err := json.Marshal(drives)
	if err != nil {
		t.Fatal(err)
	}
	tr.Settings = append(tr.Settings, traces.Setting{Key: "a" + drives, Value: string(value)})
	tr.Extra = append(tr.Extra, traces.Setting{Key: "b" + drives, Value: string(value)})
	tr.Process.Host, tr.Source.Tool = "host"+drives, "tool"+drives
	tr.Losses = append(
		tr.Losses,
		traces.Loss{Name: "c" + drives, Severity: traces.Fault, Count: 1, Detail: drives},
	)
	return tr
}

// TestFilesCannotControlTheTerminal runs every command that reads files on a file with hostile strings and a
// hostile name, with and without colours.
func TestFilesCannotControlTheTerminal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d"+drives)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	tr := hostile(t)
	var native, snapshot bytes.Buffer
	if err := gmt.Write(t.Context(), &native, tr); err != nil {
		t.Fatal(err)
	}
	if err := torchsnapshot.Write(t.Context(), &snapshot, tr); err != nil {
		t.Fatal(err)
	}
	oom, err := newTraining([]string{"steps=3", "oom", "user=" + drives})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"whole": native.Bytes(), "cut": native.Bytes()[:native.Len()/2], "snapshot": snapshot.Bytes(),
		"half": snapshot.Bytes()[:snapshot.Len()/2], "oom": oom.json(), "noise": []byte(drives),
		"problem": []byte("id,lower,upper,size\n\"a" + drives + "\",0,4,100\n\"=b\x1b[31m\",2,6,50\n"),
		"wrong":   []byte("id,lower,upper,size\na,0,\"4" + drives + "\",100\n"),
		"log": []byte(
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total " +
				"capacity of 8.00 GiB of which 1.00 GiB is free. Process 12 has 1.00 GiB memory in use. " +
				drives,
		),
	}
	path := map[string]string{}
	for name, data := range files {
		path[name] = filepath.Join(dir, name+drives)
		if err := os.WriteFile(path[name], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path["none"] = filepath.Join(dir, "none"+drives)
	const few = "caching,sqrt,vdnn-all"
	var lines [][]string
	for name, p := range path {
		lines = append(
			lines,
			[]string{"stats", p},
			[]string{"oom", p},
			[]string{"replay", p},
			[]string{"repair", p, "-f"},
			[]string{"pack", p},
			[]string{"stats", p, "--json", "-v"},
		)
		if name == "noise" || name == "none" {
			lines = append(
				lines,
				[]string{"compare", p},
				[]string{"diff", p, p},
				[]string{"export", p, "--format", "csv"},
				[]string{"plan", p, "--manager", "caching", "--budget", "1GiB"},
			)
		}
	}
	for _, f := range export.Formats {
		if !f.Binary {
			lines = append(lines, []string{"export", path["whole"], "--format", f.Name},
				[]string{"export", path["oom"], "--format", f.Name})
		}
	}
	lines = append(
		lines,
		[]string{"export", path["whole"], "--format", "csv", "--what", "events"},
		[]string{"export", path["whole"], "--format", "csv", "--what", "stacks"},
		[]string{"diff", path["whole"], path["oom"]},
		[]string{"diff", path["whole"], path["oom"], "--json"},
		[]string{"diff", path["oom"], path["whole"], "--format", "markdown"},
		[]string{"oom", path["oom"], "--format", "markdown"},
		[]string{"oom", path["oom"], "--json"},
		[]string{"compare", path["whole"], "--managers", few, "--budget", "80%", "--notes"},
		[]string{"compare", path["whole"], "--managers", few, "--budget", "80%", "--json"},
		[]string{"plan", path["whole"], "--manager", "sqrt", "--budget", "80%"},
		[]string{"plan", path["whole"], "--manager", "sqrt", "--budget", "80%", "--eager", "--emit", "torch"},
		[]string{"replay", path["whole"], path["oom"]},
		[]string{"replay", dir},
		[]string{
			"stats",
			path["whole"],
			"--device",
			drives,
		},
		[]string{"stats", path["whole"], "--from", drives},
		[]string{drives},
		[]string{path["whole"]},
	)
	for _, args := range lines {
		for _, more := range [][]string{nil, {"--color", "always"}} {
			code, text := runInto(t, append(slices.Clone(args), more...))
			for at, line := range strings.Split(text, "\n") {
				if bad := strings.IndexFunc(strip(line), driving); bad >= 0 ||
					strings.HasPrefix(line, "planted:") {
					t.Errorf("%.200q: exit code %d, line %d is %.300q", args, code, at+1, line)
					break
				}
			}
			if len(text) == 0 {
				t.Errorf("%.200q: exit code %d and nothing printed", args, code)
			}
			if !utf8.ValidString(text) {
				t.Errorf("%.200q: what is printed is not UTF-8", args)
			}
		}
	}
}

// TestNoCellIsAFormula: a spreadsheet evaluates cells that begin with = + - @, even after a tab or a carriage
// return.
func TestNoCellIsAFormula(t *testing.T) {
	for _, begin := range []string{"=", "+", "-", "@", "\t=", "\r="} {
		tr, err := load.Open(t.Context(), "sample:gpt-steps-cpu", load.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(tr.Strings); i++ {
			tr.Strings[i] = begin + tr.Strings[i]
		}
		dir := t.TempDir()
		trace, problem := filepath.Join(dir, "trace"), filepath.Join(dir, "problem")
		var data bytes.Buffer
		if err := gmt.Write(t.Context(), &data, tr); err != nil {
			t.Fatal(err)
		}
		rows := "id,lower,upper,size\n\"" + begin + "a\",0,4,100\n"
		err = errors.Join(
			os.WriteFile(trace, data.Bytes(), 0o600),
			os.WriteFile(problem, []byte(rows), 0o600),
		)
		if err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"export", trace, "--format", "csv"}, {"pack", problem, "-o", "-"},
			{"export", trace, "--format", "csv", "--what", "events"},
			{"export", trace, "--format", "csv", "--what", "stacks"}} {
			code, text := runInto(t, append([]string{"-q"}, args...))
			if args[0] == "pack" { // the verdict stands below the rows
				text, _, _ = strings.Cut(text, "peak")
			}
			table, err := csv.NewReader(strings.NewReader(text)).ReadAll()
			if code != 0 || err != nil || len(table) < 2 {
				t.Fatalf("%q: exit code %d, %d rows, %v", args, code, len(table), err)
			}
			guarded := 0
			for _, row := range table {
				for _, cell := range row {
					_, err := strconv.ParseInt(cell, 10, 64)
					if err != nil && cell != "" && strings.Contains("=+-@\t\r", cell[:1]) {
						t.Fatalf("%q: the cell %q", args, cell)
					}
					if strings.HasPrefix(cell, "'") {
						guarded++
					}
				}
			}
			if guarded == 0 && args[len(args)-1] != "events" { // this sample's events have no stacks
				t.Errorf("%q: no cell of %d rows has a name that begins so", args, len(table))
			}
		}
	}
}

// TestProcessNamesCannotControlTheTerminal: a process chooses its own arguments.
func TestProcessNamesCannotControlTheTerminal(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("needs sleep: a process that is not Python")
	}
	cmd := exec.Command(sleep, "60")
	cmd.Args[0] = "python" + drives
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	for { // a process that is still in exec has no arguments yet
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		if err != nil {
			t.Skip("needs /proc: the arguments of a process")
		}
		if len(line) > 0 {
			break
		}
		runtime.Gosched()
	}
	_, text := runInto(t, []string{"attach", "--dry-run", strconv.Itoa(cmd.Process.Pid)})
	if !strings.Contains(text, "python") {
		t.Errorf("the process is not named: %q", text)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "planted:") ||
			strings.ContainsFunc(strings.TrimSuffix(line, "\n"), driving) {
			t.Errorf("printed %q", line)
		}
	}
}

// strip removes gmemtop's own two escape sequences, around a line in bold.
func strip(line string) string {
	if s, ok := strings.CutPrefix(line, "\x1b[1m"); ok {
		return strings.TrimSuffix(s, "\x1b[0m")
	}
	return line
}

// driving reports whether a terminal obeys r. It shares nothing with the code under test.
func driving(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r <= 0x9f || r == '\u202e'
}

// runInto runs a command line and returns its exit code and all that it printed.
func runInto(t *testing.T, args []string) (int, string) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "streams")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	env := []string{"XDG_CACHE_HOME=" + t.TempDir(), "HOME=" + t.TempDir()}
	code := newApp(os.Stdin, file, file, env).execute(context.Background(), args)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(text)
}
