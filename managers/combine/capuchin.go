package combine

import (
	"context"
	"math"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Capuchin (Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian: "Capuchin: Tensor-based GPU Memory Management for
// Deep Learning", ASPLOS 2020).
//
// The method. A measured execution records when each tensor is accessed. Two consecutive accesses make a
// pair: after the evicted-access the tensor may leave, before the back-access it must be present again. Its
// free time FT is the time between the two minus both copies. Tensors are swapped first, the longest free
// time first, as long as an in-trigger (an earlier moment at which the copy back is issued) hides both
// copies. When no further swap can be hidden, the rest is saved by whatever costs least: recomputing the
// tensor with the most memory saved per second (MSPS = bytes / recompute time), with costs recomputed after
// each choice, or a visible swap, if that is cheaper. Running the plan then shows which tensors were still on
// their way at their back-access; their in-triggers are moved earlier, and so on over iterations. Memory is
// released when a copy out is done. Recomputed tensors that are intermediate results of another chain are
// kept once they are made, as memory allows.
//
// Our reading, where our sources (summaries of the paper, not its code, which is not public) are silent: the
// link is one lane each way, and a swap hides only if it finds its time on the lane beside the swaps chosen
// before (lanes.go); only pairs where the load is above the limit are candidates; an in-trigger is moved by
// the measured lateness, not by a fixed share of the swap time, and only as far as memory allows; if all of
// that does not meet the budget, swapped tensors leave earlier and return later, at the price of stalls, as
// if swapped on demand; in the end, what later choices have made more expensive to recompute than to swap is
// swapped; and if the scratch of chains prevents meeting the budget, swaps alone are tried. The evaluator
// does the measuring; see timing.go.
//
// Without a budget it makes every swap that hides and lowers the peak, and recomputes nothing.
//
// Complexity: O(gaps log gaps + ops) per pass, a few passes for scratch that turned out larger than
// estimated, and one evaluation per round of feedback. Work counts evaluations. Rejected: making the profile
// from a run that swaps on demand, which gives the same access times once its stalls are subtracted.

// capuchin is the manager; the fields switch mechanisms off for tests.
type capuchin struct {
	noFeedback, noRecompute, noSwap bool
}

// Info implements [plan.Manager].
func (capuchin) Info() plan.Info {
	return plan.Info{Name: "capuchin", After: "Peng 2020", Family: plan.Combining, Needs: traces.Dataflow,
		Reading: "Capuchin's code is not public: how its swaps share the link, and by how much " +
			"in-triggers move, is our reading.",
		Summary: "Swaps what hides behind compute, longest free time first, then recomputes what saves " +
			"most bytes per second; corrects prefetches as measured."}
}

// Plan implements [plan.Manager].
func (m capuchin) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var s *selection
	var work int64
	pl, err := run(ctx, p, r, m.Info(), func(v *view) error {
		at, _, err := measure(ctx, v.p, r.Evaluator, plan.Decisions{})
		if err == nil {
			work++
			s = newSelection(v, at)
		}
		return err
	}, func(_ *view, limit int64) (plan.Decisions, error) {
		d, w, err := m.decide(ctx, s, r, limit)
		work += w
		r.Report(work, work)
		return d, err
	})
	if err != nil {
		return nil, err
	}
	pl.Work += work
	if r.Budget > 0 && pl.Footprint > r.Budget {
		pl.Note("Neither swaps nor recomputing what can be run again brings the footprint within the budget.")
	}
	return pl, nil
}

// decide plans for a limit on live bytes, and returns also the evaluations made.
func (m capuchin) decide(ctx context.Context, s *selection, r plan.Request, limit int64) (plan.Decisions,
	int64, error) {
	d, live, err := m.choose(ctx, s, limit)
	if err != nil || m.noFeedback || len(d.Absences) == 0 {
		return d, 0, err
	}
	return s.feedback(ctx, r, d, max(live, limit))
}

// choose makes the choices for a limit, and returns also the peak of live bytes.
func (m capuchin) choose(ctx context.Context, s *selection, limit int64) (plan.Decisions, int64, error) {
	if limit <= 0 { // the lowest peak that costs nothing, then only the swaps that it takes
		s.reset(math.MinInt64 / 2)
		m.free(s)
		limit = s.tree.Peak()
		s.reset(limit)
		m.free(s)
		d, live := s.decisions()
		return d, live, ctx.Err()
	}
	s.reset(limit)
	m.free(s)
	var d plan.Decisions
	var live int64
	for round := 0; round < 4; round++ {
		for _, w := range []ways{{swap: !m.noSwap, recompute: !m.noRecompute},
			{swap: !m.noSwap, recompute: !m.noRecompute, anyScratch: true}} {
			if err := s.pay(ctx, s.byFreeTime(), w); err != nil {
				return d, live, err
			}
			s.stretch()
		}
		d, live = s.decisions()
		if live <= limit {
			break
		}
		s.limit -= live - limit // scratch was larger than thought
	}
	if live > limit && !m.noRecompute { // scratch prevents it: swap on demand only
		m.noRecompute = true
		if passive, l, err := m.choose(ctx, s, limit); err != nil || l < live {
			return passive, l, err
		}
	}
	if live > limit {
		return d, live, nil
	}
	s.limit = limit
	if err := s.together(ctx); err != nil {
		return d, live, err
	}
	if !m.noSwap {
		if err := s.revise(ctx); err != nil {
			return d, live, err
		}
	}
	if shared, l := s.decisions(); l <= limit {
		return shared, l, nil
	}
	s.apart()
	d, live = s.decisions()
	return d, live, nil
}

// free makes the choices that cost no time.
func (m capuchin) free(s *selection) {
	order := s.byFreeTime()
	s.discards(order)
	if !m.noSwap {
		s.hidden(order)
	}
}

// rounds is how often the in-triggers are corrected if the request sets no work.
func rounds(r plan.Request, ops int) int64 {
	if r.Work > 0 {
		return r.Work
	}
	return min(8, max(2, 40_000/int64(ops+1)))
}

// feedback measures decisions and moves the in-triggers of swaps that came too late, round by round, and
// returns the fastest decisions found whose live bytes stay below live.
func (s *selection) feedback(ctx context.Context, r plan.Request, d plan.Decisions,
	live int64) (plan.Decisions, int64, error) {
	var best plan.Decisions
	var fastest, work int64
	for range rounds(r, len(s.load)) {
		at, bytes, err := measure(ctx, s.p, r.Evaluator, d)
		if err != nil {
			switch {
			case ctx.Err() == nil:
				return d, work, err
			case work == 0: // decided, if not corrected
				best = d
			}
			return best, work, nil
		}
		if bytes <= live && (work == 0 || at.step < fastest) {
			best, fastest = d, at.step
		}
		work++
		if !s.correct(d, at) {
			break
		}
		d, _ = s.decisions()
	}
	return best, work, nil
}

// correct moves in-triggers by the lateness of their copies back, and releases to when their copies out are
// done, and reports whether any moved.
func (s *selection) correct(d plan.Decisions, at *profile) bool {
	moved := false
	for i := range d.Absences {
		x := &d.Absences[i]
		if x.How != plan.Swap {
			continue
		}
		// compute waited, and reached everything later by as much
		if late := at.out[i] - at.reach[x.Release]; late > 0 {
			to, _ := slices.BinarySearch(at.reach[:x.Fetch], at.out[i]+late)
			moved = s.later(s.gapOf(x), plan.OpID(to)) || moved
		}
		if late := at.in[i] - at.need[i]; late > 0 {
			due := at.reach[x.Fetch] - late
			to := sort.Search(int(x.Fetch), func(k int) bool { return at.reach[k+1] > due })
			moved = s.sooner(s.gapOf(x), plan.OpID(to)) || moved
		}
	}
	return moved
}
