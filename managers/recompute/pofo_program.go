package recompute

import (
	"context"
	"math"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// offloadProgram is pofo's program for one chain and one limit: P(s, away, b, m), on top of rotor's
// C(s, t, m).
type offloadProgram struct {
	*rotorProgram
	p      *plan.Problem
	tick   int64 // nanoseconds that a step of b counts
	most   int   // the most steps of b
	clock  []int // of each stage, the steps of compute before it
	under  []int // the units that the bytes of each number of steps of b take
	result []int // of each stage, the steps that copying its result takes
	inside []int // and what stays inside
	least  [][]int64
}

// backlog bounds the steps of time in which copies that are still to be made are counted.
const backlog = 48

func newOffloadProgram(p *plan.Problem, b *chain.Builder, c *stageChain, limit, work int64) *offloadProgram {
	g := &offloadProgram{rotorProgram: newRotorProgram(c, limit, work), p: p}
	var forward int64
	times := make([]int64, g.n+1)
	for i := range c.stages {
		times[i] = forward
		for x := c.stages[i].from; x < c.stages[i].to; x++ {
			forward += b.OpTime(x)
		}
	}
	times[g.n] = forward
	g.most = int(min(max(work/int64(g.n*g.n*(g.top+1)), 8), backlog))
	g.tick = max(forward/int64(2*g.most), 1)
	if p.Hardware.NoEngines {
		g.most = 0
	}
	for _, t := range times {
		g.clock = append(g.clock, int(t/g.tick))
	}
	rate := float64(p.Hardware.D2H.Time(1<<30)) / (1 << 30) // nanoseconds a byte
	for k := range g.most + 1 {
		g.under = append(g.under, g.units(int64(float64(int64(k)*g.tick)/max(rate, 1e-9))))
	}
	for i := range c.stages {
		g.result = append(g.result, g.steps(c.stages[i].result))
		g.inside = append(g.inside, g.steps(c.stages[i].inner))
	}
	return g
}

// steps returns what copying activations one way takes, by the slower of the two.
func (g *offloadProgram) steps(list []int32) int {
	var time int64
	for _, k := range list {
		time += max(g.p.Hardware.D2H.Time(g.c.acts[k].bytes), g.p.Hardware.H2D.Time(g.c.acts[k].bytes))
	}
	if time == 0 {
		return 0
	}
	return int(max((time+g.tick/2)/g.tick, 1))
}

// move is one way on from a state of the program.
type move struct {
	upTo                 int // the last stage that the move decides
	sweep                bool
	insideOut, resultOut bool
	need                 int // minimum units, excluding input and copies
	keeps                int // units that stay in memory
	copies               int // steps of copying
}

// state is the index of the row of (s, away, b).
func (g *offloadProgram) state(s int, away bool, b int) int {
	k := 2 * s
	if away {
		k++
	}
	return k*(g.most+1) + b
}

// solve fills the rows of both programs.
func (g *offloadProgram) solve(ctx context.Context) error {
	if err := g.rotorProgram.solve(ctx); err != nil {
		return err
	}
	g.least = make([][]int64, 2*g.n*(g.most+1))
	for s := g.n - 1; s >= 0; s-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		moves := g.moves(s)
		for _, away := range []bool{false, true} {
			for b := range g.most + 1 {
				row := make([]int64, g.top+1)
				for m := range row {
					row[m] = never
				}
				if b > 0 { // wait
					for m, v := range g.least[g.state(s, away, b-1)] {
						row[m] = min(never, v+g.tick)
					}
				}
				for i := range moves {
					g.work += int64(len(row))
					g.lower(row, s, away, b, &moves[i])
				}
				g.least[g.state(s, away, b)] = row
			}
		}
	}
	return nil
}

// moves lists the ways on from stage s.
func (g *offloadProgram) moves(s int) (all []move) {
	x := &g.c.stages[s]
	whole := &x.holdings[0]
	need := g.need(max(whole.forward, whole.backward))
	if s == g.n-1 {
		return []move{{upTo: s, need: need}}
	}
	outs := []bool{false, true}
	if g.most == 0 {
		outs = outs[:1]
	}
	for _, insideOut := range outs {
		if insideOut && len(x.inner) == 0 {
			continue
		}
		for _, resultOut := range outs {
			w := move{upTo: s, insideOut: insideOut, resultOut: resultOut, need: need}
			if insideOut {
				w.copies += g.inside[s]
			} else {
				w.keeps += g.held[s][0] - g.size[s]
			}
			all = append(all, g.withResult(w))
		}
	}
	high := int64(0)
	for j := s; j < g.n-1; j++ {
		if j == s {
			high = x.forwardHeld
		} else {
			high = max(high, g.c.stages[j].forward)
		}
		for _, resultOut := range outs {
			w := move{upTo: j, sweep: true, resultOut: resultOut, need: g.need(high)}
			all = append(all, g.withResult(w))
		}
	}
	return all
}

// withResult adds to a move what its result takes.
func (g *offloadProgram) withResult(w move) move {
	if w.resultOut {
		w.copies += g.result[w.upTo]
	} else {
		w.keeps += g.size[w.upTo]
	}
	return w
}

// left returns the units that ops have in state (s, away, b) with m units.
func (g *offloadProgram) left(s int, away bool, b, m int) int {
	if m -= g.under[b]; away {
		m -= g.size[s-1]
	}
	return m
}

// after returns the steps of copying that remain after a move, and whether these are not too many.
func (g *offloadProgram) after(s, b int, w *move) (int, bool) {
	b = max(b-(g.clock[w.upTo+1]-g.clock[s]), 0) + w.copies
	return b, b <= g.most
}

// takes returns the time of a move and of all moves after it.
func (g *offloadProgram) takes(s int, away bool, b, m int, w *move) int64 {
	if away && s == 0 {
		return never
	}
	left := g.left(s, away, b, m)
	if left < w.need {
		return never
	}
	if s == g.n-1 {
		return 0
	}
	next, ok := g.after(s, b, w)
	if !ok || m < w.keeps {
		return never
	}
	v := g.least[g.state(w.upTo+1, w.resultOut, next)][m-w.keeps]
	if w.sweep && v < never {
		v += g.at(s, w.upTo)[left]
	}
	return min(v, never)
}

// lower lowers a row to the times of a move: to what takes returns for each number of units. Most of the
// planning time is spent here.
func (g *offloadProgram) lower(row []int64, s int, away bool, b int, w *move) {
	if away && s == 0 {
		return
	}
	taken := -g.left(s, away, b, 0)
	from := max(w.need+taken, 0)
	if s == g.n-1 {
		for m := from; m < len(row); m++ {
			row[m] = 0
		}
		return
	}
	next, ok := g.after(s, b, w)
	if from = max(from, w.keeps); !ok || from >= len(row) {
		return
	}
	row = row[from:]
	then := g.least[g.state(w.upTo+1, w.resultOut, next)][from-w.keeps:][:len(row)]
	if !w.sweep {
		for m, v := range then {
			row[m] = min(row[m], v)
		}
		return
	}
	again := g.at(s, w.upTo)[from-taken:][:len(row)]
	for m, v := range then {
		row[m] = min(row[m], v+again[m]) // row holds never at most
	}
}

// decisions returns what to drop and what to send to the host with m units; if these do not suffice, the
// result for the fewest that do.
func (g *offloadProgram) decisions(m int) ([]chain.Drop, []offload) {
	whole := g.least[g.state(0, false, 0)]
	for m = min(max(m, 0), g.top); m < g.top && whole[m] >= never; {
		m++
	}
	fetch := make([]plan.OpID, len(g.c.acts)) // for each activation, 0 if it is kept
	due := make([]plan.OpID, len(g.c.acts))   // where each activation sent to the host must be back
	for i := range fetch {
		fetch[i] = g.c.acts[i].Before
	}
	hold := func(list []int32, at plan.OpID) {
		for _, k := range list {
			fetch[k] = min(fetch[k], at)
		}
	}
	send := func(list []int32, at plan.OpID) {
		for _, k := range list {
			if at = min(at, g.c.acts[k].Before); due[k] == 0 || at < due[k] {
				due[k] = at
			}
		}
	}
	g.follow(m, hold, send)
	var drops []chain.Drop
	var outs []offload
	pinned := g.p.Hardware.PinnedBytes
	var host int64
	for k := range g.c.acts {
		a := &g.c.acts[k]
		if fetch[k] == 0 {
			continue
		}
		if due[k] > a.After+1 && (pinned <= 0 || host+a.bytes <= pinned) {
			host += a.bytes
			outs = append(outs, offload{Gap: a.Gap, bytes: a.bytes, due: due[k],
				out: g.p.Hardware.D2H.Time(a.bytes), in: g.p.Hardware.H2D.Time(a.bytes)})
			continue
		}
		drops = append(drops, chain.Drop{Gap: a.Gap, Fetch: max(fetch[k], a.After+1),
			Why: "no checkpoint of this sweep"})
	}
	return drops, outs
}

// follow walks through the best moves with m units, and reports what is held from which position on, and what
// goes to the host until when.
func (g *offloadProgram) follow(m int, hold, send func([]int32, plan.OpID)) {
	s, away, b := 0, false, 0
	var input []int32 // on the host
	for {
		var best move
		least := int64(never)
		for _, w := range g.moves(s) {
			if v := g.takes(s, away, b, m, &w); v < least {
				best, least = w, v
			}
		}
		if b > 0 && g.least[g.state(s, away, b-1)][m]+g.tick < least {
			b--
			continue
		}
		if least >= never { // no memory for anything
			return
		}
		x := &g.c.stages[s]
		send(input, g.c.stages[best.upTo].first)
		input = nil
		switch {
		case best.sweep:
			g.walk(s, best.upTo, g.left(s, away, b, m), hold)
		case best.insideOut:
			send(x.inner, math.MaxInt32)
		default:
			hold(x.inner, 0)
		}
		if s == g.n-1 {
			return
		}
		if best.resultOut {
			input = g.c.stages[best.upTo].result
		} else {
			hold(g.c.stages[best.upTo].result, 0)
		}
		b, _ = g.after(s, b, &best)
		m, s, away = m-best.keeps, best.upTo+1, best.resultOut
	}
}
