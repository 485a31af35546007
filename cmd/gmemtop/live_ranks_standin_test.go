//go:build standin

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/replay/live"
)

// torchrun is the command of a training on two GPUs, one rank each, over NCCL.
func torchrun(t *testing.T, wrap string, steps int) []string {
	t.Helper()
	return []string{torch(t), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "testdata/ranks.py", wrap, fmt.Sprint(steps)}
}

// learnedAlone returns what the ranks of a training learn without gmemtop.
func learnedAlone(t *testing.T, env []string, wrap string, steps int) string {
	t.Helper()
	argv := torchrun(t, wrap, steps)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	var trouble bytes.Buffer
	cmd.Stderr = &trouble
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, trouble.Bytes())
	}
	learned := results(out)
	if strings.Count(learned, "\n") != 4 {
		t.Fatalf("two ranks learned\n%s", learned)
	}
	return learned
}

// Each rank is recorded to a file of its own, on its own GPU, with its steps; and learns what it learns
// alone.
func TestTorchrunOnTwoStandinGPUsIsRecordedToAFileARank(t *testing.T) {
	standintest.Computing(t)
	env, ended := onStandin(t, standin.Machine{Devices: 2, Order: standin.Late})
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
	got := results([]byte(gmemtop(slices.Concat([]string{"record", "-o", file, "--"}, torchrun(t, "ddp", steps))...)))
	learntTheSame(t, got, learnedAlone(t, env, "ddp", steps))

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

// A plan that a person asks for is carried out in all ranks of a training over NCCL and taken away from all,
// while streams do their work as late as they may; the ranks learn the same to the bit as alone.
func TestAPlanInAllRanksOnTwoStandinGPUs(t *testing.T) {
	standintest.Computing(t)
	for wrap, manager := range map[string]string{"ddp": "capuchin", "fsdp": "vdnn-all"} {
		t.Run(wrap, func(t *testing.T) {
			const steps = 150
			env, ended := onStandin(t, standin.Machine{Devices: 2, Order: standin.Late})
			ranks := startRanksIn(t, env, 2, torchrun(t, wrap, steps)...)
			var last live.News
			err := ranks.beside(manager, func(n live.News) bool {
				last = n
				return ranked(n) == "rank 0 on, rank 1 on"
			})
			if err != nil {
				t.Fatal(err)
			}
			if last.Peak <= 0 || last.Step == 0 || last.Differ != 0 || last.Checked == 0 || last.Peak >= last.PeakBefore {
				t.Errorf("%+v", last)
			}
			ranks.unplanned(ranks.until(2))
			learntTheSame(t, ranks.end(), learnedAlone(t, env, wrap, steps))
			ended()
		})
	}
}
