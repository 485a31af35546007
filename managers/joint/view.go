package joint

import (
	"fmt"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// view is the problem, as it is or with its large buffers cut into sections, with all that planning it takes.
type view struct {
	f       *finder
	p       *plan.Problem
	section int64 // bytes; 0 where buffers are whole
	m       *model
	s       *schedule
	c       *cover
	rnd     *rand.Rand
	until   int64 // the counted work at which the search for the limit at hand ends
	enough  int64 // a step time that cannot or need not be undercut
}

func (f *finder) newView(p *plan.Problem, m *model, section int64) *view {
	v := &view{f: f, p: p, section: section, m: m}
	v.s = newSchedule(m)
	v.s.noSwap = f.off.swap
	v.c = newCover(v.s)
	v.c.noDrop = f.off.recompute
	return v
}

// plan plans for one limit, from seeds where there are some, else from nothing.
func (v *view) plan(limit, enough int64, seeds []*state) ([]*found, *state, error) {
	s := v.s
	v.rnd = rand.New(rand.NewPCG(v.f.r.Seed, uint64(limit)))
	v.enough = enough*int64(v.p.Iterations) + int64(v.p.Iterations) - 1
	for i := range s.limit {
		s.limit[i] = limit
	}
	share := v.f.share / int64(len(v.f.views))
	v.until = s.steps + share
	first := v.search(seeds, share)
	at := first
	var best *found // that fits
	var made []*found
	var cut, fitted int64 // by how much limits are lowered, since addresses take the plan above them; and by how much they were when it fitted
	for round := range v.f.grid.rounds {
		if round > 0 {
			at = v.again(at, share/8)
		}
		s.set(at)
		x, err := v.settle(limit)
		if err != nil {
			return nil, nil, err
		}
		miss := x.pl.Footprint - limit
		made = append(made, x)
		if miss <= 0 && better(x, best) {
			best = x
		}
		if v.f.off.feedback || miss <= 0 && (cut == 0 || round >= 4 || best.time <= enough) {
			break
		}
		switch {
		case miss <= 0: // perhaps less would have done
			fitted = cut
			cut -= cut / 4
		case fitted > 0:
			return made, first, nil
		case at.over > 0: // the choices cannot follow so far
			cut /= 2
		case round < 3 && v.m.n <= 4000:
			v.tighten(x.pl, limit)
			continue
		default:
			cut += miss/2 + miss/2*int64(max(0, round-4))
		}
		for i := range v.m.n {
			s.limit[i] = max(limit-cut, v.m.operands[i])
			if left := int64(v.f.grid.rounds - 2 - round); best == nil && left < 2 { // in the end as little as can be
				s.limit[i] = v.m.operands[i] + (s.limit[i]-v.m.operands[i])*left/2
			}
		}
	}
	return made, first, nil
}

// settle assembles, places and measures the schedule at hand, in one way after another until addresses neither pass the limit nor cost time.
func (v *view) settle(limit int64) (*found, error) {
	work := int64(packWork)
	if len(v.m.choices) == 0 { // places are all there is to choose
		work = 0
	}
	var best *found
	for k, opt := range []place.Options{
		{Rule: place.BestFit},
		{Rule: place.FirstFit},
		{Rule: place.Search, Capacity: limit, Seed: v.f.r.Seed, Work: work},
	} {
		if k > 0 && work > 0 && (!v.f.grid.probes || best.pl.Footprint > limit+limit/4) { // it takes too long, or another placement will not do
			continue
		}
		pl, err := plan.Assemble(v.p, v.s.decisions())
		if err != nil {
			return nil, fmt.Errorf("assemble: %w", err)
		}
		pl.SectionBytes = v.section
		if _, err = place.Place(v.f.ctx, v.p, pl, opt); err != nil {
			return nil, err
		}
		v.s.steps += int64(placing * len(pl.Steps))
		if best != nil && pl.Footprint > limit && pl.Footprint >= best.pl.Footprint {
			continue
		}
		x := &found{pl: pl, time: v.f.perIteration(v.s.time)}
		if v.f.r.Evaluator != nil {
			me, err := v.f.r.Evaluator.Evaluate(v.f.ctx, v.f.p, pl)
			if err != nil {
				return nil, fmt.Errorf("measure: %w", err)
			}
			x.time = me.StepTime
		}
		fits, had := pl.Footprint <= limit, best != nil && best.pl.Footprint <= limit
		if best == nil || fits && !had || fits == had && (fits && better(x, best) || !fits && pl.Footprint < best.pl.Footprint) {
			best = x
		}
		if estimate := v.f.perIteration(v.s.time); fits && best.time <= estimate+estimate/4096 { // addresses cost no time
			break
		}
	}
	return best, nil
}

// packWork bounds the search for places of one schedule; placing is what a step of a plan that is placed and measured counts for.
const (
	packWork = 1000
	placing  = 20
)

// tighten lowers the limits where instances lie above the limit that they should have met.
func (v *view) tighten(pl *plan.Plan, limit int64) {
	at := make([]plan.OpID, len(pl.Steps)+1) // position of each step
	var i plan.OpID
	for k := range pl.Steps {
		at[k] = i
		if pl.Steps[k].Kind == plan.Run {
			i = pl.Steps[k].Op + 1
		}
	}
	at[len(pl.Steps)] = plan.OpID(len(v.p.Ops))
	above := make([]int64, len(v.p.Ops)+1)
	for k := range pl.Instances {
		x := &pl.Instances[k]
		if h := x.Offset + x.Size - limit; h > 0 {
			for o := at[max(x.From, 0)]; o <= at[x.To] && int(o) < len(v.p.Ops); o++ {
				above[o] = max(above[o], min(h, x.Size))
			}
		}
	}
	for o := range v.p.Ops {
		v.s.limit[o] = max(v.s.limit[o]-above[o], v.m.operands[o])
	}
}
