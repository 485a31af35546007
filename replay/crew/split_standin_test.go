//go:build standin

package crew

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/capture/standin/standintest"
	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// TestAModelOnTwoGPUsLearnsTheSameUnderPlans turns plans on and off in a training whose layers alternate
// between two GPUs, and compares parameters, gradients and optimizer state of every step with those of the
// same training alone.
func TestAModelOnTwoGPUsLearnsTheSameUnderPlans(t *testing.T) {
	for _, order := range []string{standin.Once, standin.Late} {
		t.Run(order, func(t *testing.T) {
			env, ended := standintest.Environ(t, standin.Machine{Devices: 2, Order: order})
			argv := []string{"testdata/exactly.py", "testdata/split.py", "1000000"}
			stop := filepath.Join(t.TempDir(), "stop")
			l := launchLive(t, pytorch.Launch{Argv: argv, Env: append(env, "STOP="+stop)})
			words := l.plans(l.problem(), "autoswap,capuchin,sqrt,joint")
			names := slices.Sorted(maps.Keys(words))
			if len(names) < 3 {
				t.Fatalf("only plans of %q", names)
			}
			r := rand.New(rand.NewPCG(3, 4))
			moved, again, missed := int64(0), int64(0), int64(0)
			for n := range int64(12) {
				name := names[int(n)%len(names)]
				list, err := l.under(n+1, words[name], 2+r.IntN(3))
				if err != nil {
					t.Fatalf("%s: %v", name, errors.Join(err, fmt.Errorf("%v", l.History.Snapshot().Notices)))
				}
				for _, s := range list {
					moved, again, missed = moved+s.Out, again+s.Again, missed+s.Missed
				}
			}
			if _, err := l.under(0, nil, 1); err != nil {
				t.Fatal(err)
			}
			if moved == 0 || again == 0 || missed > 0 {
				t.Errorf("%d bytes moved, %d ns of ops ran again, %d tensors stayed that should have left",
					moved, again, missed)
			}
			if err := os.WriteFile(stop, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			got := l.end()
			cmd := exec.Command(torch(t), argv...)
			cmd.Env = append(env, fmt.Sprintf("STEPS=%d", strings.Count(got, "\n")))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if want := torchtest.Learned(out); got != want {
				t.Errorf("some of %d steps computed something different from training without plans",
					strings.Count(got, "\n"))
			}
			ended()
			t.Logf("%d steps, %d bytes moved under plans of %s", strings.Count(got, "\n"), moved,
				strings.Join(names, ", "))
		})
	}
}
