package plan_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

// TestOnlyOrdersThatKeepTheDataAreAccepted swaps each pair of neighbours in random problems: the order is
// refused exactly if one of the two writes what the other touches.
func TestOnlyOrdersThatKeepTheDataAreAccepted(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(12) {
		p := plantest.Random(seed, 30)
		for i := range len(p.Ops) - 1 {
			order := make([]plan.OpID, len(p.Ops))
			for k := range order {
				order[k] = plan.OpID(k)
			}
			order[i], order[i+1] = order[i+1], order[i]
			conflict := false
			for _, a := range p.AccessesOf(plan.OpID(i)) {
				for _, b := range p.AccessesOf(plan.OpID(i + 1)) {
					conflict = conflict || a.Buffer == b.Buffer && (a.Mode.Writes() || b.Mode.Writes())
				}
			}
			q, err := plan.Reordered(p, order)
			switch {
			case conflict && !errors.Is(err, plan.ErrInvalid):
				t.Errorf("seed %d: ops %d and %d changed places: %v", seed, i, i+1, err)
			case conflict:
				refused++
			case err != nil && carried(p):
				// the old value of a carried buffer must be gone when the new one comes
			case err != nil:
				t.Errorf("seed %d: ops %d and %d may change places: %v", seed, i, i+1, err)
			default:
				accepted++
				if q.Ops[i].Name != p.Ops[i+1].Name || q.Ops[i].Duration != p.Ops[i+1].Duration {
					t.Errorf("seed %d: op %d is not at its place", seed, i+1)
				}
			}
		}
	}
	if accepted < 20 || refused < 20 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

func carried(p *plan.Problem) bool {
	return slices.ContainsFunc(p.Buffers, func(b plan.Buffer) bool { return b.Life == plan.Carried })
}

func TestAnOrderHasEachOpOnce(t *testing.T) {
	p := plantest.Chain(3, 1<<20, 1000)
	n := plan.OpID(len(p.Ops))
	same := make([]plan.OpID, n)
	for k := range same {
		same[k] = plan.OpID(k)
	}
	orders := [][]plan.OpID{nil, same[1:], append(slices.Clone(same), 0)}
	for _, other := range []plan.OpID{-1, 0, n, 9999} { // 0 is there already
		order := slices.Clone(same)
		order[1] = other
		orders = append(orders, order)
	}
	for _, order := range orders {
		if _, err := plan.Reordered(p, order); !errors.Is(err, plan.ErrInvalid) {
			t.Errorf("%v: %v", order, err)
		}
	}
	if _, err := plan.Reordered(p, same); err != nil {
		t.Errorf("the order that it has: %v", err)
	}
}
