//go:build standin

package crew

import (
	"encoding/json"
	"fmt"
	"math/bits"
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

// TestAHundredTogglesLeaveNothingBehindOnAStandinGPU turns plans that swap, drop and choose addresses on and
// off a hundred times in a training by PyTorch's own CUDA code, on a GPU that works as late as possible. Each
// step learns the same as without, to the bit; and once the agent has gone, so have its hooks, patches,
// threads, objects, device memory and pinned memory.
func TestAHundredTogglesLeaveNothingBehindOnAStandinGPU(t *testing.T) {
	const toggles = 100
	env, ended := standintest.Environ(t, standin.Machine{Order: standin.Late})
	stop := filepath.Join(t.TempDir(), "stop")
	l := launchLive(t, pytorch.Launch{Argv: []string{"testdata/toggled.py"}, Env: append(env, "STOP="+stop)})
	var plans []carriedPlan
	// bytes of host memory that plans take, counting each size once, and all that was ever pinned
	var slabs, pinned int64
	sizes := map[int64]bool{}
	for _, x := range l.everyPlan() {
		if slices.Contains([]string{"autoswap", "capuchin", "sqrt", "joint", "smartpool"}, x.manager) {
			var words struct{ Slab int64 }
			if err := json.Unmarshal(x.words, &words); err != nil {
				t.Fatal(err)
			}
			plans = append(plans, x)
			// as torch rounds pinned memory
			if n := int64(1) << bits.Len64(uint64(max(words.Slab-1, 0))); words.Slab > 0 && !sizes[n] {
				sizes[n] = true
				slabs += n
			}
		}
	}
	if len(plans) < 4 {
		t.Fatalf("only %d managers have a plan for it", len(plans))
	}
	r := rand.New(rand.NewPCG(7, 8))
	freed, missed := int64(0), int64(0)
	for n := range int64(toggles) {
		x := plans[r.IntN(len(plans))]
		list, err := l.under(n+1, x.words, 1+r.IntN(2))
		if err != nil {
			t.Fatalf("%s: %v", x.manager, err)
		}
		for _, s := range list {
			if freed += s.Out + s.Again; !x.pool {
				missed += s.Missed
			}
		}
		if n == toggles-1 || r.IntN(2) == 0 { // otherwise one plan follows the other
			if _, err := l.under(0, nil, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if freed == 0 || missed > 0 {
		t.Errorf("%d bytes and nanoseconds; %d tensors stayed that should have left", freed, missed)
	}
	if err := l.job.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := l.end()
	cmd := exec.Command(torch(t), "testdata/toggled.py")
	cmd.Env = append(env, fmt.Sprintf("STEPS=%d", strings.Count(got, "\n")-1))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := torchtest.Learned(out); got != want {
		t.Errorf("with plans:\n%s\nwithout:\n%s", lastLine(got), lastLine(want))
	}
	output := string(l.History.Snapshot().Output)
	// the script's own
	if _, err := fmt.Sscanf(output[max(strings.LastIndex(output, "pinned at most"), 0):], "pinned at most %d",
		&pinned); err != nil || pinned < slabs || pinned > slabs+4096 {
		t.Errorf("%d bytes were pinned in all, of plans that take %d, those of one size together: %v", pinned,
			slabs, err)
	}
	ended()
	t.Logf("%d steps, %d bytes pinned, %d sizes of plans take %d; %s", strings.Count(got, "\n")-1, pinned,
		len(sizes), slabs, lastLine(got))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}
