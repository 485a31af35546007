package managers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestOnACPUWhatIsAliveIsWhatAStepTakes(t *testing.T) {
	d := viewtest.Training{Iterations: 2}.Timeline(t).Main()
	at := func(kind traces.DeviceKind, budget int64) string {
		d.Info.Kind = kind
		st := &setup{device: d, p: &plan.Problem{Outside: 1 << 20}, live: 4 << 20}
		return asItIs(timeline.IEC, question{budget: budget, setup: st}, false)
	}
	fits := "fits into 6.00 MiB as it is: at most 4.00 MiB"
	if got := at(traces.DeviceCPU, 6<<20); !strings.Contains(got, fits) {
		t.Errorf("with room it says %q", got)
	}
	if got := at(traces.DeviceCPU, 5<<20-1); got != "" {
		t.Errorf("without room it says %q", got)
	}
	if got := at(traces.DeviceGPU, 6<<20); got != "" {
		t.Errorf("of a GPU it says %q", got)
	}
}

// A job that runs with memory to spare gets no budget at first, so that it is offered no plan.
func TestAJobWithRoomNeedsNoPlan(t *testing.T) {
	d := viewtest.Training{Iterations: 2}.Timeline(t).Main()
	st := &setup{device: d, p: plantest.Chain(4, 1<<20, 1e6), held: 8 << 20, floor: 1 << 20, live: 4 << 20}
	says := func(running bool) string { return asItIs(timeline.IEC, question{setup: st}, running) }
	d.Info.Kind = traces.DeviceCPU
	if n := st.firstBudget(true); n != 0 || !strings.Contains(says(true), "needs no plan: at most 4.00 MiB") {
		t.Errorf("a job on a CPU gets %d bytes and is told %q", n, says(true))
	}
	if n := st.firstBudget(false); n == 0 || says(false) != "" {
		t.Errorf("a recording of a CPU gets %d bytes and is told %q", n, says(false))
	}
	d.Info.Kind = traces.DeviceGPU
	reserved := d.Totals.PeakReserved.Or(0)
	for _, c := range []struct {
		total int64
		room  bool
	}{{2 * reserved, true}, {reserved + reserved/20, false}, {0, false}} {
		d.Info.TotalBytes = c.total
		needsNone := fmt.Sprintf("needs no plan: it takes %s of the GPU's %s.", timeline.IEC.Bytes(reserved),
			timeline.IEC.Bytes(c.total))
		n, told := st.firstBudget(true), says(true)
		if (n == 0) != c.room || strings.Contains(told, needsNone) != c.room {
			t.Errorf("a job with %d of %d bytes of a GPU gets %d and is told %q", reserved, c.total, n, told)
		}
		if n := st.firstBudget(false); n == 0 || says(false) != "" {
			t.Errorf("a recording of a GPU with %d bytes gets %d and is told %q", c.total, n, says(false))
		}
	}
}
