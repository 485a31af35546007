package place_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestWhateverCanBeCarriedOutIsPlacedAndValid(t *testing.T) {
	absent, waits := 0, 0
	for seed := range uint64(200) {
		p := plantest.Random(seed, 8+int(seed%90))
		d := plantest.RandomDecisions(p, seed, float64(seed%5)/4)
		pl, err := plan.Assemble(p, d)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		pl.Manager = "random"
		res, err := place.Place(context.Background(), p, pl,
			place.Options{Rule: place.Rule(seed % 5), Work: 2000})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := plan.Validate(p, pl); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		live, _ := pl.PeakLive()
		if res.Footprint < live || res.LowerBound > res.Footprint || res.LowerBound < live {
			t.Errorf("seed %d: footprint %d, bound %d, live %d", seed, res.Footprint, res.LowerBound, live)
		}
		absent += len(d.Absences)
		for _, s := range pl.Steps {
			if s.Kind == plan.Wait {
				waits++
			}
		}
	}
	if absent < 500 || waits < 500 {
		t.Errorf("only %d absences and %d waits: the law was hardly tried", absent, waits)
	}
}

// TestPlacingInOrderOfAddressNeedsNoMoreMemory: placed again from the lowest address to the highest, each in
// the lowest gap, no instance comes to lie higher than before.
func TestPlacingInOrderOfAddressNeedsNoMoreMemory(t *testing.T) {
	ctx, lower := context.Background(), 0
	for seed := range uint64(200) {
		p := plantest.Random(seed, 8+int(seed%90))
		d := plantest.RandomDecisions(p, seed, float64(seed%5)/4)
		placed := func(opt place.Options) *plan.Plan {
			pl, err := plan.Assemble(p, d)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			pl.Manager = "random"
			if _, err := place.Place(ctx, p, pl, opt); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := plan.Validate(p, pl); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			return pl
		}
		before := placed(place.Options{Rule: place.BestFit})
		keys := make([]int64, len(before.Instances))
		for i := range keys {
			keys[i] = before.Instances[i].Offset
		}
		after := placed(place.Options{Rule: place.FirstFit, Keys: keys})
		for i := range keys {
			if after.Instances[i].Offset > keys[i] {
				t.Errorf("seed %d: instance %d lies at %d, before at %d", seed, i,
					after.Instances[i].Offset, keys[i])
			} else if after.Instances[i].Offset < keys[i] {
				lower++
			}
		}
	}
	if lower == 0 {
		t.Error("no instance comes to lie lower: the law was hardly tried")
	}
}

// follows reports whether the next step of queue q after step s comes after step on in any timing, by what
// the program's waits imply step by step.
func follows(p *plan.Problem, pl *plan.Plan, s int, q int16, on int32) bool {
	k := p.Queues()
	// of each queue: the last step of each that is over when its next begins, counted from 1
	known := make([][]int32, k)
	for i := range known {
		known[i] = make([]int32, k)
	}
	over := make([][]int32, len(pl.Steps)) // the same when a step is over
	for i := range pl.Steps {
		switch st := &pl.Steps[i]; st.Kind {
		case plan.Alloc, plan.Free:
		case plan.Wait:
			for r := range k {
				known[st.Queue][r] = max(known[st.Queue][r], over[st.On][r])
			}
		default:
			if i > s && st.Queue == q {
				return known[q][pl.Steps[on].Queue] > on
			}
			known[st.Queue][st.Queue] = int32(i) + 1
			over[i] = append([]int32(nil), known[st.Queue]...)
		}
	}
	return true // it does nothing more
}

// A manager may request waits of its own (Blocking, Paced), which can be removed without harm. Of those that
// Order writes each is needed, except those that a later one for the same step implies: without one, the plan
// is refused or the order is the same.
func TestAPlanWithAWaitTakenOutIsRefused(t *testing.T) {
	refused, implied := 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 40)
		d := plantest.RandomDecisions(p, seed, 1)
		for i := range d.Absences {
			d.Absences[i].Blocking, d.Absences[i].Paced = false, false
		}
		pl, err := plan.Assemble(p, d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.BestFit}); err != nil {
			t.Fatal(err)
		}
		for s := range pl.Steps {
			if pl.Steps[s].Kind != plan.Wait {
				continue
			}
			broken := *pl
			broken.Steps = append([]plan.Step(nil), pl.Steps...)
			broken.Steps[s].Queue = pl.Steps[pl.Steps[s].On].Queue // it now waits for itself
			switch {
			case plan.Validate(p, &broken) != nil:
				refused++
			case follows(p, &broken, s, pl.Steps[s].Queue, pl.Steps[s].On):
				implied++
			default:
				t.Errorf("seed %d: nothing else puts queue %d behind step %d at step %d, and the plan is accepted without its wait", seed, pl.Steps[s].Queue, pl.Steps[s].On, s)
			}
		}
	}
	if t.Logf("%d refused, %d implied by others", refused, implied); refused < 5000 || implied*5 > refused {
		t.Errorf("%d waits are missed when they are taken out, %d are not", refused, implied)
	}
}

// A tight placement meets a capacity where classes alone or, given the steps, a search alone does, and is
// never larger than that by classes.
func TestTightMeetsWhatEitherOfItsWaysMeets(t *testing.T) {
	classes, searched := 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 30)
		size := func(rule place.Rule, capacity, work int64) int64 {
			pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 1))
			if err != nil {
				t.Fatal(err)
			}
			res, err := place.Place(context.Background(), p, pl, place.Options{Rule: rule, Capacity: capacity, Work: work})
			if err != nil {
				t.Fatal(err)
			}
			return res.Footprint
		}
		const enough = 5000
		byClasses, least := size(place.Classes, 0, 0), size(place.Search, 0, enough)
		capacity := min(byClasses, least)
		if got := size(place.Tight, capacity, 1); got != byClasses {
			t.Errorf("seed %d: without steps %d bytes, by classes %d", seed, got, byClasses)
		}
		if got := size(place.Tight, capacity, enough); got > max(capacity, size(place.Search, capacity, enough)) || got > byClasses {
			t.Errorf("seed %d: %d bytes, by classes %d, by search %d", seed, got, byClasses, least)
		}
		if byClasses > least {
			searched++
		} else {
			classes++
		}
	}
	if classes < 10 || searched < 5 {
		t.Errorf("classes were enough %d times and search was needed %d times: the law was hardly tried", classes, searched)
	}
}

// What the host has no room for stays in memory: the plan is valid whatever the limit, and no swap is left
// out if there is room for all.
func TestSwapsThatTheHostHasNoRoomForStay(t *testing.T) {
	left := 0
	for seed := range uint64(100) {
		p := plantest.Random(seed, 10+int(seed))
		d := plantest.RandomDecisions(p, seed, 0.8)
		whole, err := place.Assemble(p, d)
		if err != nil {
			t.Fatal(err)
		}
		peak, _ := whole.PinnedPeak(p)
		if len(whole.Absences) != len(d.Absences) || len(whole.Notes) != 0 {
			t.Fatalf("seed %d: %d of %d absences are left without a limit", seed, len(whole.Absences), len(d.Absences))
		}
		for _, limit := range []int64{peak, peak * 3 / 4, peak / 4, 1} {
			if limit == 0 {
				continue
			}
			q := *p
			q.Hardware.PinnedBytes = limit
			pl, err := place.Assemble(&q, d)
			if err != nil {
				t.Fatalf("seed %d within %d of %d pinned bytes: %v", seed, limit, peak, err)
			}
			stay := len(d.Absences) - len(pl.Absences)
			if said := strings.Join(pl.Notes, " "); (stay > 0) != (limit < peak) || (stay > 0) != strings.HasSuffix(said, fmt.Sprintf("left for them: %d", stay)) {
				t.Errorf("seed %d within %d of %d pinned bytes: %d of %d absences stay, and it says %q", seed, limit, peak, stay, len(d.Absences), said)
			}
			if _, err := place.Place(context.Background(), &q, pl, place.Options{Rule: place.BestFit}); err != nil {
				t.Fatal(err)
			}
			pl.Manager = "random"
			if err := plan.Validate(&q, pl); err != nil {
				t.Errorf("seed %d within %d of %d pinned bytes: %v", seed, limit, peak, err)
			}
			left += len(pl.Absences)
		}
	}
	if left < 500 {
		t.Errorf("only %d absences are left: the law was hardly tried", left)
	}
}

// Decisions get places unless they take longer than the time to beat; a plan that is made stays.
func TestWhatIsTooSlowIsNotPlaced(t *testing.T) {
	const seed = 14 // of a problem with holes between its places, in which moving something takes longer
	p := plantest.Random(seed, 40)
	d := plantest.RandomDecisions(p, seed, 0.5)
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	within := func(budget, beat int64, decide ...plan.Decisions) (*plan.Plan, error) {
		r := plan.Request{Budget: budget, Beat: beat}
		opt := place.Options{Rule: place.BestFit}
		return place.Within(t.Context(), p, r, opt, func(int64) (plan.Decisions, error) {
			calls++
			return decide[min(calls, len(decide))-1], nil
		})
	}
	busy := pl.Busy(p)
	for _, beat := range []int64{0, busy, busy + 1} {
		if got, err := within(0, beat, d); err != nil || got.Busy(p) != busy {
			t.Errorf("a plan that takes %d ns, %d to beat: %v", busy, beat, err)
		}
	}
	if _, err := within(0, busy-1, d); !errors.Is(err, plan.ErrBeaten) {
		t.Errorf("a plan that takes %d ns, one less to beat: %v", busy, err)
	}
	none, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if none.Busy(p) >= busy {
		t.Fatalf("moving nothing takes %d ns, moving something %d", none.Busy(p), busy)
	}
	live, _ := none.PeakLive()
	kept, err := within(0, 0, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if kept.Footprint == live {
		t.Fatal("there are no holes between places")
	}
	calls = 0 // no holes were reckoned with: the second time, which is too slow, the first plan counts
	got, err := within(kept.Footprint-1, busy-1, plan.Decisions{}, d)
	if err != nil || got.Footprint != kept.Footprint || calls != 2 {
		t.Errorf("after %d calls: %v", calls, err)
	}
}

// Decisions that must fit and hold more bytes than the budget get no places: none make them fit.
func TestWhatHoldsTooMuchIsNotPlaced(t *testing.T) {
	p := plantest.Random(14, 40)
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	live, _ := pl.PeakLive()
	within := func(budget, most int64, mustFit bool) error {
		r := plan.Request{Budget: budget, MustFit: mustFit}
		_, err := place.Within(t.Context(), p, r, place.Options{Rule: place.BestFit, MostLive: most},
			func(int64) (plan.Decisions, error) { return plan.Decisions{}, nil })
		return err
	}
	for _, budget := range []int64{0, live, live + 1} {
		if err := within(budget, 0, true); err != nil {
			t.Errorf("%d bytes alive within %d: %v", live, budget, err)
		}
	}
	if err := within(live-1, 0, false); err != nil {
		t.Errorf("it need not fit, but: %v", err)
	}
	if err := within(live-1, 0, true); !errors.Is(err, plan.ErrBeaten) {
		t.Errorf("%d bytes alive within one less: %v", live, err)
	}
	if err := within(0, live, true); err != nil { // decisions that do not depend on the budget
		t.Errorf("%d bytes alive, and as many are allowed: %v", live, err)
	}
	if err := within(0, live-1, true); !errors.Is(err, plan.ErrBeaten) {
		t.Errorf("%d bytes alive, and one less is allowed: %v", live, err)
	}
}

// A time to beat loses no plan that is as fast and within the budget, even if the first decisions are too
// slow: they may take too much memory, too, and those for a lower limit may be faster.
func TestATimeToBeatLosesNothing(t *testing.T) {
	kept, spared := 0, 0
	for seed := range uint64(400) {
		p := plantest.Random(seed, 30)
		within := func(budget, beat int64) (*plan.Plan, error) {
			round := uint64(0)
			r := plan.Request{Budget: budget, Beat: beat}
			opt := place.Options{Rule: place.BestFit}
			if seed%2 == 0 {
				opt = place.Options{Work: 200}
			}
			return place.Within(t.Context(), p, r, opt, func(int64) (plan.Decisions, error) {
				round++
				return plantest.RandomDecisions(p, seed*10+round, float64(seed%4+1)/4), nil
			})
		}
		first, err := within(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, budget := range []int64{first.Footprint, first.Footprint - 1} { // the first fits, or not
			want, err := within(budget, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, beat := range []int64{want.Busy(p), want.Busy(p) - 1} {
				got, err := within(budget, beat)
				if errors.Is(err, plan.ErrBeaten) {
					spared++
				} else if err != nil {
					t.Fatal(err)
				}
				if want.Footprint > budget || want.Busy(p) > beat {
					continue // it does not matter what comes instead
				}
				if err != nil || got.Footprint != want.Footprint || got.Busy(p) != want.Busy(p) {
					t.Errorf("seed %d: %d ns within %d bytes is lost to a time to beat of %d: %v",
						seed, want.Busy(p), budget, beat, err)
				}
				if first.Busy(p) > beat {
					kept++
				}
			}
		}
	}
	if t.Logf("%d plans kept behind a slow first one, %d spared", kept, spared); kept < 5 || spared < 5 {
		t.Error("the law was hardly tried")
	}
}
