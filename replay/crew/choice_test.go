package crew

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/networks/networkstest"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A plan that swaps only in the first of two micro-batches costs time and saves nothing: the second holds as
// much as before.
func TestAPlanThatLowersNoPeakIsNotCarriedOut(t *testing.T) {
	p := plantest.Accumulated(2, 6, 1<<20, 1e6)
	pairs := p.Pairs()
	for _, all := range []bool{false, true} {
		var d plan.Decisions
		for _, g := range p.Gaps(1, 1) {
			in := plan.PairAt(pairs, g.After)
			if g.After < in.Turn && in.Turn <= g.Before && (all || in.Begin == 0) {
				d.Absences = append(d.Absences, plan.Absence{How: plan.Swap, Buffer: g.Buffer, After: g.After,
					Release: g.After + 1, Fetch: g.Before, Before: g.Before})
			}
		}
		pl, err := plan.Assemble(p, d)
		if err != nil || len(d.Absences) == 0 {
			t.Fatal(len(d.Absences), err)
		}
		pl.Executor = plan.TorchEager
		c := Choice{Make: func(context.Context, *plan.Problem, int64) (*plan.Plan, error) { return pl, nil }}
		_, err = c.Plan(t.Context(), p, maybe.Int{}, 0)
		if errors.Is(err, live.ErrNoGain) == all || all && err != nil {
			t.Errorf("swaps in all micro-batches %v: %v", all, err)
		}
		if !all {
			saysWhatIsThere(t, err)
		}
	}
}

// saysWhatIsThere checks that the refusal of a plan names what is in memory at its peak: run and attach show
// nothing else of it.
func saysWhatIsThere(t *testing.T, err error) {
	t.Helper()
	s := fmt.Sprint(err)
	if !strings.Contains(s, "; at its peak, ") || !strings.Contains(s, "there are still ") {
		t.Errorf("it does not say what is there: %v", err)
	}
}

// A plan that is predicted to take more than the budget is refused, however much it lowers the peak.
func TestAPlanAboveTheBudgetIsNotCarriedOut(t *testing.T) {
	p := plantest.Accumulated(1, 6, 1<<20, 1e6)
	var d plan.Decisions
	for _, g := range p.Gaps(1, 1) {
		d.Absences = append(d.Absences, plan.Absence{How: plan.Swap, Buffer: g.Buffer, After: g.After,
			Release: g.After + 1, Fetch: g.Before, Before: g.Before})
	}
	pl, err := plan.Assemble(p, d)
	if err != nil {
		t.Fatal(err)
	}
	pl.Executor = plan.TorchEager
	takes, _ := pl.PeakLive()
	if pl.Budget = takes - 1; takes >= p.Held() {
		t.Fatal("the plan saves nothing")
	}
	makes := func(context.Context, *plan.Problem, int64) (*plan.Plan, error) { return pl, nil }
	budget := func(of int64) func(context.Context, *plan.Problem, maybe.Int) (int64, error) {
		return func(context.Context, *plan.Problem, maybe.Int) (int64, error) { return of, nil }
	}
	var above *live.Above
	for _, c := range []struct {
		what    string
		choice  *Choice
		refused bool
	}{
		{"a manager's", &Choice{Make: makes, Budget: budget(takes - 1)}, true},
		{"a manager's that fits", &Choice{Make: makes, Budget: budget(takes)}, false},
		{"a manager's without a budget", &Choice{Make: makes, Budget: budget(0)}, false},
		{"a file's", &Choice{Make: makes}, true},
	} {
		_, err := c.choice.Plan(t.Context(), p, maybe.Int{}, 0)
		if errors.As(err, &above) != c.refused || !c.refused && err != nil {
			t.Errorf("%s plan of %d bytes: %v", c.what, takes, err)
		}
		if c.refused {
			saysWhatIsThere(t, err)
		}
	}
	// A plan may be made for less than it promises.
	made, err := (&Choice{Make: makes, Budget: budget(takes + 5)}).Plan(t.Context(), p, maybe.Int{}, 3)
	if err != nil || made.Budget != takes+5 {
		t.Errorf("it promises %d bytes of %d: %v", made.Budget, takes+5, err)
	}
}

// After a plan that exceeded its budget the next one is made for that much less, three times at most.
func TestAPlanThatTookTooMuchIsMadeAgainForLess(t *testing.T) {
	managed := &Choice{Budget: func(context.Context, *plan.Problem, maybe.Int) (int64, error) {
		return 0, nil
	}}
	above := fmt.Errorf("ours: %w", &live.Above{Takes: 107, Budget: 100, Measured: true})
	for _, c := range []struct {
		what  string
		of    *Choice
		err   error
		again int
		spare int64
	}{
		{"took more", managed, above, replans, 7 * replans},
		{"was predicted to take more", managed, &live.Above{Takes: 107, Budget: 100}, 0, 0},
		{"from a file took more", &Choice{}, above, 0, 0},
		{"of a pool took more", &Choice{Budget: managed.Budget, Pools: true}, above, 0, 0},
		{"was given up", managed, errGivenUp, replans, 0},
		{"saved nothing", managed, live.ErrNoGain, 0, 0},
	} {
		var x tries
		n := 0
		for n < 10 && x.again(c.of, c.err) {
			n++
		}
		if n != c.again || x.spare != c.spare || (x.above != nil) != (c.spare > 0) {
			t.Errorf("a plan that %s: made again %d times, for %d bytes less", c.what, n, x.spare)
		}
	}
}

func TestATrainingFitsOnlyARoomThatIsKnown(t *testing.T) {
	for _, c := range []struct {
		room maybe.Int
		all  int64
		want bool
	}{
		{maybe.Int{}, 0, false}, {maybe.Int{}, 1, false},
		{maybe.Known(1000), 900, true}, {maybe.Known(1000), 901, false},
	} {
		x := Choice{Caching: func(context.Context, *plan.Problem) (int64, error) { return c.all, nil }}
		if got, err := x.fits(t.Context(), nil, c.room); err != nil || got != c.want {
			t.Errorf("%d in %v: %t, %v", c.all, c.room, got, err)
		}
	}
}

// If another captured step exceeds the budget under a plan, it is made again, for all steps together, and
// then for as much less, three times at most, as where a plan is kept on; every other error is the last.
func TestAPlanThatAnotherStepExceedsIsMeasuredForLess(t *testing.T) {
	other := func(takes int64) error { return &live.Above{Takes: takes, Budget: 100, Other: true} }
	broken, none := errors.New("broken"), errors.New("no plan")
	first := &plan.Plan{Manager: "first"}
	for _, c := range []struct {
		what   string
		fail   []error // of each run in turn
		least  int64   // there is no plan for more spare bytes
		spares string
		err    error
	}{
		{"fits", []error{nil}, 100, "[]", nil},
		{"fits with others", []error{other(107), nil}, 100, "[0]", nil},
		{"does not at first", []error{other(108), other(107), other(102), nil}, 100, "[0 7 9]", nil},
		{"never does", []error{other(108), other(107), other(102), other(103), other(105)}, 100, "[0 7 9 12]",
			other(105)},
		{"has no other plan", []error{other(107)}, -1, "[0 7]", other(107)},
		{"has no plan for less", []error{other(108), other(107)}, 5, "[0 7]", other(107)},
		{"breaks", []error{broken}, 100, "[]", broken},
		{"breaks for less", []error{other(101), other(101), broken}, 100, "[0 1]", broken},
		{"is for the planned step too large", []error{&live.Above{Takes: 107, Budget: 100}}, 100, "[]",
			&live.Above{Takes: 107, Budget: 100}},
	} {
		var spares []int64
		var ran []*plan.Plan
		m, err := spared(first, func(pl *plan.Plan) (plan.Measurement, error) {
			ran = append(ran, pl)
			return plan.Measurement{}, c.fail[len(ran)-1]
		}, func(spare int64) (*plan.Plan, error) {
			if spares = append(spares, spare); spare > c.least {
				return nil, none
			}
			return &plan.Plan{Manager: "again"}, nil
		})
		if fmt.Sprint(spares) != c.spares || fmt.Sprint(err) != fmt.Sprint(c.err) || ran[0] != first {
			t.Errorf("a plan that %s: made again for %v bytes less: %v", c.what, spares, err)
		}
		last := ran[len(ran)-1]
		again := last != first && err == nil
		noted := again && spares[len(spares)-1] > 0
		if again != (m.Plan == last) || noted != (len(m.Notes) == 1) {
			t.Errorf("a plan that %s: measured %v with notes %q", c.what, m.Plan, m.Notes)
		}
	}
}

// A plan under which optimizer state waits on the host too moves what it moved before, is valid, and takes
// less; where no state can leave it stays as it is.
func TestOptimizerStateWaitsBesideAPlan(t *testing.T) {
	p := networkstest.Problem(t, "alexnet", 64, "v100-pcie-16gb")
	p.EagerOnly, p.Scattered = true, true
	all, err := managers.Select("autoswap")
	if err != nil {
		t.Fatal(err)
	}
	c := &Choice{Eager: managers.Eager}
	pl, err := all[0].Plan(t.Context(), p, plan.Request{Budget: p.Held() * 9 / 10})
	if err == nil {
		pl, err = c.eager(t.Context(), p, pl)
	}
	if err != nil || pl.Parks || len(pl.Absences) == 0 {
		t.Fatal(pl, err)
	}
	pl.Varied = []*plan.Plan{nil}
	with, err := c.parked(t.Context(), p, pl)
	if err != nil {
		t.Fatal(err)
	}
	was, _ := pl.PeakLive()
	is, _ := with.PeakLive()
	if err := plan.Validate(p, with); err != nil || !with.Parks || is >= was ||
		len(with.Absences) != len(pl.Absences) || with.Executor != pl.Executor ||
		with.Budget != pl.Budget || len(with.Varied) != 1 {
		t.Errorf("%v: %d absences and %d bytes became %d and %d, parks %v", err, len(pl.Absences), was,
			len(with.Absences), is, with.Parks)
	}
	stateless := plantest.Chain(6, 1<<20, 1e6)
	first, err := plan.Assemble(stateless, plan.Decisions{})
	if err != nil {
		t.Fatal(err)
	}
	if same, err := c.parked(t.Context(), stateless, first); err != nil || same != first {
		t.Errorf("without state to move: %v, %v", same, err)
	}
}

// A plan of which eager PyTorch can carry out nothing is refused with the reason, and what to change.
func TestAPlanOfWhichNothingLeavesSaysWhy(t *testing.T) {
	p := plantest.Accumulated(1, 6, 1<<20, 1e6)
	g := p.Gaps(1, 1)[0]
	pl, err := plan.Assemble(p, plan.Decisions{Absences: []plan.Absence{{How: plan.Swap, Buffer: g.Buffer,
		After: g.After, Release: g.After + 1, Fetch: g.Before, Before: g.Before}}})
	if err != nil {
		t.Fatal(err)
	}
	c := Choice{Make: func(context.Context, *plan.Problem, int64) (*plan.Plan, error) { return pl, nil },
		Eager: func(context.Context, *plan.Problem, *plan.Plan) (*plan.Plan, error) { return nil, nil }}
	_, err = c.Plan(t.Context(), p, maybe.Int{}, 0)
	if !errors.Is(err, ErrNothingLeaves) ||
		!strings.Contains(err.Error(), " stay in memory for the same reason as ") {
		t.Errorf("it says %v", err)
	}
}
