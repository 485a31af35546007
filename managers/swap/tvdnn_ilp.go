package swap

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// tvDNN's schedule as an integer linear program. The formulation is ours (tvdnn.go says what is public;
// tvdnn_model.go implements it).
//
// The plain form: x[s,k] = 1 if section s is in memory during kernel k; operands are in memory; the sizes of
// what is in memory during a kernel stay within the capacity; in[s,k] >= x[s,k] - x[s,k-1] are the sections
// fetched, likewise those that left; a kernel is delayed by as much as the copies alongside it take longer
// than it does; the sum of the delays is minimised. It has sections x kernels variables: over a million for a
// VGG-16 at batch 256 in sections of 2 MiB.
//
// What is solved: the same, with equivalent things aggregated. Kernels are cut into windows at the positions
// at which relevant intervals begin and end (those that cross an op above the capacity), evenly thinned if
// there are too many. Sections whose intervals span the same windows are equivalent, since all have one size
// (smaller last ones make the class's size their mean); so are all copies of a window. A[c,w] is the number
// of sections of class c that are absent throughout window w, an integer. A section that leaves is copied
// during the window before; one that returns is copied during the window at whose beginning its memory is
// taken. One that is still absent when the window begins that needs it is fetched then, and its whole copy is
// waited for.
//
//	minimise    sum of stall[w]  +  time of in on demand  +  little x time of all copies  +  much x excess[w]
//	such that   load[w] - sum over c of size[c] x A[c,w]  <=  capacity + excess[w]
//	            out[c,w] >= A[c,w] - A[c,w-1],  in[c,w] >= A[c,w-1] - A[c,w]
//	            stall[w] >= time of out[.,w+1] - time of window w,  stall[w] >= time of in[.,w] - time of window w
//
// where load[w] is the greatest load of the window's ops. With as many windows as ops and one section per
// class it is the plain form. Excess makes every model feasible, so that the best attempt is known if the
// capacity cannot be met. The number of windows is reduced until at most mostIntegers variables are left.
//
// Its linear relaxation is solved first. Counts are large, and rounding one up only takes more out of memory,
// so the rounded relaxation is nearly as good as an integer solution can be. If it is within the gap of its
// own bound, that is the answer; otherwise the solver starts from it, if the model is small. (Measured on a
// large one: with VGG-16 at 60 % the search took 14 s to get from 3.7 % of the bound to 2.8 %, and the plan
// was no faster.) The program says which sections are away. The clock (schedule.go) then decides at which ops
// they leave and return, which gave better results than the windows' own positions. The evaluator compares
// the result with the heuristic's, and the better one is the plan.
//
// Complexity: that of the solver, stopped at a gap, a number of nodes and counted work. Rejected: solving for
// whole buffers and cutting afterwards (it cannot know that half a buffer would be enough); keeping the
// windows' positions (a window is coarser than the ops at which memory runs short); a lower bound on step
// time from the program (for the same reason its value bounds nothing).

const (
	// ilpGap is the relative gap at which the program counts as solved, ilpWork and ilpNodes what all its
	// solves may take together.
	ilpGap   = 0.01
	ilpWork  = 40_000
	ilpNodes = 20_000
	// ilpSmall is the work of a relaxation beyond which the integers are not searched.
	ilpSmall = 1_000
	// ilpTime is a safety net: an answer that it cut short could not be repeated.
	ilpTime = 60 * time.Second
)

// improve solves the integer program within the budget and returns its plan, or the heuristic's if that is
// better.
func (s *sections) improve(ctx context.Context, h *plan.Plan, r plan.Request) (*plan.Plan, error) {
	if r.Budget <= 0 || len(h.Absences) == 0 {
		return h, nil
	}
	cancelled := func() (*plan.Plan, error) {
		h.Note("cancelled before the integer program was solved; this is the heuristic's plan")
		return h, nil
	}
	switch idle, err := s.holdsNothingUp(ctx, h, r); {
	case err != nil && ctx.Err() != nil:
		return cancelled()
	case err != nil:
		return nil, err
	case idle:
		h.Note("the heuristic's plan holds nothing up, so that there was nothing for the " +
			"integer program to gain")
		return h, nil
	}
	work := r.Work
	if work <= 0 {
		work = ilpWork
	}
	var note string
	var rounds int64
	pl, err := place.Within(ctx, s.p, r, place.Options{Work: placeWork},
		func(limit int64) (plan.Decisions, error) {
			// holes close slowly: each further round asks for a little more than they took
			limit -= limit / 2000 * rounds * rounds
			rounds++
			// a tighter limit, needed because of addresses, gets half of what is left
			share := (work + 1) / 2
			c, n, used, err := s.solve(ctx, limit, max(share, 1))
			work -= min(used, share)
			if err == nil && note == "" {
				note = n
			}
			d := decisions(c)
			for i := range d.Absences {
				d.Absences[i].Why = "chosen by the integer program"
			}
			return d, err
		})
	if err != nil {
		if ctx.Err() != nil {
			return cancelled()
		}
		h.Note("the integer program failed (%v); this is the heuristic's plan", err)
		return h, nil
	}
	better, err := s.better(ctx, pl, h, r)
	switch {
	case err != nil && ctx.Err() != nil:
		return cancelled()
	case err != nil:
		return nil, err
	}
	pl.Work, h.Work = pl.Work+h.Work, pl.Work+h.Work
	if !better {
		pl = h
		note += "; the heuristic's plan is no worse and is taken"
	}
	pl.Note("%s", note)
	return pl, nil
}

// holdsNothingUp reports whether a plan is within the budget and its copies are known to cost no time.
func (s *sections) holdsNothingUp(ctx context.Context, h *plan.Plan, r plan.Request) (bool, error) {
	if r.Evaluator == nil || s.p.Streams > 1 || !s.p.HasTimes || h.Footprint > r.Budget || ctx.Err() != nil {
		return false, nil
	}
	m, err := s.measure(ctx, h, r)
	return m.Stall == 0, err
}

// measure evaluates a plan of the sections.
func (s *sections) measure(ctx context.Context, pl *plan.Plan, r plan.Request) (plan.Measurement, error) {
	signed := *pl // an evaluator may look at the signature
	signed.Manager = s.Info().Name
	m, err := r.Evaluator.Evaluate(ctx, s.p, &signed)
	if err != nil {
		return m, fmt.Errorf("evaluate: %w", err)
	}
	return m, nil
}

// better reports whether plan a is better than b: within the budget first, then by step time if there is an
// evaluator, then by bytes moved, then by footprint.
func (s *sections) better(ctx context.Context, a, b *plan.Plan, r plan.Request) (bool, error) {
	fits := func(x *plan.Plan) bool { return x.Footprint <= r.Budget }
	if fits(a) != fits(b) {
		return fits(a), nil
	}
	if !fits(a) {
		return a.Footprint < b.Footprint, nil
	}
	if r.Evaluator != nil && ctx.Err() == nil {
		var times [2]int64
		for i, x := range []*plan.Plan{a, b} {
			m, err := s.measure(ctx, x, r)
			if err != nil {
				return false, err
			}
			times[i] = m.StepTime
		}
		if times[0] != times[1] {
			return times[0] < times[1], nil
		}
	}
	outA, inA := a.Moved()
	outB, inB := b.Moved()
	return cmp.Or(cmp.Compare(outA+inA, outB+inB), cmp.Compare(a.Footprint, b.Footprint)) < 0, nil
}

// solve builds and solves the program for a limit and decodes its answer.
func (s *sections) solve(ctx context.Context, limit, work int64) (c []idle, note string, used int64,
	err error) {
	h, _, err := s.heuristic(ctx, limit)
	if err != nil {
		return nil, "", 0, err
	}
	m := s.program(limit)
	if len(m.classes) == 0 {
		return nil, "nothing above the budget can leave", 0, nil
	}
	m.build()
	ints := 0
	for i := range m.classes {
		ints += m.classes[i].last - m.classes[i].first + 1
	}
	start := m.point(h)
	lp, err := milp.Solve(ctx, &m.model, milp.Options{LPOnly: true, MaxWork: max(work*3/4, 1),
		TimeLimit: ilpTime})
	// counts are large, so the relaxation rounded up, which memory allows, is nearly as good
	if lp.X != nil {
		if up := m.roundedUp(lp.X); m.model.Objective(up) < m.model.Objective(start) {
			start = up
		}
	} else if ctx.Err() != nil {
		return nil, "", lp.Work, err
	}
	used = lp.Work
	x, status, objective, bound := start, "not solved", m.model.Objective(start), lp.Bound
	switch near := objective-bound <= ilpGap*math.Abs(objective); {
	case near:
		status = "its relaxation rounded up is near enough"
	case lp.X != nil && lp.Work > ilpSmall:
		status = "its relaxation rounded up, which is all that its size allows"
	default:
		sol, err := milp.Solve(ctx, &m.model, milp.Options{Gap: ilpGap, MaxNodes: ilpNodes,
			MaxWork: max(work-lp.Work, 1), TimeLimit: ilpTime, Start: start})
		s.done += max(sol.Nodes, 1)
		used += sol.Work
		if sol.X == nil {
			if err == nil {
				err = fmt.Errorf("no solution: %s", sol.Status)
			}
			return nil, "", used, err
		}
		x, status, objective, bound = sol.X, sol.Status.String(), sol.Objective, max(sol.Bound, bound)
	}
	note = fmt.Sprintf("integer program over %d windows of %d ops with %d integers: %s, charged "+
		"%.3f ms, at least %.3f ms",
		len(m.time), len(s.p.Ops), ints, status, objective, max(bound, 0))
	c, _ = s.stick(m.decode(x), limit)
	return c, note, used, nil
}
