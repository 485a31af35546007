package place_test

import (
	"context"
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
		res, err := place.Place(context.Background(), p, pl, place.Options{Rule: place.Rule(seed % 5), Work: 2000})
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

func TestAPlanWithAWaitTakenOutIsRefused(t *testing.T) {
	refused, taken := 0, 0
	for seed := range uint64(60) {
		p := plantest.Random(seed, 40)
		pl, err := plan.Assemble(p, plantest.RandomDecisions(p, seed, 1))
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
			taken++
			if plan.Validate(p, &broken) != nil {
				refused++
			}
		}
	}
	// A manager's own waits (Blocking, Paced) may be taken out without harm; those that Order wrote may not.
	if taken == 0 || refused*2 < taken {
		t.Errorf("%d of %d waits are missed", refused, taken)
	}
}

// A tight placement meets a capacity where classes alone or, given the steps, a search alone does, and is never larger than that by classes.
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
