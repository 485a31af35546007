package joint

import (
	"math"
	"math/bits"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// grid is the set of limits that are planned for, whatever the budget.
type grid struct {
	floor       int64
	unit, units int64 // the unit of all sizes, and the number of units from floor to peak
	top         int   // the rung without a limit
	// the maximum number of attempts per limit, needed if addresses take the plan above it
	rounds int
	// plan for some rungs several times; where addresses cost time, try other places, and choices on the
	// evaluator
	probes bool
	vast   bool  // ask other managers first
	pack   int64 // the most counted work of a search for places, 0 if only a greedy pass is affordable
	mend   int64 // repairing choices gets 1/mend of the work on a rung
	least  int64 // the least counted work of a view of a rung by default
	visits int64 // roughly how many rungs one call plans for
}

// newGrid uses fewer rungs for problems with more buffers: each buffer is a smaller share of the whole, and
// placing takes longer.
func newGrid(m *model) grid {
	par := &m.params
	g := grid{
		floor:  m.floor,
		unit:   unit(m),
		top:    par.rungs[0],
		rounds: par.rounds[0],
		probes: true,
		pack:   par.pack,
		mend:   par.mend[0],
	}
	g.units = max(m.peak-m.floor, 0) / g.unit
	size := 2 * len(m.p.Buffers) // about as many as ops and buffers together in a recording of a network
	switch {
	case size > par.largeProblem: // placing a plan takes most of the time there
		g.top, g.rounds, g.probes, g.pack, g.mend = par.rungs[1], par.rounds[1], false, 0, par.mend[1]
	case m.n+len(m.p.Buffers) > par.largeProblem:
		// few buffers and many ops: a schedule takes long, and a rung needs hundreds of them
		g.top, g.probes = par.rungs[1], false
		g.least = par.schedules * int64(m.n+len(m.gaps))
	}
	if size > par.hugeProblem {
		g.top, g.rounds, g.mend = par.rungs[2], par.rounds[2], par.mend[2]
	}
	if size > par.vastProblem {
		g.top, g.vast = par.rungs[3], true
	}
	if len(m.choices) == 0 || m.peak <= m.floor {
		g.top = 1
	}
	g.visits = int64(max(par.leastVisited, bits.Len(uint(g.top))-par.fewerVisited))
	return g
}

// limit returns the maximum bytes of a plan of a rung.
func (g *grid) limit(at int) int64 {
	if at == g.top {
		return math.MaxInt64 / 4
	}
	hi, lo := bits.Mul64(uint64(g.units), uint64(at)*uint64(at))
	share, _ := bits.Div64(hi, lo, uint64(g.top)*uint64(g.top))
	return g.floor + g.unit*int64(share)
}

// unit returns the greatest common divisor of all sizes.
func unit(m *model) int64 {
	x := m.floor
	for b := range m.p.Buffers {
		for y := m.p.Rounded(plan.BufferID(b)); y > 0; {
			x, y = y, x%y
		}
	}
	return max(x, 1)
}

// at returns the last rung whose limit is at most bytes, 0 if there is none.
func (g *grid) at(bytes int64) int {
	lo, hi := 0, g.top-1
	for lo < hi {
		if mid := (lo + hi + 1) / 2; g.limit(mid) <= bytes {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// below returns the next lower rung that is known when rung at is, or none.
func (g *grid) below(at int) int {
	if at == 0 {
		return none
	}
	return at - at&-at
}
