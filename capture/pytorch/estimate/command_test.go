package estimate

import (
	"os"
	"path/filepath"
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
		got, err := interpreter(append([]string{c.name}, c.args...))
		if err != nil || got != c.want {
			t.Errorf("%s %q: %s (%v), want %s", c.name, c.args, got, err, c.want)
		}
	}
}

// TestDevices: how many cards the machine of a command has.
func TestDevices(t *testing.T) {
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	visible := []string{"CUDA_VISIBLE_DEVICES=4,5,6,7"}
	for _, c := range []struct {
		o    RealOptions
		want int
	}{
		{RealOptions{Options: Options{Argv: []string{"python", "train.py", "--num-processes", "4"}}}, 1},
		{RealOptions{Options: Options{Argv: []string{"torchrun", "--nproc_per_node=4", "train.py"}}}, 4},
		{RealOptions{Options: Options{Argv: []string{"accelerate", "launch", "--num_processes", "2",
			"a.py"}}}, 2},
		{RealOptions{Options: Options{Argv: []string{"python", "train.py"}, Env: visible}}, 4},
		{RealOptions{Options: Options{Argv: []string{"env", "CUDA_VISIBLE_DEVICES=0,1", "python",
			"a.py"}}}, 2},
		{RealOptions{Options: Options{Argv: []string{"torchrun", "--nproc-per-node", "gpu", "a.py"},
			Env: visible}}, 4},
		{RealOptions{Options: Options{Argv: []string{"python", "train.py"}, Processes: 64}}, 8},
		{RealOptions{Options: Options{Argv: []string{"python", "train.py"}}, Devices: 3}, 3},
	} {
		if got := devices(&c.o); got != c.want {
			t.Errorf("%q with %q: %d cards, want %d", c.o.Argv, c.o.Env, got, c.want)
		}
	}
}
