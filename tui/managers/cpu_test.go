package managers

import (
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

func TestOnACPUWhatIsAliveIsWhatAStepTakes(t *testing.T) {
	d := viewtest.Training{Iterations: 2}.Timeline(t).Main()
	at := func(kind traces.DeviceKind, budget int64) string {
		d.Info.Kind = kind
		st := &setup{device: d, p: &plan.Problem{Outside: 1 << 20}, live: 4 << 20}
		return asItIs(timeline.IEC, question{budget: budget, setup: st})
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
