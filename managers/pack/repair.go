package pack

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// squeaky packs a core by greedy passes that learn their order (squeaky wheel optimisation, Joslin and
// Clements, 1999): items that a pass left above the capacity, and with them some of what lay below, come
// earlier in the next. A pass costs little (fit.go), so this is what remains where a search would need more
// memory or steps than there are.
func (c core) squeaky(ctx context.Context, capacity int64, seed uint64, work int64) (best []int64, used int64,
	out outcome) {
	in := c.in
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	type start struct {
		order []int32
		rule  fitRule
		top   int64
	}
	var pick start
	for _, s := range fitPortfolio {
		order := in.order(s.order)
		offsets, err := in.fit(ctx, order, s.fitRule)
		if err != nil {
			return best, used, cancelled
		}
		used += fitSteps(len(order))
		if top := in.top(offsets); best == nil || top < pick.top {
			best, pick = offsets, start{order, s.fitRule, top}
		}
		if pick.top <= capacity {
			return best, used, packed
		}
		if used >= work {
			return best, used, ranOut
		}
	}
	priority := make([]float64, len(in.size))
	for k, i := range pick.order {
		priority[i] = float64(k)
	}
	trial := slices.Clone(priority)
	order := slices.Clone(pick.order)
	current, offsets := pick.top, best
	for used < work {
		// Blame what sticks out above a level drawn between the capacity and the top.
		level := capacity + int64(r.Float64()*r.Float64()*float64(current-capacity))
		factor := 0.3 + 0.6*r.Float64()
		copy(trial, priority)
		for i, at := range offsets {
			if at+in.size[i] > level {
				trial[i] *= factor * (0.8 + 0.4*r.Float64())
			}
		}
		slices.SortStableFunc(order, func(a, b int32) int {
			return cmp.Or(cmp.Compare(trial[a], trial[b]), cmp.Compare(a, b))
		})
		next, err := in.fit(ctx, order, pick.rule)
		if err != nil {
			return best, used, cancelled
		}
		used += fitSteps(len(order))
		top := in.top(next)
		if top <= current+(current-capacity)/50 {
			current, offsets = top, next
			for k, i := range order {
				priority[i] = float64(k)
			}
		}
		if top < pick.top {
			pick.top, best = top, next
		}
		if pick.top <= capacity {
			return best, used, packed
		}
	}
	return best, used, ranOut
}
