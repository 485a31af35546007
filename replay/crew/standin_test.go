//go:build standin

package crew

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/replay/live"
)

// TestEveryManagerLearnsTheSameOnAStandinGPU runs every manager that works in a running training, pools
// included, for some steps of a training by PyTorch's own CUDA code, on and off at random, and compares
// parameters, gradients, buffers and optimizer state after every step with those of the same training alone.
// The GPU does its work as late as possible, or in a random order.
func TestEveryManagerLearnsTheSameOnAStandinGPU(t *testing.T) {
	for _, x := range []struct{ script, flags, order string }{
		{"mlp.py", "--batch 1024 --inputs 16 --layers 4 --width 64 --dropout 0.1", standin.Late},
		{"gpt2.py", "--batch 2 --sequence 32 --layers 2 --width 32 --heads 2 --vocabulary 100", "5"},
	} {
		t.Run(x.script+"-"+x.order, func(t *testing.T) {
			env, ended := standintest.Environ(t, standin.Machine{Order: x.order})
			argv := append([]string{"testdata/exactly.py", "../../examples/" + x.script, "--device", "cuda",
				"--steps", "1000000"}, strings.Fields(x.flags)...)
			stop := filepath.Join(t.TempDir(), "stop")
			l := launchLive(t, pytorch.Launch{Argv: argv, Env: append(env, "STOP="+stop)})
			toggles, r := int64(0), rand.New(rand.NewPCG(5, 6))
			var names []string
			for _, x := range l.everyPlan() {
				toggles += l.someSteps(r, toggles, x)
				names = append(names, x.manager)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			got := l.end()
			steps := strings.Count(got, "\n")
			cmd := exec.Command(torch(t), argv...)
			cmd.Env = append(env, fmt.Sprintf("STEPS=%d", steps))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if want := torchtest.Learned(out); got != want {
				t.Errorf("some of %d steps computed something different from training without plans", steps)
			}
			ended()
			t.Logf("%d steps, %d toggles of %s", steps, toggles, strings.Join(names, ", "))
		})
	}
}

// All ranks of a training over NCCL carry out a plan and drop it again on request, while streams do their
// work as late as possible; the ranks learn the same as alone, to the bit.
func TestAPlanInAllRanksOnTwoStandinGPUs(t *testing.T) {
	standintest.Computing(t)
	for wrap, manager := range map[string]string{"ddp": "capuchin", "fsdp": "vdnn-all"} {
		t.Run(wrap, func(t *testing.T) {
			const steps = 150
			env, ended := standintest.Environ(t, standin.Machine{Devices: 2, Order: standin.Late})
			argv := torchtest.Torchrun(t, "../../cmd/gmemtop/testdata/ranks.py", wrap, steps)
			ranks := startRanksIn(t, env, 2, argv...)
			var last live.News
			err := ranks.beside(manager, func(n live.News) bool {
				last = n
				return ranked(n) == "rank 0 on, rank 1 on"
			})
			if err != nil {
				t.Fatal(err)
			}
			if last.Peak <= 0 || last.Step == 0 || last.Differ != 0 || last.Checked == 0 ||
				last.Peak >= last.PeakBefore {
				t.Errorf("%+v", last)
			}
			ranks.unplanned(ranks.until(2))
			learntTheSame(t, ranks.end(), torchtest.LearnedAlone(t, env, argv...))
			ended()
		})
	}
}
