package joint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

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

// The problem: choices keep the live bytes within the limit, and addresses take the plan above it, on a recording with buffers of all sizes by a tenth.
// Deciding under a lower limit costs step time, packing better costs planning time.
//
// Way chosen: pack by search, which is told the limit as its capacity and stops at the first packing within it (managers/pack). It gets far more steps than
// greedy passes take, since with some slack it closes a gap of several percent sooner than choices are made anew; but only for candidates whose live
// bytes are within the limit and whose estimated time does not lose to what is known. Where it fails, limits are cut: by what did at a neighbouring limit, where
// one was planned for, since addresses waste about as much there; else by a few percent of what is not there all the time, twice as much at each failure, at the last by
// all that sticks out. When it succeeds, the cut is halved towards the last that failed.
//
// Complexity: at most so many rounds as the grid says, each with a part of the search's work and one search for places; greedy passes too where those fit and
// addresses make compute wait. Rejected: greedy placement, with cuts as large as what sticks out (from the first, they came to ten percent where three would have done, and a plan
// that lets more go than it needs to loses more than by any other mistake here); hard packing of every candidate (ten times the planning time, most of it
// spent on those that lose).

// plan plans for one limit, from seeds where there are some, else from nothing. A plan that fits and takes so long as beat is known.
func (v *view) plan(limit, enough, beat int64, seeds []*state) ([]*found, *state, error) {
	s, rounds := v.s, v.f.grid.rounds
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
	var cut int64                               // by how much limits are lowered, since addresses take the plan above them
	missed, fitted := int64(0), int64(-1)       // the cuts that were too little and enough, the latter -1 where none was
	step := max(limit-v.m.persistent, 0) / cuts // the most by which it grows at first
	last := false                               // limits are as low as can be
	warm := leastCut(seeds)                     // the cut that did for the neighbours, to begin with
	first.cut = warm
	defer func() {
		if fitted > 0 && fitted < limit {
			first.cut = fitted
		}
	}()
	for round := range rounds {
		if round > 0 {
			at = v.again(at, share/v.f.grid.mend)
		}
		if beat < math.MaxInt64 && v.loses(at, beat) {
			break
		}
		s.set(at)
		work := v.f.pack
		if round == 0 { // without slack a search for places is mostly in vain
			work /= 8
		}
		x, err := v.settle(limit, work, beat)
		if err != nil {
			return nil, nil, err
		}
		miss := x.pl.Footprint - limit
		if miss <= 0 && v.f.perIteration(at.time) <= beat {
			if x, err = v.polish(x, at, limit); err != nil {
				return nil, nil, err
			}
		}
		made = append(made, x)
		if miss <= 0 && better(x, best) {
			best, beat = x, min(beat, x.time)
		}
		if v.f.off.feedback || miss <= 0 && (cut == 0 || best.time <= enough) {
			break
		}
		switch {
		case miss <= 0: // perhaps less would have done
			fitted = cut
		case fitted >= 0:
			missed = cut
		case last || beat < math.MaxInt64 && at.over > 0 && cut-missed <= step/4:
			return made, first, nil
		case at.over > 0 && cut-missed <= step/4: // the choices cannot follow
			last = true
		case at.over > 0: // nor so far
			cut = (missed + cut) / 2
		case warm > cut && (round < rounds-2 || warm > miss):
			missed, cut = cut, warm
		case round < 2 && warm == 0 && v.m.n <= 4000:
			v.tighten(x.pl, limit)
			continue
		case round == rounds-2: // the last that there is time for: all of what sticks out
			missed = cut
			cut += miss + step
		default:
			missed = cut
			cut += cut + min(miss/2, step)
		}
		if fitted >= 0 {
			if fitted-missed <= step/4 {
				break
			}
			cut = (missed + fitted) / 2
		}
		if last = last || beat == math.MaxInt64 && round == rounds-2; last && fitted < 0 {
			cut = limit
		}
		for i := range v.m.n {
			s.limit[i] = max(limit-cut, v.m.least[i])
		}
	}
	return made, first, nil
}

// leastCut returns the least by which limits had to be lowered for one of the seeds to fit, 0 where nothing is known.
func leastCut(seeds []*state) (cut int64) {
	for _, x := range seeds {
		if cut == 0 || x.cut > 0 && x.cut < cut {
			cut = x.cut
		}
	}
	return cut
}

// Limits are lowered at first by one part in so many of the memory that is not taken all the time.
const cuts = 32

// loses reports whether a candidate is slower than a plan that is known, with an allowance for what the schedule overrates.
func (v *view) loses(x *state, beat int64) bool { return v.f.perIteration(x.time)-beat > beat/32 }

// settle assembles, places and measures the schedule at hand: packed by search of so much work; where that fits and addresses cost time, in other ways too,
// among them such that leave memory alone for a while before it is used again, for as long as the limit allows; unless a plan is known that beats it anyhow.
func (v *view) settle(limit, work, beat int64) (*found, error) {
	pl, err := v.assemble(true)
	if err != nil {
		return nil, err
	}
	opt := place.Options{Rule: place.Search, Capacity: limit, Seed: v.f.r.Seed, Work: work}
	switch live, _ := pl.PeakLive(); {
	case len(v.m.choices) == 0: // places are all there is to choose
		opt.Work = 0
	case v.f.pack == 0: // it takes too long
		opt.Rule = place.BestFit
	case live > limit: // no packing fits
		opt.Work = 1
	}
	best, err := v.measured(pl, opt)
	estimate := v.f.perIteration(v.s.time)
	if err != nil || !v.f.grid.probes || best.pl.Footprint > limit || estimate > beat {
		return best, err
	}
	others := []place.Options{{Rule: place.BestFit}, {Rule: place.FirstFit}}
	for rest := len(best.pl.Steps) / 2; rest > 0; rest /= 2 {
		others = append(others, place.Options{Rule: place.BestFit, Rest: int32(rest)})
	}
	for k := 0; k < 2*len(others); k++ {
		opt := others[k/2]
		if best.time <= estimate+estimate/4096 { // addresses cost no time
			break
		}
		if pl, err = v.assemble(k%2 == 0); err != nil {
			return nil, err
		}
		x, err := v.measured(pl, opt)
		if err != nil {
			return nil, err
		}
		if x.pl.Footprint <= limit && better(x, best) {
			best = x
		}
	}
	return best, nil
}

// assemble makes a plan without places of the schedule at hand, with or without what gives memory away that holds nothing.
func (v *view) assemble(discards bool) (*plan.Plan, error) {
	d := v.s.decisions()
	if !discards {
		d.Absences = slices.DeleteFunc(d.Absences, func(x plan.Absence) bool { return x.How == plan.Discard })
	}
	pl, err := plan.Assemble(v.p, d)
	if err != nil {
		return nil, fmt.Errorf("assemble: %w", err)
	}
	pl.SectionBytes = v.section
	return pl, nil
}

// measured places a plan and measures it.
func (v *view) measured(pl *plan.Plan, opt place.Options) (*found, error) {
	if _, err := place.Place(v.f.ctx, v.p, pl, opt); err != nil {
		return nil, err
	}
	v.s.steps += int64(placing * len(pl.Steps))
	x := &found{pl: pl, time: v.f.perIteration(v.s.time)}
	if v.f.r.Evaluator != nil {
		me, err := v.f.r.Evaluator.Evaluate(v.f.ctx, v.f.p, pl)
		if err != nil {
			return nil, fmt.Errorf("measure: %w", err)
		}
		x.time = me.StepTime
	}
	return x, nil
}

// placing is what a step of a plan that is placed and measured counts for.
const placing = 20

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
		v.s.limit[o] = max(v.s.limit[o]-above[o], v.m.least[o])
	}
}
