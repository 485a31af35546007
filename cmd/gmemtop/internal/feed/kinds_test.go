package feed

import (
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// While a plan is tried, steps without it hold more and steps with it take longer: neither is unusual.
func TestStepsOfATrialAreNotUnusual(t *testing.T) {
	run := func(plan func(i int) bool, bytes, took func(i int) int64) steps.Report {
		last := make([]live.Step, 40)
		held, times := make([]maybe.Int, len(last)), make([]maybe.Int, len(last))
		for i := range last {
			last[i] = live.Step{Index: int64(i), UnderPlan: plan(i)}
			held[i], times[i] = maybe.Known(bytes(i)), maybe.Known(took(i))
		}
		r := steps.Watch(held, times, 0)
		amongTheirKind(&r, last)
		return r
	}
	odd := func(usual, other int64, at ...int) func(i int) int64 {
		return func(i int) int64 {
			if slices.Contains(at, i) {
				return other
			}
			return usual
		}
	}
	on := func(i int) bool { return i != 20 && i != 21 } // the steps timed without it
	if r := run(on, odd(100<<20, 160<<20, 20, 21), odd(50e6, 50e6)); len(r.Spikes) > 0 {
		t.Errorf("steps without the plan are spikes: %v", r.Spikes)
	}
	if r := run(on, odd(100<<20, 160<<20, 20, 21, 30), odd(50e6, 50e6)); !slices.Equal(r.Spikes, []int{30}) {
		t.Errorf("spikes %v, and step 30 under the plan is one", r.Spikes)
	}
	off := func(i int) bool { return !on(i) }
	if r := run(off, odd(100<<20, 100<<20), odd(50e6, 500e6, 20, 30)); !slices.Equal(r.Slow, []int{30}) {
		t.Errorf("slow steps %v, and only step 30 is one: 20 ran under the plan", r.Slow)
	}
	never := func(int) bool { return false }
	r := run(never, odd(100<<20, 160<<20, 20), odd(50e6, 500e6, 30))
	if len(r.Spikes) != 1 || len(r.Slow) != 1 {
		t.Errorf("without a plan, spikes %v and slow steps %v", r.Spikes, r.Slow)
	}
}
