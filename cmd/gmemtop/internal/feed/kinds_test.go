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
		r := steps.Watch(held, times, 0, 0)
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

// What a plan moves or recomputes comes and goes with the plan: memory that rises while plans are tried, and
// while one settles, is no leak. Memory that grows under a plan that stays on is one.
func TestWhatAPlanChangesIsNoLeak(t *testing.T) {
	plans := func(i int) int64 {
		switch {
		case i < 40:
			return 0
		case i < 60:
			return -int64(i) // parts of plans, each tried in one step
		}
		return 7
	}
	leaking := func(bytes func(i int) int64) bool {
		last := make([]live.Step, 100)
		held, times := make([]maybe.Int, len(last)), make([]maybe.Int, len(last))
		for i := range last {
			last[i].Plan = plans(i)
			held[i], times[i] = maybe.Known(bytes(i)), maybe.Known(int64(50e6))
		}
		return steps.Watch(held, times, 0, planSince(last)).Trend.Leaking
	}
	rises := func(i int) int64 { return 1<<30 + int64(min(max(i-40, 0), 22))<<20 }
	if leaking(rises) {
		t.Error("memory that rose while plans were tried is called a leak")
	}
	if !leaking(func(i int) int64 { return rises(i) + int64(max(i-60, 0))<<20 }) {
		t.Error("a leak under a plan that stays on is not found")
	}
	if n := planSince(nil); n != 0 {
		t.Errorf("without steps the plan is on since step %d", n)
	}
}
