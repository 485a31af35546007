package pool

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// What each mechanism is worth: switched off, it makes footprints larger. What exact has is in package pack,
// what gmlake has in package allocator.

func footprint(t *testing.T, m plan.Manager, p *plan.Problem) int64 {
	t.Helper()
	pl, err := m.Plan(context.Background(), p, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Validate(p, pl); err != nil {
		t.Fatal(err)
	}
	return pl.Footprint
}

// contest adds up two managers' footprints over random problems, and counts in how many the first is the
// smaller and in how many the larger.
func contest(t *testing.T, with, without plan.Manager, of func(p *plan.Problem) bool) (a, b int64, better,
	worse int) {
	t.Helper()
	for seed := range uint64(200) {
		p := plantest.Random(seed, 20+int(seed%80))
		if of != nil && !of(p) {
			continue
		}
		x, y := footprint(t, with, p), footprint(t, without, p)
		a, b = a+x, b+y
		switch {
		case x < y:
			better++
		case x > y:
			worse++
		}
	}
	t.Logf("%d bytes against %d; smaller in %d problems, larger in %d", a, b, better, worse)
	return a, b, better, worse
}

// asTheyCome gives a rule one item at a time, as they begin: what an allocator does that does not know what
// is to come.
func asTheyCome(rule fit) fit {
	return func(ctx context.Context, q *pack.Problem, opts ...pack.FitOption) (pack.Result, error) {
		order := make([]int, len(q.Items))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(i, j int) int {
			a, b := q.Items[i], q.Items[j]
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.Size, a.Size), cmp.Compare(i, j))
		})
		now := pack.Problem{Align: q.Align}
		res, offsets := pack.Result{}, make([]int64, len(q.Items))
		for n, i := range order {
			now.Items, now.Fixed = append(now.Items, q.Items[i]), append(now.Fixed, -1)
			var err error
			if res, err = rule(ctx, &now, opts...); err != nil {
				return res, err
			}
			offsets[i], now.Fixed[n] = res.Offsets[n], res.Offsets[n]
		}
		res.Offsets = offsets
		return res, nil
	}
}

func TestColouringTheLargestFirstTakesLessThanTakingThemAsTheyCome(t *testing.T) {
	for name, rule := range map[string]fit{"smartpool": pack.BestFit, "smartpool-ff": pack.FirstFit} {
		sorted, unsorted := smartPool(name, "a", rule), smartPool(name, "a", asTheyCome(rule))
		if a, b, better, worse := contest(t, sorted, unsorted, nil); a >= b || better <= 2*worse {
			t.Errorf("%s: %d bytes the largest first, %d as they come; smaller in %d problems, larger in %d",
				name, a, b, better, worse)
		}
	}
}

func TestOneColouringTakesLessThanTwoAreasForWhatCrosses(t *testing.T) {
	crosses := func(p *plan.Problem) bool {
		for i := range p.Buffers {
			if p.Buffers[i].Life == plan.Carried {
				return true
			}
		}
		return false
	}
	a, b, better, worse := contest(t, smartPoolSwap(), smartPoolBestFit(), crosses)
	if a >= b || better <= 2*worse {
		t.Errorf("%d bytes in one colouring, %d in two areas; smaller in %d problems, larger in %d", a, b,
			better, worse)
	}
}

// With groups the result is never larger, since stalloc takes the better of both, and smaller on a few
// problems: most have too few buffers a group.
func TestWithoutGroupsSomeProblemsTakeMore(t *testing.T) {
	smaller := 0
	for seed := range uint64(200) {
		p := plantest.Random(seed, 60)
		without, err := spaceTime(t.Context(), p, false)
		if err != nil {
			t.Fatal(err)
		}
		with := footprint(t, stAlloc(), p)
		if with > without.Footprint {
			t.Errorf("seed %d: %d bytes, %d without groups", seed, with, without.Footprint)
		}
		if with < without.Footprint {
			smaller++
		}
	}
	if t.Logf("smaller in %d of 200", smaller); smaller < 5 {
		t.Errorf("groups make only %d of 200 problems smaller", smaller)
	}
}
