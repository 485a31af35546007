package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

// Filling the copy engines to the brim, before any other choice.
//
// The problem: copies that nobody waits for are free, so as many bytes as possible should leave that way.
//
// The approach: of the gaps across the fullest position, longest first, swap each whose copies still fit (the
// earliest-deadline test of single-machine scheduling, once for copies out and once for copies in). What is
// then still missing is dropped, cheapest first. Complexity: O(gaps log gaps). Rejected: a knapsack of the
// gaps, which knows bytes and times but not deadlines.

// engines are the two copy engines while they are being filled.
type engines struct {
	m       *model
	out, in *curve.Tree // for each op, negative while copies have room
	values  []int64     // to fill a tree
}

func newEngines(m *model) engines {
	values := make([]int64, m.n)
	return engines{m, curve.New(values), curve.New(values), values}
}

// reset empties both, for copies across position k. The copies out of values written at a or later have the
// time from the end of a to the start of k; copies in likewise, backwards.
func (e *engines) reset(k int) {
	m := e.m
	start, end := m.start[k], m.end[k]
	for i := range e.values {
		e.values[i] = min(0, m.end[i]-start)
	}
	e.out.Reset(e.values)
	for i := range e.values {
		e.values[i] = min(0, end-m.start[i])
	}
	e.in.Reset(e.values)
}

// take assigns a gap's copies to the engines, if both have room.
func (e *engines) take(x *gap) bool {
	first := max(int(x.writer), 0)
	if e.out.Max(0, first+1)+x.evictTime > 0 || e.in.Max(int(x.before), e.m.n)+x.prefetchTime > 0 {
		return false
	}
	e.out.Add(0, first+1, x.evictTime)
	e.in.Add(int(x.before), e.m.n, x.prefetchTime)
	return true
}

// fill swaps gaps across the fullest position, longest first, as long as their copies fit: those out must be
// done by that position, those in can begin only after it. Then it drops the cheapest until the position
// meets its limit. What is cheaper to drop than split, in nanoseconds per 1024 bytes, is not swapped.
func (c *cover) fill(split float64) {
	s, m := c.schedule, c.schedule.m
	k, missing := 0, int64(math.MinInt64)
	for i := range m.n {
		if v := m.load[i] - s.memory.limit[i]; v > missing {
			k, missing = i, v
		}
	}
	across := c.gapsAcross(plan.OpID(k))
	c.engines.reset(k)
	for _, g := range across {
		x := &m.gaps[g]
		if missing <= 0 {
			return
		}
		if !x.canSwap || s.chains.noSwap || x.canRecompute && c.costs.density(g) < split ||
			!c.engines.take(x) {
			continue
		}
		s.setting.choice[g] = swap
		c.tree.Add(int(c.from[g]), int(c.to[g]), -x.size)
		missing -= x.size
	}
	if c.noDrop {
		return
	}
	slices.SortFunc(across, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.costs.density(a), c.costs.density(b)), cmp.Compare(a, b))
	})
	for _, g := range across {
		x := &m.gaps[g]
		if missing <= 0 {
			return
		}
		if s.setting.choice[g] == keep && x.canRecompute {
			s.setting.choice[g] = recompute
			c.tree.Add(int(x.after)+1, int(x.before), -x.size)
			missing -= x.size
		}
	}
}

// gapsAcross returns the gaps across a position, longest first. They are valid until the next call.
func (c *cover) gapsAcross(at plan.OpID) []int32 {
	m := c.schedule.m
	c.across = c.across[:0]
	for _, g := range m.choices {
		if x := &m.gaps[g]; x.after < at && at < x.before {
			c.across = append(c.across, g)
		}
	}
	slices.SortFunc(c.across, func(a, b int32) int {
		x, y := &m.gaps[a], &m.gaps[b]
		return cmp.Or(cmp.Compare(y.before-y.after, x.before-x.after), cmp.Compare(a, b))
	})
	return c.across
}

// quantile returns the cost of recomputing, in nanoseconds per 1024 bytes, at the given quantile of all gaps
// that can be dropped.
func (c *cover) quantile(share float64) float64 {
	m := c.schedule.m
	if c.densities == nil {
		c.densities = []float64{}
		for _, g := range m.choices {
			if x := &m.gaps[g]; x.canRecompute {
				c.densities = append(c.densities, float64(x.chainTime)*1024/float64(x.size))
			}
		}
		slices.Sort(c.densities)
	}
	if len(c.densities) == 0 {
		return 0
	}
	return c.densities[int(share*float64(len(c.densities)-1))]
}
