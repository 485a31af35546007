//go:build standin

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// Each rank is recorded to its own file, on its own GPU, with its steps, and its results are the same as
// without gmemtop.
func TestTorchrunOnTwoStandinGPUsIsRecordedToAFileARank(t *testing.T) {
	standintest.Computing(t)
	env, ended := standintest.Environ(t, standin.Machine{Devices: 2, Order: standin.Late})
	dir := t.TempDir()
	gmemtop := func(arguments ...string) (stdout string) {
		t.Helper()
		program, err := exec.LookPath("gmemtop") // this binary, under the name that makes it the program
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, arguments...)
		cmd.Env = env
		var out, trouble bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &trouble
		if err := cmd.Run(); err != nil {
			t.Fatalf("gmemtop %q: %v\n%s%s", arguments, err, out.String(), trouble.String())
		}
		return out.String()
	}
	const steps = 12
	file := filepath.Join(dir, "run.gmt")
	got := torchtest.Learned([]byte(gmemtop(slices.Concat([]string{"record", "-o", file, "--"},
		torchtest.Torchrun(t, "testdata/ranks.py", "ddp", steps))...)))
	argv := torchtest.Torchrun(t, "testdata/ranks.py", "ddp", steps)
	if want := torchtest.LearnedAlone(t, env, argv...); got != want {
		t.Errorf("it learned\n%s\nand without gmemtop\n%s", got, want)
	}

	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("two ranks were recorded to %q, %v", files, err)
	}
	devices := map[int]bool{}
	for _, f := range files {
		var r struct {
			Devices []struct {
				Device int
				Name   string
				Events int
			}
		}
		out := gmemtop("stats", "--json", f)
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Devices {
			if d.Events > 0 && strings.Contains(d.Name, "H100") {
				devices[d.Device] = true
			}
		}
	}
	if len(devices) != 2 {
		t.Errorf("the ranks' files show GPUs %v, not one each", devices)
	}
	ended()
}
