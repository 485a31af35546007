package estimate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInterpreter: commands and the Python whose torch they load.
func TestInterpreter(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	file := func(name, text string) string {
		path := filepath.Join(bin, name)
		if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	onPath, other := file("python", "#!/bin/sh\n"), file("python3.11", "#!/bin/sh\n")
	for _, c := range []struct {
		name, text string // a file on PATH that is run, unless the text is ""
		args       []string
		want       string
	}{
		{"python3.11", "", []string{"train.py"}, other},
		{"torchrun", "#!" + other + "\nimport sys\n", []string{"train.py"}, other},
		{"accelerate", "#!/usr/bin/env python3.11\n", []string{"launch", "train.py"}, other},
		{"tune", "#!/bin/sh\n'''exec' \"" + other + "\" \"$0\" \"$@\"\n' '''\n", nil, other},
		{"litgpt", "#!/bin/sh\n'''exec' " + other + " \"$0\" \"$@\"\n' '''\n", nil, other},
		{"train.sh", "#!/bin/bash\npython train.py\n", nil, onPath},
		{"bash", "", []string{"-c", "python train.py"}, onPath},
		{"env", "", []string{"SEED=1", "python3.11", "train.py"}, other},
		{"nice", "", []string{"./train.py", "python3.11"}, onPath},
	} {
		if c.text != "" {
			file(c.name, c.text)
		}
		got, certain, err := interpreter(append([]string{c.name}, c.args...))
		if err != nil || got != c.want || certain != strings.HasPrefix(c.name, "python") {
			t.Errorf("%s %q: %s, certain %t (%v), want %s", c.name, c.args, got, certain, err, c.want)
		}
	}
}

// lines passes on what is written to it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestWhatACommandLeavesBehindHoldsNothingUp: a process that outlives the command still has its standard
// error, which the caller gets through a pipe. It ends only after Run has returned.
func TestWhatACommandLeavesBehindHoldsNothingUp(t *testing.T) {
	stays := filepath.Join(t.TempDir(), "stays") // removed with its folder, at the latest
	if err := os.WriteFile(stays, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	said := make(lines, 1)
	_, err := Run(t.Context(), Options{Stderr: said, Argv: []string{"sh", "-c",
		`(while [ -e "$0" ]; do sleep 0.1; done) & echo here >&2`, stays}})
	if !errors.Is(err, ErrUnsupported) { // no torch was loaded
		t.Errorf("the command ended well, and the error is %v", err)
	}
	if got := <-said; got != "here\n" {
		t.Errorf("standard error is %q", got)
	}
	if err := os.Remove(stays); err != nil {
		t.Fatal(err)
	}
}
