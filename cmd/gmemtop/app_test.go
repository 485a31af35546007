package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/traces"
)

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("disk full"), 1},
		{exit.Mistakef("no such flag"), 2},
		{fmt.Errorf("wrapped: %w", exit.Mistakef("no such flag")), 2},
		{errFinding, 3},
		{&traces.FormatError{Format: "x", Reason: "cut"}, 4},
		{fmt.Errorf("f: %w", &traces.FormatError{Format: "x", Err: fs.ErrPermission}), 4},
		{fmt.Errorf("f: %w", traces.ErrUnsupported), 5},
		{&fs.PathError{Op: "open", Path: "f", Err: fs.ErrPermission}, 5},
		{fmt.Errorf("f: %w", context.Canceled), 130},
		{&inject.Error{Kind: inject.ErrNotPermitted}, 5},
		{fmt.Errorf("p: %w", &inject.Error{Kind: inject.ErrUnsupported}), 5},
		{&inject.Error{Kind: inject.ErrGone}, 1},
		{&inject.Error{Kind: inject.ErrNotPython}, 1},
		{&inject.Error{Kind: inject.ErrBusy}, 1},
		{&inject.Error{Kind: inject.ErrReused}, 1},
		{fmt.Errorf("p: %w", pytorch.ErrWatched), 1},
		{fmt.Errorf("p: %w", pytorch.ErrVersion), 1},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestACancelledCommandEndsWith130AndSaysNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	path := filepath.Join(dir, "run.json")
	run, err := newTraining([]string{"steps=30"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, run.json(), 0o666); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "streams"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, args := range [][]string{{"stats", path}, {"oom", path}, {"diff", path, path},
		{"export", path, "-o",
			filepath.Join(dir, "x.html")}, {"replay", path}} {
		if code := newApp(file, file, file, nil).execute(ctx, args); code != exitInterrupted {
			t.Errorf("%s: exit code %d", args[0], code)
		}
	}
	if b, _ := os.ReadFile(file.Name()); len(b) > 0 {
		t.Errorf("printed %q", b)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".x*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestFileNamesCannotControlTheTerminal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	a := newApp(file, file, file, nil)
	evil := "a\x1b[31m\nb\u202e"
	a.notef("%s is written", evil)
	if code := a.execute(t.Context(), []string{"stats", evil}); code != exitFailure {
		t.Errorf("a missing file: exit code %d", code)
	}
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if strings.ContainsAny(text, "\x1b\u202e") || strings.Count(text, "\n") != 2 ||
		strings.Count(text, "[31m") != 2 {
		t.Errorf("printed %q", text)
	}
}

func TestEveryCommandHasHelpAndAnExampleThatNamesIt(t *testing.T) {
	root := newRootCommand(newApp(nil, nil, nil, nil))
	for _, c := range root.Commands() {
		if c.Short == "" || c.Runnable() && c.GroupID == "" && c.Name() != "help" {
			t.Errorf("%s has no short help or group", c.Name())
		}
		if !c.Runnable() && c.Long == "" {
			t.Errorf("the topic %s says nothing", c.Name())
		}
		if c.Example != "" && !strings.Contains(c.Example, "gmemtop "+c.Name()) {
			t.Errorf("%s's example does not use it", c.Name())
		}
	}
}

func TestEveryFlagNamesItsValueInWordsOfThePeopleWhoUseIt(t *testing.T) {
	kinds := regexp.MustCompile(`^(string|int|uint|float|bool|count|stringArray|strings|ints|.*Slice|.*64)$`)
	root := newRootCommand(newApp(nil, nil, nil, nil))
	for _, c := range append(root.Commands(), root) {
		for _, f := range help.ShownFlags(c, true) {
			if kinds.MatchString(help.ValueName(f)) {
				t.Errorf("%s --%s takes a %q: add it to valueNames of package help", c.Name(), f.Name,
					help.ValueName(f))
			}
			if strings.Contains(f.Usage, "\n") {
				t.Errorf("%s --%s has a line break in its help", c.Name(), f.Name)
			}
		}
	}
}
