package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTutorialsSayWhatHappens runs the commands of each tutorial in a folder with the scripts that it shows.
// Each line that the page shows must be printed, in that order; "..." leaves lines out. Figures may differ
// a little between versions of torch: they may be off by a tenth.
func TestTutorialsSayWhatHappens(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil || len(pages) < 3 {
		t.Fatalf("%d tutorials, %v", len(pages), err)
	}
	for _, page := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			needs := strings.Contains(string(text), "$ gmemtop estimate")
			if needs && os.Getenv("GMEMTOP_TORCH") == "" {
				t.Skip("needs GMEMTOP_TORCH: a Python interpreter that has torch")
			}
			runTutorial(t, string(text))
		})
	}
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\\n(.*?)^```$")

func runTutorial(t *testing.T, page string) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	write := func(name, text string, mode os.FileMode) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/python", fmt.Sprintf("#!/bin/sh\nexec %q \"$@\"\n", os.Getenv("GMEMTOP_TORCH")), 0o700)
	for rank := range 4 { // snapshots of a made-up run, for the tutorial about ranks
		words := []string{"steps=4"}
		if rank == 2 {
			words = append(words, "batch=64")
		}
		if err := os.MkdirAll(filepath.Join(dir, "snapshots"), 0o700); err != nil {
			t.Fatal(err)
		}
		recorded(t, filepath.Join(dir, "snapshots"), fmt.Sprintf("rank%d.pickle", rank), words...)
	}
	code, ran := 0, 0
	for _, block := range fence.FindAllStringSubmatch(page, -1) {
		name, named := strings.CutPrefix(strings.SplitN(block[2], "\n", 2)[0], "# ")
		switch {
		case block[1] == "python" && named:
			write(name, block[2], 0o600)
		case block[1] == "console":
			for _, part := range strings.Split("\n"+block[2], "\n$ ")[1:] {
				command, want, _ := strings.Cut(part, "\n")
				if command == "echo $?" {
					if got := fmt.Sprint(code); got != strings.TrimSpace(want) {
						t.Errorf("exit code %s, and the page says %s", got, want)
					}
					continue
				}
				ran++
				var out string
				out, code = shell(t, dir, bin, command)
				if missing := unsaid(out, want); missing != "" {
					t.Errorf("%s does not print %q; it prints\n%s", command, missing, out)
				}
			}
		}
	}
	if ran < 2 {
		t.Errorf("%d commands", ran)
	}
}

// shell runs a command and returns what it printed on standard output, and its exit code.
func shell(t *testing.T, dir, bin, command string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	var b, problems strings.Builder
	cmd.Stdout, cmd.Stderr = &b, &problems
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	code = cmd.ProcessState.ExitCode()
	if code != exitOK && code != exitFinding {
		t.Errorf("%s: exit code %d: %s", command, code, problems.String())
	}
	return b.String(), code
}

var figures = regexp.MustCompile(`\d[\d.,]*`)

// alike reports whether a printed line is the wanted one, with figures that are off by a tenth at most.
func alike(printed, wanted string) bool {
	plain := func(line string) string {
		return strings.Join(strings.Fields(figures.ReplaceAllString(line, "0")), " ")
	}
	if plain(printed) != plain(wanted) {
		return false
	}
	got, want := figures.FindAllString(printed, -1), figures.FindAllString(wanted, -1)
	for i := range want {
		x, err := strconv.ParseFloat(strings.TrimRight(got[i], ".,"), 64)
		y, err2 := strconv.ParseFloat(strings.TrimRight(want[i], ".,"), 64)
		if err != nil || err2 != nil || math.Abs(x-y) > y/10 {
			return false
		}
	}
	return true
}

// unsaid returns the first wanted line that is not printed after the one before it, "" if all are.
func unsaid(printed, wanted string) string {
	lines := strings.Split(printed, "\n")
	for want := range strings.SplitSeq(strings.TrimSpace(wanted), "\n") {
		if want == "..." || want == "" {
			continue
		}
		at := 0
		for at < len(lines) && !alike(lines[at], want) {
			at++
		}
		if at == len(lines) {
			return want
		}
		lines = lines[at+1:]
	}
	return ""
}
