package standin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
)

// TestQuickSchedules: the virtual clock gives the times that each file's text works out by hand, in whatever
// order the work is really done.
func TestQuickSchedules(t *testing.T) {
	python, lib := interpreter(t), standintest.Driver(t)
	script, err := filepath.Abs("testdata/clock.py")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/clock/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d schedules: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			parts, dir := map[string]string{}, t.TempDir()
			for _, f := range archive.Files {
				parts[f.Name] = string(f.Data)
			}
			m := standin.Machine{Model: "plain", Clock: standin.Program, Context: "0",
				Rates: strings.TrimSpace(parts["rates"])}
			if parts["times"] != "" {
				m.Times = filepath.Join(dir, "times")
				if err := os.WriteFile(m.Times, []byte(parts["times"]), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			program := filepath.Join(dir, "program")
			if err := os.WriteFile(program, []byte(parts["program"]), 0o666); err != nil {
				t.Fatal(err)
			}
			for _, order := range []string{standin.Once, standin.Late, "2", "3"} {
				m.Order = order
				r := standintest.Run(t, lib, m, python, script, program)
				if r.Err != nil || r.Stdout != parts["want"] {
					t.Errorf("order %s: %v\n%s%sexpected\n%s", order, r.Err, r.Stdout, r.Stderr,
						parts["want"])
				}
			}
		})
	}
}

// TestQuickClockSharesNoCost: the virtual clock shares no code with what predicts times.
func TestQuickClockSharesNoCost(t *testing.T) {
	for _, pattern := range []string{"src/*", "compute/*.py", "compute/*/*.py", "*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if m := regexp.MustCompile(`gmemtop/(replay|managers)`).Find(text); m != nil &&
				filepath.Base(path) != "clock_test.go" {
				t.Errorf("%s names %s", path, m)
			}
		}
	}
}
