package swap

import (
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

// Swaps beside another plan.
//
// The problem: a plan that reruns regions of the forward pass, as checkpoints do, keeps each region's input
// in memory until the region runs again. If it does not fit, those inputs are what is left to move.
//
// The approach: what the plan holds at each op, and when each op begins under it, stand for the load and the
// clock of a training that keeps everything. AutoSwap then chooses among what the plan leaves in memory
// between the forward and the backward pass, by the best of its four scores. A tensor that a region reads
// comes back when the region runs.
//
// Complexity: that of AutoSwap's four scores, on fewer tensors. Rejected: planning swaps and reruns together
// (the region that a rerun needs in eager PyTorch depends on every other decision); swapping all inputs
// (those of the last regions would come back before they have left); AutoSwap's mix of scores (it takes more
// time than everything else here, and gains little).

// Beside returns swaps that bring the load of a plan for eager PyTorch down to limit bytes, or as far down as
// tensors saved for backward allow. Tensors that the plan itself keeps out of memory are not among them.
// There are no swaps if nothing can leave. The only error is that of the context.
func Beside(ctx context.Context, p *plan.Problem, pl *plan.Plan, limit int64) ([]plan.Absence, error) {
	s := &swapper{autoswap: autoswap{order: byMix, noSearch: true}, report: func(int64, int64) {}}
	s.link = linkUnder(p, pl)
	away := make([]bool, len(p.Buffers))
	for i := range pl.Absences {
		away[pl.Absences[i].Buffer] = true
	}
	eager := *p
	eager.EagerOnly = true
	ends := map[plan.BufferID]plan.OpID{}
	for _, g := range eager.Gaps(smallestBlock, 1) {
		end := g.Before
		if g.Before = wantedAt(p, pl, g); away[g.Buffer] || g.Before <= g.After+1 {
			continue
		}
		if s.tree.Above(int(g.After)+1, int(g.Before), limit) > 0 {
			s.add(p, g)
			ends[g.Buffer] = end
		}
	}
	if len(s.all) == 0 {
		return nil, nil
	}
	x, _, err := s.best(ctx, limit)
	for i := range x.absences {
		x.absences[i].Before = ends[x.absences[i].Buffer]
	}
	return x.absences, err
}

// wantedAt returns the position at which a plan first reads a gap's buffer again: the gap's end, or an
// earlier rerun.
func wantedAt(p *plan.Problem, pl *plan.Plan, g plan.Gap) plan.OpID {
	at := g.Before
	for i := range pl.Reruns {
		r := &pl.Reruns[i]
		if r.Before <= g.After || r.Before >= at {
			continue
		}
		reads := func(a plan.Access) bool { return a.Buffer == g.Buffer }
		if slices.ContainsFunc(r.Ops, func(o plan.OpID) bool {
			return slices.ContainsFunc(p.AccessesOf(o), reads)
		}) {
			at = r.Before
		}
	}
	return at
}

// linkUnder returns the link of a training that carries a plan out. Its load and its clock are those of the
// plan, without waits.
func linkUnder(p *plan.Problem, pl *plan.Plan) *link {
	n := len(p.Ops)
	l := &link{p: p, clock: make([]int64, n+1), load: make([]int64, n)}
	var live int64
	for _, i := range pl.Resident {
		live += pl.Instances[i].Size
	}
	at := plan.OpID(0)
	for i := range pl.Steps {
		switch st := &pl.Steps[i]; st.Kind {
		case plan.Alloc:
			at = max(at, st.Op)
			live += pl.Instances[st.Instance].Size
		case plan.Free:
			at = max(at, st.Op)
			live -= pl.Instances[st.Instance].Size
		case plan.Run:
			at = st.Op
			l.load[at] = max(l.load[at], live)
			l.clock[at+1] += p.DurationOf(pl, at) + p.Ops[at].Gap
		case plan.Again: // before the op at whose position it runs
			if int(at) < n {
				l.load[at] = max(l.load[at], live)
				l.clock[at+1] += p.DurationOf(pl, st.Op)
			}
		}
	}
	for i := range n {
		l.clock[i+1] += l.clock[i]
	}
	l.tree = curve.NewAreas(l.load)
	return l
}
