package recompute

import (
	"context"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// rotorProgram is the dynamic program of rotor for one chain and one limit: C(s, t, m) for all s <= t, with a
// row of times for each pair, by units of memory. A sweep of (s, t) runs when the backward pass has reached
// stage t; if t is the last stage, it is the forward pass itself.
type rotorProgram struct {
	c     *stageChain
	n     int
	unit  int64
	shift int64     // bytes that are never free
	top   int       // the most units
	size  []int     // units of each stage's result
	held  [][]int   // units of each stage's result and of what stays inside, by holding
	row   [][]int64 // of (s, t) at s*n+t
	alike bool      // rows of equal length are equal, except those of the first and the last stage
	work  int64
}

// never means "does not fit"; adding two of them does not overflow.
const never = math.MaxInt64 / 4

func newRotorProgram(c *stageChain, limit, work int64) *rotorProgram {
	g := &rotorProgram{c: c, n: len(c.stages), unit: max(c.unit, 1)}
	g.shift = limit
	for i := range c.stages {
		s := &c.stages[i]
		g.shift = min(g.shift, s.before, s.forwardHeld+s.size) // any that is not above what all need would do
	}
	g.alike = g.n > 4
	for i := 2; i < g.n-1 && g.alike; i++ {
		g.alike = c.stages[i].same(&c.stages[1])
	}
	n := int64(g.n)
	pairs := n * n * n / 6 // each of these has a row, and each step of a row looks at one more
	if g.alike {
		pairs = 3 * n * n / 2
	}
	units := max(min(work/max(pairs, 1), 1<<14), 64)
	if left := limit - g.shift; left/g.unit > units {
		g.unit = (left + units - 1) / units
	}
	g.top = int((limit - g.shift) / g.unit)
	if g.unit > c.unit { // rounding up wastes some units, so we add as many and check the result
		g.top += min(g.n, g.top/4)
	}
	for i := range c.stages {
		g.size = append(g.size, g.units(c.stages[i].size))
		var held []int
		for _, h := range c.stages[i].holdings {
			held = append(held, g.units(c.stages[i].size+h.bytes))
		}
		g.held = append(g.held, held)
	}
	g.row = make([][]int64, g.n*g.n)
	return g
}

// same reports whether two stages are indistinguishable.
func (s *stage) same(x *stage) bool {
	return s.size == x.size && s.before == x.before && s.again == x.again &&
		slices.EqualFunc(s.holdings, x.holdings, func(a, b holding) bool {
			return a.bytes == b.bytes && a.late == b.late && a.backward == b.backward && a.all == b.all &&
				a.inside == b.inside
		})
}

func (g *rotorProgram) units(bytes int64) int { return int((bytes + g.unit - 1) / g.unit) }

// need returns the units for a number of bytes alive at once.
func (g *rotorProgram) need(bytes int64) int {
	if bytes >= math.MaxInt64/2048 {
		return math.MaxInt32
	}
	return g.units(max(bytes-g.shift, 0))
}

// at returns the row of (s, t).
func (g *rotorProgram) at(s, t int) []int64 {
	if g.alike && s > 1 && t < g.n-1 {
		s, t = 1, t-s+1
	}
	return g.row[s*g.n+t]
}

// solve fills the rows, the shortest first.
func (g *rotorProgram) solve(ctx context.Context) error {
	for length := range g.n {
		if err := ctx.Err(); err != nil {
			return err
		}
		for s := 0; s+length < g.n; s++ {
			t := s + length
			if g.alike && s > 1 && t < g.n-1 {
				continue
			}
			row := make([]int64, g.top+1)
			for m := range row {
				row[m] = never
			}
			g.row[s*g.n+t] = row
			g.ways(s, t, func(w way) {
				g.work += int64(len(row))
				g.lower(row, w, s, t)
			})
		}
	}
	return nil
}

// way is one way to do (s, t): the result of stage upTo is held, and of stage s also a part of its inside
// where hold is a holding; or, where upTo is -1, the stage runs backward.
type way struct {
	upTo int
	hold int   // the holding, -1 for none
	need int   // minimum units
	time int64 // of the sweep, and of late recomputation
}

// cost returns the time of a way, whose need is met, with m units.
func (g *rotorProgram) cost(w way, s, t, m int) int64 {
	switch {
	case w.upTo < 0:
		return w.time
	case w.hold >= 0:
		if m -= g.held[s][w.hold]; m < 0 {
			return never
		}
		return min(never, w.time+g.at(s+1, t)[m])
	case m < g.size[w.upTo]:
		return never
	}
	return min(never, w.time+g.at(w.upTo+1, t)[m-g.size[w.upTo]]+g.at(s, w.upTo)[m])
}

// lower lowers a row to the times of a way: to its cost for each number of units that suffices. Most of the
// planning time is spent here.
func (g *rotorProgram) lower(row []int64, w way, s, t int) {
	switch {
	case w.upTo < 0:
		for m := w.need; m < len(row); m++ {
			row[m] = min(row[m], w.time)
		}
	case w.hold >= 0:
		held := g.held[s][w.hold]
		if from := max(w.need, held); from < len(row) {
			row = row[from:]
			for m, v := range g.at(s+1, t)[from-held:][:len(row)] {
				row[m] = min(row[m], w.time+v) // row holds never at most
			}
		}
	default:
		size := g.size[w.upTo]
		if from := max(w.need, size); from < len(row) {
			row = row[from:]
			again := g.at(s, w.upTo)[from:][:len(row)]
			for m, v := range g.at(w.upTo+1, t)[from-size:][:len(row)] {
				row[m] = min(row[m], w.time+v+again[m])
			}
		}
	}
}

// ways calls try for each way to do (s, t).
func (g *rotorProgram) ways(s, t int, try func(way)) {
	first := t == g.n-1 // the sweep is the forward pass
	before := g.c.stages[t].before
	a := &g.c.stages[s]
	upTo := s
	if s == t {
		upTo = -1
	}
	for k := range a.holdings {
		h := &a.holdings[k]
		w := way{upTo: upTo, hold: k, time: h.late}
		switch {
		case first:
			w.need = g.need(max(h.forward, h.backward))
		case s == t:
			w.need, w.time = g.need(max(before+h.inside.peak, h.backward)), w.time+h.inside.time
		default:
			w.need, w.time = g.need(max(before+h.all.peak, h.backward)), w.time+h.all.time
		}
		try(w)
	}
	if s == t {
		return
	}
	var need, time int64
	for j := s; j < t; j++ {
		b := &g.c.stages[j]
		switch {
		case !first:
			time += b.again.time
			need = max(need, before+b.again.peak)
			if j > s { // its input comes and goes
				need = max(need, before+b.again.peak+g.c.stages[j-1].size)
			}
		case j == s:
			need = max(need, b.forwardHeld)
		default:
			need = max(need, b.forward)
		}
		try(way{upTo: j, hold: -1, need: g.need(need), time: time})
	}
}

// drops returns what to drop, and where to recompute it, with m units; if these do not suffice, the result
// for the fewest that do.
func (g *rotorProgram) drops(m int) []chain.Drop {
	whole := g.at(0, g.n-1)
	for m = min(max(m, 0), g.top); m < g.top && whole[m] >= never; {
		m++
	}
	fetch := make([]plan.OpID, len(g.c.acts)) // for each activation, 0 if it is kept
	for i := range fetch {
		fetch[i] = g.c.acts[i].Before
	}
	g.walk(0, g.n-1, m, func(list []int32, at plan.OpID) {
		for _, k := range list {
			fetch[k] = min(fetch[k], at)
		}
	})
	var drops []chain.Drop
	for k, at := range fetch {
		if at > 0 {
			a := &g.c.acts[k]
			at = max(at, a.After+1)
			drops = append(drops, chain.Drop{Gap: a.Gap, Fetch: at, Why: "no checkpoint of this sweep"})
		}
	}
	return drops
}

// walk calls hold with what the optimum for (s, t) with m units holds, and from which position on.
func (g *rotorProgram) walk(s, t, m int, hold func([]int32, plan.OpID)) {
	best, least := way{}, int64(never)
	g.ways(s, t, func(w way) {
		if w.need <= m {
			if c := g.cost(w, s, t, m); c < least {
				best, least = w, c
			}
		}
	})
	x := &g.c.stages[s]
	at := g.c.stages[t].first // of the sweep
	if t == g.n-1 {
		at = 0 // held from the forward pass on
	}
	switch {
	case least >= never: // no memory for anything: recomputed where it is needed
	case best.upTo < 0:
		hold(x.holdings[best.hold].kept, at)
	case best.hold >= 0:
		hold(x.holdings[best.hold].kept, at)
		hold(x.result, at)
		g.walk(s+1, t, m-g.held[s][best.hold], hold)
	default:
		hold(g.c.stages[best.upTo].result, at)
		g.walk(best.upTo+1, t, m-g.size[best.upTo], hold)
		g.walk(s, best.upTo, m, hold)
	}
}
