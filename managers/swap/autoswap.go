package swap

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// AutoSwap (Zhang et al., "Efficient Memory Management for GPU-based Deep Learning Systems", 2019, arXiv
// 1903.06631).
//
// Problem: given only when blocks are accessed, which of them should be on the host around the iteration's
// peak, and when should they be copied, so that memory stays within a limit and the iteration is delayed
// least?
//
// The authors' approach, followed here. Candidates are blocks of a MiB or more with two consecutive accesses
// on either side of the peak: at most one absence per block. Four scores order them: duration of absence
// minus both copies (DOA); that times size (AOA; divided by it if negative); the load above the limit, summed
// over the absence (WDOA); the same after subtracting the bytes of every block chosen before (SWDOA). Blocks
// are chosen in order until the peak is within the limit. The schedule "sticks to the limit": copies out in
// the order in which blocks become ready, one at a time; if the limit is exceeded before a copy is done, the
// iteration waits for it there; copies in backwards from the latest, each as late as possible, moved past the
// last op at which its memory would exceed the limit. autoswap mixes the four scores, each with mean 0 and
// deviation 1, with weights found by Bayesian optimisation (four unit vectors, then 20 more, kappa 5;
// bayes.go), one search per limit; it minimises the waiting that this arithmetic charges. The single scores
// are managers of their own.
//
// From time to positions: a copy out is planned to be done at the position of the op that begins no earlier,
// and there the memory is released and compute waits for it. A copy in is issued at the last position whose
// op begins no later than planned, and not before compute is there. As in the paper, what is charged at one
// op does not delay the clocks of the others; the simulator gives the true time.
//
// Complexity: O(candidates x log ops) per schedule with curve.Tree. SWDOA evaluates lazily,
// since a score only falls: a candidate that is still best when re-evaluated is best. With more than 512, the
// number of evaluations per pick is bounded.
//
// Rejected: the O(candidates³) loop of the published program; its quirks (curve.go has them, for comparison
// with its curves); waiting 4 or 6 ops after an access before the copy begins, which the authors needed
// because they did not know when an op is done; here the copy follows the op.
//
// Our reading: "load less limit" is the load above the limit. SWDOA is normalised like the others (the
// authors' program leaves it out). If two mixes are charged the same, the one that moves fewer bytes is
// taken. A block whose copy out would not be done before it is needed stays, unless the limit requires it to
// leave. Parameters could leave in the paper; here persistent buffers never do. Without a budget the limit is
// the lowest of 64 between the least and the whole peak from which on nothing is charged.

// order says how a manager orders candidates: by a score of curve.go, or by a mix.
type order uint8

const byMix = order(SWDOA) + 1

// autoswap is one of the five managers. The unexported switches are for tests of what each mechanism is
// worth.
type autoswap struct {
	order    order
	smallest int64 // least size of a candidate; 0 for 1 MiB
	noSearch bool  // try only the four scores
	noStick  bool  // schedule without regard to the limit
	noOrder  bool  // take candidates as they come, whatever their scores
}

// mostLooks bounds how often SWDOA re-evaluates candidates: with up to 512 of them it is exact.
const mostLooks = 1 << 18

// searches is the number of weights that Bayesian optimisation looks at beyond the four scores, kappa its
// taste for the unknown.
const (
	searches = 20
	kappa    = 5
)

// Info implements [plan.Manager].
func (a autoswap) Info() plan.Info {
	i := plan.Info{Name: "autoswap", After: "Zhang 2019", Family: plan.Swapping, Needs: traces.Accesses,
		Reading: "the load above the limit stands for load less limit; parameters stay; the mix of scores " +
			"is charged by the paper's own arithmetic",
		Summary: "Swaps blocks that are idle around the peak, by a priority that Bayesian optimisation " +
			"mixes from four scores."}
	if a.order < byMix {
		i.Name = "autoswap-" + [...]string{"doa", "aoa", "wdoa", "swdoa"}[a.order]
		i.Summary = "Swaps blocks that are idle around the peak, those of the greatest " +
			[...]string{"duration of absence first", "area of absence first", "load during the absence first",
				"load during the absence first, corrected for what was already taken"}[a.order] + "."
	}
	return i
}

// Plan implements [plan.Manager].
func (a autoswap) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	began, info := time.Now(), a.Info()
	if err := serves(p, info, r); err != nil {
		return nil, err
	}
	s := newSwapper(p, a)
	s.work, s.seed, s.report = r.Work, r.Seed, r.Report
	limit := r.Budget
	if limit <= 0 {
		limit = s.freeLimit(ctx)
	}
	var err error
	var notes []string
	pl, err := place.Within(ctx, p, r, place.Options{Work: placeWork},
		func(tighter int64) (plan.Decisions, error) {
			if tighter <= 0 {
				tighter = limit
			}
			d, note, err := s.decide(ctx, tighter)
			notes = append(notes, note)
			return d, err
		})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	if note := s.noteOf(pl, notes); note != "" {
		pl.Note("%s", note)
	}
	if !p.HasTimes {
		pl.Note("durations were not recorded, so that every copy looks as if it held the iteration up")
	}
	pl.Work += s.done
	return made(pl, info, r, began), nil
}

// swapper plans for one problem.
type swapper struct {
	autoswap
	*link
	all     []idle
	scratch []idle // of a schedule

	work, done int64
	seed       uint64
	report     func(done, total int64)
	chosen     [][]plan.Absence // of each call of decide
}

// peaksOf returns the op of the highest load of each iteration that the problem holds: one, or two of equal
// shape.
func peaksOf(p *plan.Problem) []plan.OpID {
	load := p.Load()
	n := max(p.Iterations, 1)
	peaks := make([]plan.OpID, 0, n)
	for k := range n {
		from, to := k*len(load)/n, (k+1)*len(load)/n
		at := from
		for i := from; i < to; i++ {
			if load[i] > load[at] {
				at = i
			}
		}
		peaks = append(peaks, plan.OpID(at))
	}
	return peaks
}

func newSwapper(p *plan.Problem, a autoswap) *swapper {
	s := &swapper{autoswap: a, link: newLink(p)}
	if s.smallest == 0 {
		s.smallest = smallestBlock
	}
	peaks := peaksOf(p)
	for _, g := range p.Gaps(s.smallest, 1) {
		if !slices.ContainsFunc(peaks, func(peak plan.OpID) bool {
			return g.After < peak && peak < g.Before
		}) {
			continue
		}
		s.add(p, g)
	}
	return s
}

// add makes a gap a candidate, with the scores that do not depend on the limit.
func (s *swapper) add(p *plan.Problem, g plan.Gap) {
	x := newIdle(p, g)
	x.scores[DOA] = float64(s.clock[x.before] - s.clock[x.after+1] - x.out - x.in)
	x.scores[AOA] = x.scores[DOA] * float64(x.size)
	if x.scores[DOA] < 0 {
		x.scores[AOA] = x.scores[DOA] / float64(x.size)
	}
	s.all = append(s.all, x)
}

// scoreFor completes the scores that depend on the limit, SWDOA only if it is the manager's order: see
// [swapper.correct].
func (s *swapper) scoreFor(ctx context.Context, limit int64) error {
	s.tree.Reset(s.load)
	for i := range s.all {
		x := &s.all[i]
		x.scores[WDOA] = s.tree.Above(x.after+1, x.before, limit)
	}
	if s.order == order(SWDOA) {
		return s.correct(ctx, limit)
	}
	return nil
}

// correct computes SWDOA for a limit. It costs far more than everything else here, and a mix of scores does
// not need it if one of the others alone is charged nothing.
func (s *swapper) correct(ctx context.Context, limit int64) error {
	s.tree.Reset(s.load)
	// The greedy order, lazily: heads holds candidates by the score that they last had.
	heads := newHeap(len(s.all))
	for i := range s.all {
		heads.push(int32(i), s.all[i].scores[WDOA])
	}
	looks := max(8, mostLooks/max(len(s.all), 1))
	for picks := 0; heads.len() > 0; picks++ {
		if picks%64 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		i, was := heads.pop()
		for k := 0; ; k++ {
			x := &s.all[i]
			now := was
			if was > 0 {
				now = s.tree.Above(x.after+1, x.before, limit)
			}
			if heads.len() == 0 || now >= heads.top() || k >= looks {
				x.scores[SWDOA] = now
				s.tree.Add(x.after+1, x.before, -x.size)
				break
			}
			heads.push(i, now)
			i, was = heads.pop()
		}
	}
	return nil
}

// schedule is a choice of candidates and its charge.
type schedule struct {
	absences []plan.Absence
	charged  int64 // nanoseconds
	moved    int64 // bytes
	within   bool
}

// better orders schedules: within the limit first, then by charge, then by bytes moved.
func (x schedule) better(y schedule) bool {
	if x.within != y.within {
		return x.within
	}
	return cmp.Or(cmp.Compare(x.charged, y.charged), cmp.Compare(x.moved, y.moved)) < 0
}

// by schedules the candidates in the order of a mix of scores.
func (s *swapper) by(w weights, mean, deviation *weights, limit int64) schedule {
	s.done++
	c := append(s.scratch[:0], s.all...)
	s.scratch = c
	for i := range c {
		c[i].score = 0
		for k, v := range w {
			c[i].score += v * (c[i].scores[k] - mean[k]) / deviation[k]
		}
	}
	if !s.noOrder {
		slices.SortStableFunc(c, func(a, b idle) int { return cmp.Compare(b.score, a.score) })
	}
	s.tree.Reset(s.load)
	taken := 0
	for ; taken < len(c) && s.tree.Peak() > limit; taken++ {
		s.tree.Add(c[taken].after+1, c[taken].before, -c[taken].size)
	}
	if s.noStick {
		limit = noLimit
	}
	var out schedule
	c, out.charged = s.stick(c[:taken], limit)
	out.within = s.tree.Peak() <= limit
	for i := len(c) - 1; i >= 0; i-- { // stick leaves them with the last needed first
		x := c[i].absence("idle around the peak")
		x.Blocking, x.Paced = true, true
		out.absences, out.moved = append(out.absences, x), out.moved+c[i].size
	}
	return out
}

// unit returns the weights of a single score.
func unit(s Score) weights {
	var w weights
	w[s] = 1
	return w
}

// best returns the best schedule for a limit that the manager's order allows, and says in a sentence how it
// was found.
func (s *swapper) best(ctx context.Context, limit int64) (schedule, string, error) {
	if err := s.scoreFor(ctx, limit); err != nil {
		return schedule{}, "", err
	}
	one := weights{1, 1, 1, 1}
	if s.order < byMix {
		return s.by(unit(Score(s.order)), &weights{}, &one, limit), "", nil
	}
	mean, deviation := weights{}, one
	for k := range SWDOA {
		mean[k], deviation[k] = s.spread(k)
	}
	var best, single schedule
	var bestSingle Score
	n := int64(0)
	first := []weights{unit(DOA), unit(AOA), unit(WDOA), unit(SWDOA)}
	search := int64(searches)
	if s.work > 0 {
		search = min(max(s.work-dims, 0), 500)
	}
	if s.noSearch {
		search = 0
	}
	corrected := false
	var err error
	maximise(ctx, first, search, kappa, s.seed, func(w weights) (float64, bool) {
		if w[SWDOA] != 0 && !corrected {
			if err = s.correct(ctx, limit); err != nil {
				return math.Inf(-1), true
			}
			mean[SWDOA], deviation[SWDOA] = s.spread(SWDOA)
			corrected = true
		}
		x := s.by(w, &mean, &deviation, limit)
		if n == 0 || x.better(best) {
			best = x
			if n < dims {
				single, bestSingle = x, Score(n)
			}
		}
		n++
		s.report(n, dims+search)
		return -float64(x.charged) / 1e6, x.charged == 0
	})
	if n == 0 { // cancelled before anything was scheduled; otherwise the best so far counts
		return schedule{}, "", cmp.Or(err, ctx.Err())
	}
	switch gain := single.charged - best.charged; {
	case single.charged == 0:
		return best, fmt.Sprintf("%s alone is charged no waiting", bestSingle), nil
	case gain > 0:
		return best, fmt.Sprintf("the mix of scores is charged %.3f ms of waiting, %.3f ms less than "+
			"the best single score, %s",
			float64(best.charged)/1e6, float64(gain)/1e6, bestSingle), nil
	}
	return best, fmt.Sprintf("no mix of scores is charged less waiting than the best "+
		"single score, %s: %.3f ms",
		bestSingle, float64(best.charged)/1e6), nil
}

// spread returns mean and deviation of a score over the candidates.
func (s *swapper) spread(k Score) (mean, deviation float64) {
	n := float64(max(len(s.all), 1))
	for i := range s.all {
		mean += s.all[i].scores[k] / n
	}
	for i := range s.all {
		d := s.all[i].scores[k] - mean
		deviation += d * d / n
	}
	if deviation = math.Sqrt(deviation); deviation == 0 || math.IsInf(deviation, 0) {
		deviation = 1
	}
	return mean, deviation
}

// decide plans for a limit on live bytes.
func (s *swapper) decide(ctx context.Context, limit int64) (plan.Decisions, string, error) {
	x, note, err := s.best(ctx, limit)
	s.chosen = append(s.chosen, x.absences)
	return plan.Decisions{Absences: x.absences}, note, err
}

// noteOf finds the note of the decisions that became the plan.
func (s *swapper) noteOf(pl *plan.Plan, notes []string) string {
	for k := range s.chosen {
		if slices.Equal(s.chosen[k], pl.Absences) {
			return notes[k]
		}
	}
	return ""
}

// freeSteps is the number of limits between the least and the whole peak among which freeLimit looks.
const freeSteps = 64

// freeLimit returns the lowest limit from which on nothing is charged.
func (s *swapper) freeLimit(ctx context.Context) int64 {
	s.tree.Reset(s.load)
	top := s.tree.Peak()
	for i := range s.all {
		s.tree.Add(s.all[i].after+1, s.all[i].before, -s.all[i].size)
	}
	floor, limit := s.tree.Peak(), top
	for k := int64(freeSteps) - 1; k >= 0; k-- {
		lower := floor + int64(float64(top-floor)*float64(k)/freeSteps)
		x, _, err := s.best(ctx, lower)
		if err != nil || x.charged > 0 || !x.within {
			break
		}
		limit = lower
	}
	return limit
}
