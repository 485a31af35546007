package joint

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Planning for one limit.
//
// The problem: choices keep the live bytes within the limit, but addresses can take the plan above it, by a
// tenth on a recording with buffers of all sizes. Choosing under a lower limit costs step time; packing
// better costs planning time.
//
// The approach: pack by size classes in one greedy pass, and if that fails, by search (place.Tight), which
// gets the limit as its capacity and stops at the first packing within it. The search gets far more steps
// than greedy passes take, because with some slack it closes a gap of several percent sooner than making new
// choices would. It runs only for candidates whose live bytes are within the limit and whose estimated time
// is no worse than the best known. Where it fails, limits are cut. If a neighbouring limit was planned for,
// the cut that worked there comes first, since addresses waste about as much here. Otherwise the cut is first
// a few percent of the varying memory, doubled after each failure, and finally the whole excess. After a
// success, the next cut is halfway to the last one that failed.
//
// With thousands of instances, a search has too few steps to place each of them even a few times, and only
// the greedy pass is left (greedy). It wastes much more than a search, but about as much at one limit as at
// the next. So planning for a limit starts with the neighbour's cut; a failure adds the whole excess, and a
// success takes back at most what was left over. Cuts that differ by less than the scatter of such
// placements, a few percent, count as equal.
//
// Complexity: at most as many rounds as the grid allows, each with a part of the search's work and one search
// for places, plus greedy passes where those fit and addresses make compute wait. Rejected: for few
// instances, greedy placement alone with cuts of the whole excess (from the first round on, cuts came to ten
// percent where three would have been enough, and a plan that evicts more than it must loses more than
// through any other mistake here); for many, small cuts that grow (each was too small, and the last too
// large); hard packing of every candidate (ten times the planning time, most of it for candidates that lose).

// view is the problem, as it is or with large buffers cut into sections, with everything needed to plan it.
type view struct {
	finder   *finder
	p        *plan.Problem
	section  int64           // bytes; 0 if buffers are whole
	sections []plan.BufferID // for each whole buffer, its first section; one more entry for the end
	m        *model
	schedule *schedule
	cover    *cover
	rnd      *rand.Rand
	until    int64 // the counted work at which the search for the current limit ends
	target   int64 // a step time below which no plan can get or needs to get
	returns  bool  // searches also change when swapped values are back
	greedy   bool  // the last plan has too many instances for a search for places
	off      mechanisms
}

func newView(f *finder, p *plan.Problem, m *model, section int64, off mechanisms) *view {
	v := &view{finder: f, p: p, section: section, m: m, off: off}
	if section > 0 {
		v.sections = sectionsOf(f.p, p)
	}
	v.schedule = newSchedule(m)
	v.schedule.chains.noSwap = off.swap
	v.cover = newCover(v.schedule)
	v.cover.noDrop = off.recompute
	return v
}

// planWithin plans for one limit, from seeds if there are any, otherwise from scratch. incumbent is the time
// of a known plan that fits. planWithin returns the plans that were made, and the candidate from which
// neighbouring limits can start.
func (v *view) planWithin(
	limit, target, incumbent int64,
	seeds []*candidate,
) (made []*outcome, first *candidate, err error) {
	f := v.finder
	v.rnd = rand.New(rand.NewPCG(f.request.Seed, uint64(limit)))
	v.target = target*int64(v.p.Iterations) + int64(v.p.Iterations) - 1
	c := v.newCut(limit, seeds)
	v.applyMargin(limit, c.margin)
	share := f.rungWork / int64(len(f.views))
	v.until = v.schedule.steps + share
	first = v.search(seeds, share)
	at := first
	var best *outcome // the best that fits
	for round := range c.rounds {
		if round > 0 {
			at = v.repair(at, share/f.ladder.mend)
		}
		if incumbent < math.MaxInt64 && v.hopeless(at, incumbent) {
			break
		}
		v.schedule.runAs(at)
		x, err := v.realize(limit, v.packWork(round), incumbent)
		if err != nil {
			return nil, nil, err
		}
		first.greedy = v.greedy
		c.packedBy(v.greedy)
		miss := x.pl.Footprint - limit
		if miss <= 0 && perIteration(f.p, at.time) <= incumbent {
			if x, err = v.polish(x, at, limit); err != nil {
				return nil, nil, err
			}
		}
		made = append(made, x)
		if miss <= 0 && better(x, best) {
			best, incumbent = x, min(incumbent, x.time)
		}
		if v.off.feedback || miss <= 0 && (c.margin == 0 || best.time <= target) {
			break
		}
		known := incumbent < math.MaxInt64
		tightens := round < 2 && v.m.n <= f.params.tightenOps
		what := c.next(round, miss, at.over > 0, known, tightens)
		if what == stop {
			break
		}
		if what == tighten {
			v.tighten(x.pl, limit)
		} else {
			v.applyMargin(limit, c.margin)
		}
	}
	first.margin = c.found()
	return made, first, nil
}

// newCut starts the search for a margin with the one that was enough at neighbouring limits, if known.
func (v *view) newCut(limit int64, seeds []*candidate) cut {
	step := max(limit-v.m.persistent, 0) / v.finder.params.marginSteps
	c := cut{
		step: step, tolerance: step / v.finder.params.nearMargins, limit: limit,
		rounds: v.finder.ladder.rounds, params: &v.finder.params,
	}
	if c.seed, c.greedy = leastMargin(seeds); c.greedy {
		c.margin, c.tolerance = c.seed, step
	}
	return c
}

// packWork returns the counted work for a search for places in a round. The first round has no slack, so its
// search is mostly in vain.
func (v *view) packWork(round int) int64 {
	if round == 0 {
		return v.finder.pack / v.finder.params.firstPack
	}
	return v.finder.pack
}

// applyMargin lowers the limits for choices by cut, but no lower than choices can meet. The limit for
// addresses stays.
func (v *view) applyMargin(limit, cut int64) {
	for i := range v.schedule.memory.limit {
		v.schedule.memory.limit[i] = limit
		if cut > 0 && i < v.m.n {
			v.schedule.memory.limit[i] = max(limit-cut, v.m.least[i])
		}
	}
}

// leastMargin returns the smallest margin that one of the seeds needed to fit, 0 if none is known, and
// whether its places were greedy.
func leastMargin(seeds []*candidate) (cut int64, greedy bool) {
	for _, x := range seeds {
		if cut == 0 || x.margin > 0 && x.margin < cut {
			cut, greedy = x.margin, x.greedy
		}
	}
	return cut, greedy
}

// hopeless reports whether a candidate is slower than a known plan, allowing for the error of the schedule's
// estimate.
func (v *view) hopeless(x *candidate, incumbent int64) bool {
	return perIteration(v.finder.p, x.time)-incumbent > incumbent/v.finder.params.overrated
}

// realize assembles, places and measures the current schedule. Places are packed by classes or, where it
// helps, by a search with bounded work. If the result fits the limit, addresses cost time, and no faster plan
// is known, realize also tries other packings and returns the best that fits.
func (v *view) realize(limit, work, incumbent int64) (*outcome, error) {
	pl, err := v.assemble(true)
	if err != nil {
		return nil, err
	}
	best, err := v.measured(pl, v.packing(pl, limit, work))
	estimate := perIteration(v.finder.p, v.schedule.queues.time)
	if err != nil || !v.finder.ladder.probes || best.pl.Footprint > limit || estimate > incumbent {
		return best, err
	}
	return v.repack(best, limit, estimate)
}

// packing chooses how to look for places for a plan.
func (v *view) packing(pl *plan.Plan, limit, work int64) place.Options {
	opt := place.Options{Rule: place.Tight, Capacity: limit, Seed: v.finder.request.Seed, Work: work}
	v.greedy = max(v.finder.pack, work) < place.LeastSteps*int64(len(pl.Instances))
	switch live, _ := pl.PeakLive(); {
	case len(v.m.choices) == 0: // places are all there is to choose
		opt.Rule, opt.Work = place.Search, 0
	case v.off.packing:
		opt.Rule = place.BestFit
	case v.greedy, live > limit: // no search finds places
		opt.Rule = place.Classes
	}
	return opt
}

// repack looks for places that cost less time, down to the estimate, which assumes that addresses cost none.
// It tries other rules, rules that leave memory unused for a while before it is reused, and no discards.
func (v *view) repack(best *outcome, limit, estimate int64) (*outcome, error) {
	options := []place.Options{{Rule: place.BestFit}, {Rule: place.FirstFit}}
	for rest := len(best.pl.Steps) / 2; rest > 0; rest /= 2 {
		options = append(options, place.Options{Rule: place.BestFit, Rest: int32(rest)})
	}
	for _, opt := range options {
		for _, discards := range []bool{true, false} {
			if best.time <= estimate+estimate/v.finder.params.noticeable {
				return best, nil
			}
			pl, err := v.assemble(discards)
			if err != nil {
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
	}
	return best, nil
}

// assemble makes a plan without places from the current schedule, with or without discards.
func (v *view) assemble(discards bool) (*plan.Plan, error) {
	d := v.schedule.decisions()
	if !discards {
		d.Absences = slices.DeleteFunc(d.Absences, func(x plan.Absence) bool { return x.How == plan.Discard })
	}
	pl, err := place.Assemble(v.p, d) // a schedule need not meet the host's limit
	if err != nil {
		return nil, err
	}
	pl.SectionBytes = v.section
	return pl, nil
}

// measured places and measures a plan.
func (v *view) measured(pl *plan.Plan, opt place.Options) (*outcome, error) {
	if _, err := place.Place(v.finder.ctx, v.p, pl, opt); err != nil {
		return nil, err
	}
	v.schedule.steps += v.finder.params.placing * int64(len(pl.Steps))
	x := &outcome{pl: pl, time: perIteration(v.finder.p, v.schedule.queues.time)}
	if v.finder.request.Evaluator != nil {
		me, err := v.finder.request.Evaluator.Evaluate(v.finder.ctx, v.finder.p, pl)
		if err != nil {
			return nil, fmt.Errorf("measure: %w", err)
		}
		x.time = me.StepTime
	}
	if f := v.finder; f.request.Budget == 0 || pl.Footprint <= f.request.Budget {
		f.measured(x, v)
	}
	return x, nil
}

// tighten lowers the limits at positions where instances lie above the limit that they should have met.
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
		v.schedule.memory.limit[o] = max(v.schedule.memory.limit[o]-above[o], v.m.least[o])
	}
}
