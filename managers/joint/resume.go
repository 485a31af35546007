package joint

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Searching on from a plan, of another manager or our own, at the caller's budget (seeds.go says when and
// why). A plan's absences become choices, and where its values return becomes the positions of timing.go;
// then comes simulated annealing as in search.go, with the moves of retime.go beside those of moves.go.

// deepWork returns the counted work of one cool search: that of a rung, or if the caller leaves the work to
// us, at least what some thousands of schedules take.
func (v *view) deepWork() int64 {
	t := v.task
	if t.request.Work > 0 || t.large() {
		return t.rungWork
	}
	return max(t.rungWork, t.params.deepSchedules*int64(v.m.n+len(v.m.gaps)))
}

// anneal says how to search from a plan. Its heat at the start is a share of the step time plus a multiple of
// what each absence costs on average.
type anneal struct {
	share, absences float64
	round           int   // makes searches differ
	work            int64 // counted work of the search
	pack            int64 // counted work of a search for places
}

// slack returns the heat as a share of the time of the candidate that the search starts from.
func (a *anneal) slack(v *view, x *candidate) float64 {
	absent := 0
	for _, c := range x.choice {
		if c != keep {
			absent++
		}
	}
	if a.absences == 0 || absent == 0 || x.time <= v.m.baseTime {
		return a.share
	}
	return a.share + a.absences*float64(x.time-v.m.baseTime)/float64(absent)/float64(x.time)
}

// begin begins a search from a plan at the caller's budget. Positions are the default ones until it is read.
func (v *view) begin(seed uint64) {
	limit := v.task.request.Budget
	v.rnd = rand.New(rand.NewPCG(seed, uint64(limit)))
	v.target = (v.task.bound(limit)+1)*int64(v.p.Iterations) - 1
	v.applyMargin(limit, 0)
	v.cover.excess()
	v.schedule.setting.timing = newTiming(v.m)
}

// searchOn improves a plan. Of another manager's it takes over the absences as choices, but positions are our
// own. If addresses take the result above the budget, it repairs the plan once under a lower limit.
func (v *view) searchOn(from *outcome, a anneal) {
	s, limit := v.schedule, v.task.request.Budget
	v.begin(v.task.request.Seed + uint64(a.share*1e6) + uint64(a.round))
	v.returns = a.round%2 == 1 // every other search leaves those moves out: they take work from the others
	defer func() { s.setting.timing = nil }()
	if from.of != nil && from.of.section < v.section {
		s.choosePerSection(v.sections, from.of.m, from.at)
	} else {
		v.read(from.pl)
	}
	if from.of == v.version {
		s.setting.lead, s.setting.hasten = from.at.lead, from.at.hasten
	}
	x := v.estimate()
	s.take(&x)
	slack, work := a.slack(v, &x), a.work
	for range 2 {
		v.improve(&x, s.steps+work, slack)
		s.runAs(&x)
		if x.over > 0 || v.found.best != nil && perIteration(v.task.p, x.time) > v.found.best.time {
			return
		}
		y, err := v.realize(limit, a.pack, math.MaxInt64)
		if err != nil {
			return
		}
		v.found.note(y)
		if y.pl.Footprint <= limit {
			return
		}
		v.applyMargin(limit, y.pl.Footprint-limit)
		x, work = v.estimate(), work/2
		s.take(&x)
	}
}

// read sets the schedule's choices and positions from a plan.
func (v *view) read(pl *plan.Plan) {
	s, m := v.schedule, v.m
	for g := range s.setting.choice {
		s.setting.choice[g] = keep
	}
	for i := range m.variants {
		s.setting.setWay(int(m.variants[i].op), m.fast[m.variants[i].op])
	}
	for i := range m.variants {
		if o := m.variants[i].op; pl.Variants != nil && pl.Variants[o] != m.fast[o] {
			s.setting.setWay(int(o), pl.Variants[o])
		}
	}
	needed := map[plan.OpID]bool{} // by position, whether a value recomputed there is needed at once
	for k := range pl.Absences {
		if x := &pl.Absences[k]; x.How == plan.Recompute && x.Fetch == x.Before {
			needed[x.Before] = true
		}
	}
	timing := s.setting.timing
	for k := range pl.Absences {
		x := &pl.Absences[k]
		g := m.gapOf(x.Buffer, x.Before)
		switch {
		case g < 0 || m.gaps[g].dead:
		case x.How == plan.Swap && m.gaps[g].canSwap:
			s.setting.choice[g] = swap
		case x.How == plan.Recompute && m.gaps[g].canRunAgain(x.Fetch):
			s.setting.choice[g], timing.retain[g], timing.leave[g] = recompute, x.Fetch, x.Release
			if !needed[x.Fetch] { // otherwise this chain would not run
				timing.remake[g] = x.Fetch
			}
		}
	}
	for i := range pl.Reruns {
		for _, l := range pl.Reruns[i].Loads {
			if g := m.gapOf(l.Buffer, pl.Reruns[i].Before); g >= 0 {
				timing.source[g] = loaded
			}
		}
	}
	s.setting.lead, s.setting.hasten = 0, false
}

// choosePerSection sets the schedule's choices from those of a candidate for whole buffers. sections has the
// first section of each.
func (s *schedule) choosePerSection(sections []plan.BufferID, whole *model, c *candidate) {
	m := s.m
	all := *c
	all.choice, all.timing = slices.Clone(s.setting.choice), newTiming(m)
	for b := range whole.p.Buffers {
		from, to := whole.first[b], whole.first[b+1]
		for k := sections[b]; k < sections[b+1]; k++ {
			at := m.first[k]
			if m.first[k+1]-at != to-from {
				continue
			}
			copy(all.choice[at:], c.choice[from:to])
			if c.timing != nil {
				all.timing.copyGaps(at, c.timing, from, to)
			}
		}
	}
	s.choose(&all)
}
