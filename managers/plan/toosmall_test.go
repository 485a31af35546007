package plan_test

import (
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// TestABudgetBelowADataSetSaysSo: what stays may mostly be a data set on the device that trains, which is
// neither parameters nor optimizer state.
func TestABudgetBelowADataSetSaysSo(t *testing.T) {
	for data, want := range map[int64]string{
		0: "not possible: parameters and the operands of conv need 9.00 MiB, and the budget is 8.00 MiB",
		64 << 20: "not possible: a data set or other inputs and parameters alone need 72.0 MiB, and the " +
			"budget is 8.00 MiB",
	} {
		b := plantest.New()
		weight := b.Persistent("weight", 8<<20, timeline.Parameter)
		set := b.Persistent("set", data, timeline.Input)
		out := b.Buffer("out", 1<<20, timeline.Activation)
		b.Op("conv", traces.PhaseForward, 1000, []plan.BufferID{weight, set}, []plan.BufferID{out})
		if err := b.End().CheckBudget(8 << 20); err == nil || err.Error() != want {
			t.Errorf("with %d bytes of data it says %q, not %q", data, err, want)
		}
	}
}

// TestABudgetAFewBytesTooSmallSaysByHowMuch: both figures are the same when rounded.
func TestABudgetAFewBytesTooSmallSaysByHowMuch(t *testing.T) {
	b := plantest.New()
	weight := b.Persistent("weight", 8<<20, timeline.Parameter)
	b.Op("conv", traces.PhaseForward, 1000, []plan.BufferID{weight}, nil)
	want := "not possible: parameters alone need 8.00 MiB, and the budget is 512 B less"
	if err := b.End().CheckBudget(8<<20 - 512); err == nil || err.Error() != want {
		t.Errorf("it says %q, not %q", err, want)
	}
}
