package joint

import (
	"math"
	"math/rand/v2"

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

// planWithin plans for one limit, from seeds if there are any, otherwise from scratch. incumbent is the time
// of a known plan that fits. planWithin returns the plans that were made, and the candidate from which
// neighbouring limits can start.
func (v *view) planWithin(
	limit, target, incumbent int64,
	seeds []*candidate,
) (made []*outcome, first *candidate, err error) {
	t := v.task
	v.rnd = rand.New(rand.NewPCG(t.request.Seed, uint64(limit)))
	v.target = target*int64(v.p.Iterations) + int64(v.p.Iterations) - 1
	c := v.newCut(limit, seeds)
	v.applyMargin(limit, c.margin)
	share := t.rungWork / int64(t.versions)
	v.until = v.schedule.steps + share
	first = v.search(seeds, share)
	at := first
	var best *outcome // the best that fits
	for round := range c.rounds {
		if round > 0 {
			at = v.repair(at, share/t.grid.mend)
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
		if miss <= 0 && perIteration(t.p, at.time) <= incumbent {
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
		tightens := round < 2 && v.m.n <= t.params.tightenOps
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
	step := max(limit-v.m.persistent, 0) / v.task.params.marginSteps
	c := cut{
		step: step, tolerance: step / v.task.params.nearMargins, limit: limit,
		rounds: v.task.grid.rounds, params: &v.task.params,
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
		return v.task.pack / v.task.params.firstPack
	}
	return v.task.pack
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
	return perIteration(v.task.p, x.time)-incumbent > incumbent/v.task.params.overrated
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
