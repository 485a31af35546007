package recompute

import (
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Regions that cannot run again as they are, for eager.go: one grows, runs fewer ops, or keeps something.

// mend changes what keeps regions that run in one go from running: one grows, or something is kept.
func (e *eager) mend(rs []region, x plan.OpID, err error) {
	r := &rs[0]
	var missing *chain.Missing
	if errors.As(err, &missing) {
		for i := range rs {
			if rs[i].lo <= missing.Op && missing.Op < rs[i].hi {
				r = &rs[i]
			}
		}
	}
	if !errors.As(err, &missing) || missing.Buffer == plan.NoBuffer || len(missing.Makers) == 0 {
		why := cannotRun
		if missing == nil || missing.Buffer != plan.NoBuffer {
			why = "their region cannot run again as a whole"
		}
		e.shed(r, x, missing, why)
		return
	}
	for i := range e.swaps { // a swapped input comes back in time, or stays
		if s := &e.swaps[i]; s.Buffer == missing.Buffer {
			if s.Release <= x && s.Fetch > x {
				s.Fetch = x
				s.Joined = 0
				return
			}
			e.swaps = slices.Delete(e.swaps, i, i+1)
			e.kept["a region that runs again reads them"]++
			return
		}
	}
	lo, hi := min(r.lo, missing.Makers[0]), max(r.hi, missing.Makers[len(missing.Makers)-1]+1)
	pair := plan.PairAt(e.pairs, r.lo)
	most := max(int(pair.Turn-pair.Begin)/4, 2*r.length, 8)
	runs := !slices.ContainsFunc(missing.Makers, func(i plan.OpID) bool { return !e.p.Ops[i].Rerunnable })
	if r.grown++; pair.Begin <= lo && hi <= pair.Turn && int(hi-lo) <= most && r.grown <= maxGrowth &&
		(lo < r.lo || hi > r.hi) && runs {
		r.lo, r.hi = lo, hi
		return
	}
	for k := range e.drops { // the input is kept instead
		if d := &e.drops[k]; d.Buffer == missing.Buffer {
			d.Buffer = plan.NoBuffer
			e.kept["a region that runs again reads them"]++
			return
		}
	}
	if !runs {
		e.shed(r, x, missing, cannotRun)
		return
	}
	e.keep(r, "their region would be too large a part of the forward pass")
}

// shed makes a region run without an op that cannot run again. At first it reruns only what the dropped
// tensors need. If they need that op all the same, the first tensors computed from its result are kept.
func (e *eager) shed(r *region, x plan.OpID, missing *chain.Missing, why string) {
	if missing == nil {
		e.keep(r, why)
		return
	}
	if !r.sparse {
		r.sparse = true
		return
	}
	dropped := map[plan.BufferID]int32{}
	for _, k := range r.drops {
		dropped[e.drops[k].Buffer] = k
	}
	lost := map[plan.BufferID]bool{} // computed from its result, and not in memory
	kept := false
	for i := missing.Op; i < r.hi; i++ {
		accesses := e.p.AccessesOf(i)
		if i > missing.Op && !slices.ContainsFunc(accesses, func(a plan.Access) bool {
			return a.Mode.Reads() && lost[a.Buffer]
		}) {
			continue
		}
		for _, a := range accesses {
			if !a.Mode.Writes() {
				continue
			}
			if k, ok := dropped[a.Buffer]; ok {
				if e.drops[k].Buffer != plan.NoBuffer {
					e.drops[k].Buffer = plan.NoBuffer
					e.kept[why]++
					kept = true
				}
			} else if !e.there(a.Buffer, x) {
				lost[a.Buffer] = true
			}
		}
	}
	if !kept {
		e.keep(r, why)
	}
}

// keep gives a region up.
func (e *eager) keep(r *region, why string) {
	for _, k := range r.drops {
		e.drops[k].Buffer = plan.NoBuffer
		e.kept[why]++
	}
}
