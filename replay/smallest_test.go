package replay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/managers/combine"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// smallest looks for the smallest budget after one of a share of the peak was tried.
func smallest(t *testing.T, p *plan.Problem, list []plan.Manager, budget int64) *replay.Smallest {
	t.Helper()
	opt := replay.Options{Budget: budget, Seed: 1}
	made, err := replay.Compare(t.Context(), p, list, opt)
	if err != nil && !errors.Is(err, replay.ErrTooSmall) {
		t.Fatal(err)
	}
	if made != nil && made.AnyFits() {
		t.Fatalf("a plan fits in %d", budget)
	}
	s, err := replay.SmallestBudget(t.Context(), p, list, opt, made, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil {
		t.Fatalf("no budget was found above %d", budget)
	}
	return s
}

func TestAPlanFitsInTheSmallestBudget(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	p.Outside = 1 << 20
	peak, _ := p.PeakLive()
	list := append(pool.All(), combine.All()...)
	for _, budget := range []int64{p.Outside / 2, plan.LeastResident(p) / 2} { // Compare refuses both
		s := smallest(t, p, list, budget)
		if s.Budget >= peak || s.Budget < plan.LeastResident(p)+p.Outside {
			t.Errorf("after %d: %d, where %d reside and %d are alive at the peak", budget, s.Budget,
				plan.LeastResident(p), peak)
		}
		for x := s; x != nil; x = x.Runnable {
			typed, err := timeline.ParseBytes(x.Text)
			if err != nil || typed != x.Budget {
				t.Errorf("%q is %d bytes, not %d: %v", x.Text, typed, x.Budget, err)
			}
			c, err := replay.Compare(t.Context(), p, list, replay.Options{Budget: typed, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			if !c.AnyFits() {
				t.Errorf("nothing fits in %s", x.Text)
			}
			if c.Net < x.Result.Measurement.Footprint {
				t.Errorf("the plan for %s needs %d of %d", x.Text, x.Result.Measurement.Footprint, c.Net)
			}
		}
	}
}

// A packing of the peak needs the peak: what a manager needs is known here.
func TestTheSmallestBudgetOfAPackingIsThePeak(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	peak, _ := p.PeakLive()
	s := smallest(t, p, []plan.Manager{pool.Exact()}, peak*9/10)
	if s.Budget < peak || float64(s.Budget) > 1.01*float64(peak) {
		t.Errorf("%d for a peak of %d", s.Budget, peak)
	}
	if s.Result.Info.Name != "exact" || s.Runnable != nil {
		t.Errorf("with %s, and runnable %v", s.Result.Info.Name, s.Runnable)
	}
	c := &replay.Comparison{Problem: p, Budget: peak / 2}
	want := "The smallest budget that was found to fit is " + timeline.IEC.Bytes(s.Budget) + ", with exact: "
	if got := s.Sentence(c, timeline.IEC); !strings.HasPrefix(got, want) {
		t.Errorf("%q does not begin with %q", got, want)
	}
	p.HasTimes = false // then there is nothing to say but the budget
	want = strings.TrimSuffix(want, ": ") + "."
	if got := s.Sentence(c, timeline.IEC); got != want {
		t.Errorf("without times it says %q, not %q", got, want)
	}
}

// Where nothing is known about when buffers are used, none can leave, and no smaller budget need be tried.
func TestNoBudgetBelowThePeakIsTriedWhereNothingCanLeave(t *testing.T) {
	p := plantest.Chain(12, 8<<20, 4_000_000)
	p.Kind = traces.Lifetimes
	peak, _ := p.PeakLive()
	s := smallest(t, p, []plan.Manager{pool.Exact()}, plan.LeastResident(p)/2)
	if s.Budget < peak || !s.Least {
		t.Errorf("%d for a peak of %d, the least possible: %t", s.Budget, peak, s.Least)
	}
}

func TestTheSearchForABudgetEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p := plantest.Chain(12, 8<<20, 4_000_000)
	list, opt := []plan.Manager{pool.Exact()}, replay.Options{Seed: 1}
	s, err := replay.SmallestBudget(ctx, p, list, opt, nil, time.Hour)
	if s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", s, err)
	}
	// A search without any time has no plan to begin with, and finds nothing.
	s, err = replay.SmallestBudget(t.Context(), p, list, opt, nil, 0)
	if s != nil || err != nil {
		t.Errorf("without time: %v, %v", s, err)
	}
}
