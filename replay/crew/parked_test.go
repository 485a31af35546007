package crew

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/torchtest"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// A budget below what a training keeps at all times is met if its optimizer state waits on the host. The
// footprint is the predicted one, and nothing else is learnt.
func TestOptimizerStateLeavesWhereTheBudgetCannotBeMetOtherwise(t *testing.T) {
	torch(t)
	t.Parallel()
	argv := []string{"testdata/exactly.py", "../../examples/gpt2.py", "--device", "cpu", "--steps", "1000000",
		"--batch", "2", "--sequence", "32", "--layers", "2", "--width", "128", "--heads", "2", "--vocabulary",
		"500"}
	stop := filepath.Join(t.TempDir(), "stop")
	l := launchLive(t, pytorch.Launch{Argv: argv, Env: []string{"STOP=" + stop, "OMP_NUM_THREADS=1",
		"UNSEEN=1"}})
	var state int64
	on := l.trainOn(managed("joint", anyHardware, func(p *plan.Problem) int64 {
		_, state = p.Parked()
		return p.MustReside().Total() - 1
	}))
	off := float64(on.Peak)/float64(on.Predicted) - 1
	moved := min(on.Out, on.In) >= state && on.PeakBefore-on.Peak >= state/2
	if state == 0 || math.Abs(off) > 0.03 || !moved {
		t.Errorf("with %d bytes of state, %+.1f %% off: %+v", state, 100*off, on)
	}
	if on.Checked == 0 || on.Differ > 0 {
		t.Errorf("%d tensors were compared, and %d differed", on.Checked, on.Differ)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := l.end()
	cmd := exec.Command(torch(t), argv...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1", "UNSEEN=1",
		fmt.Sprintf("STEPS=%d", strings.Count(got, "\n")))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := torchtest.Learned(out); got != want {
		t.Error("some steps computed something different from training without gmemtop")
	}
}
