package recompute

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimal rematerialisation.
//
// Problem: choose what to keep and what to run again so that the extra time is least within the budget, on any graph, with the times that ops take.
//
// Way chosen: Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez, "Checkmate: Breaking the Memory Wall with Optimal Tensor
// Rematerialization", MLSys 2020, arXiv 1910.02653: a mixed-integer program over stages, one for each step of the frontier, with R (what runs in the stage) and
// S (what is kept from the stage before), partitioned so that R is triangular. checkmate solves it; checkmate-lp solves its linear relaxation and rounds in two
// phases: S at a threshold, then the least R that makes S correct.
//
// Our reading. The exact program has n^2 variables for n ops; ours has one stage for each group of ops, see stages.go for groups and program.go for rows. The
// paper rounds S at 0.5 and solves the relaxation for (1-eps) of the budget, since rounding overshoots; we try five thresholds, measure the true peak of each
// and solve again for a budget shifted by the error, so that eps is found instead of given. Beside, S of the first stage alone is rounded (what the forward
// pass leaves), and what is made again is kept from then on: S of later stages is often a fraction spread over many stages, which rounding turns into
// reruns of the same ops in each. The forward pass runs nothing again.
//
// Both begin with Chen's segments in the same view, and take nothing worse. The mixed-integer program starts from the best that segments and rounding found and
// stops at a gap, at a number of nodes, at counted work or, as a safety net, at the clock. What was found under one limit is considered again under the
// next, when addresses take the plan above its budget; where the relaxation is not solved within its limits, a view of half as many groups is taken. A note of the plan says where its decisions come from.
//
// Complexity: groups^2 / 2 whole variables and groups x readers continuous ones, as many rows, each with up to one term an item.
// Rejected: the exact program for small networks beside the coarse one: with as many groups as ops that make activations the coarse one loses only what is
// within a group; dynamic programming over chains (Rockmate, treeverse), which needs a chain.
type checkmate struct {
	whole  bool // solve the mixed-integer program, not only its relaxation
	groups int
	// only takes nothing but what the whole program says, and single tries the threshold 0.5 and the given budget alone. For the ablation.
	only, single bool
}

// The sizes of the coarse views, and what bounds the search. A unit of the solver's work is about 0.2 ms on a quiet core.
const (
	groupsWhole   = 40
	groupsRelaxed = 56
	wholeWork     = 40_000
	relaxedWork   = 20_000
	totalWork     = 60_000 // for all programs of one plan: beyond it tighter limits choose among what is known
	wholeNodes    = 2_000
	wholeGap      = 0.01
	wholeTime     = 5 * time.Minute
)

// Checkmate returns the manager "checkmate": the mixed-integer program.
func Checkmate() plan.Manager { return checkmate{whole: true, groups: groupsWhole} }

// CheckmateLP returns the manager "checkmate-lp": the linear relaxation with two-phase rounding.
func CheckmateLP() plan.Manager { return checkmate{groups: groupsRelaxed} }

// Info implements [plan.Manager].
func (m checkmate) Info() plan.Info {
	i := plan.Info{Name: "checkmate-lp", After: "Jain 2020", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: fmt.Sprintf("stages are groups of ops, at most %d, and the budget of the program is shifted until the rounded plan meets the real one.", m.groups),
		Summary: "Relaxes the choice of what to keep in each stage to a linear program, rounds what is kept and runs again what that takes."}
	if m.whole {
		i.Name, i.Summary = "checkmate", "Solves what to keep and what to run again in each stage as a mixed-integer program."
		i.Reading = fmt.Sprintf("stages are groups of ops, at most %d; the forward pass runs nothing again.", m.groups)
	}
	return i
}

// Plan implements [plan.Manager]. Request.Work bounds the solver's counted work for one mixed-integer program.
func (m checkmate) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var c *roundings
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		c = &roundings{m: m, s: newStages(p, b, m.groups), most: r.Work}
		return func(limit int64) (plan.Decisions, int64, error) {
			if limit <= 0 || len(c.s.acts) == 0 {
				return plan.Decisions{}, 0, nil
			}
			return c.decide(ctx, limit)
		}
	})
	if err == nil && c.best.how != "" {
		pl.Note("%d groups in %d stages; %s.", c.s.groups(), c.s.count(), c.best.how)
		if c.failed != "" {
			pl.Note("%s", c.failed)
		}
	}
	return pl, err
}

// roundings looks for the best decisions over several solutions.
type roundings struct {
	m    checkmate
	s    *stages
	most int64 // Request.Work

	limit int64
	best  candidate
	view  candidate                 // the best that the coarse view can express
	kept  func(v int32, t int) bool // of view
	spent int64

	known  []known // what the solver came to under other limits
	total  int64   // the solver's work under all limits
	solves int     // of the mixed-integer program

	failed string // a sentence, where the solver had no answer
}

// known is a rounded solution.
type known struct {
	kept func(v int32, t int) bool
	how  string
}

// candidate is what decisions come to.
type candidate struct {
	chain.Result
	peak int64
	how  string
}

// beats reports whether x is the better choice: within the limit, then faster; else lower.
func (x *candidate) beats(y *candidate, limit int64) bool {
	switch fits, did := x.peak <= limit, y.peak <= limit; {
	case y.how == "" || fits && !did:
		return true
	case fits && did:
		return x.Time < y.Time || x.Time == y.Time && x.peak < y.peak
	}
	return x.peak < y.peak && x.peak > limit && y.peak > limit
}

// learn considers a rounded solution now and under every later limit.
func (c *roundings) learn(kept func(v int32, t int) bool, format string, args ...any) (peak int64) {
	how := fmt.Sprintf(format, args...)
	c.known = append(c.known, known{kept, how})
	return c.consider(kept, "%s", how)
}

// work adds what the solver spent.
func (c *roundings) work(n int64) {
	c.spent += n
	c.total += n
}

// consider measures what keeping comes to and remembers it if it is better.
func (c *roundings) consider(kept func(v int32, t int) bool, format string, args ...any) (peak int64) {
	r, _ := c.s.b.PlanPossible(c.s.drops(kept), nil, 0)
	x := candidate{Result: r, peak: c.s.b.PeakLive(r.Absences, r.Reruns), how: fmt.Sprintf(format, args...)}
	if x.beats(&c.best, c.limit) {
		c.best = x
	}
	if x.beats(&c.view, c.limit) {
		c.view, c.kept = x, kept
	}
	return x.peak
}

// shifts bounds how often the program's budget is shifted to meet the real one.
const shifts = 4

func (c *roundings) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	c.limit, c.best, c.view, c.spent = limit, candidate{}, candidate{}, 0
	if c.consider(func(int32, int) bool { return true }, "everything is kept"); c.best.peak <= limit {
		return plan.Decisions{}, 0, nil
	}
	if !c.m.only && !c.m.single {
		if err := c.segments(ctx); err != nil {
			return plan.Decisions{}, c.spent, err
		}
	}
	for _, k := range c.known {
		c.consider(k.kept, "%s", k.how)
	}
	budget, good := limit, limit
	for range shifts {
		if c.m.only || c.total > totalWork {
			break
		}
		peak, err := c.relaxed(ctx, budget)
		if errors.Is(err, errCoarsest) {
			break
		}
		if err != nil {
			return plan.Decisions{}, c.spent, err
		}
		if peak == 0 { // in another view now
			continue
		}
		next := budget + (limit-peak)*3/4 // the coarse view is pessimistic
		if peak > limit {                 // rounding overshot
			next = budget + limit - peak - limit/200
		} else {
			good = budget
		}
		if c.m.single || next <= 0 || peak <= limit && next-budget < limit/200 {
			break
		}
		budget = next
	}
	budget = good
	for range 2 {
		if !c.m.whole || c.total > totalWork && c.solves > 0 {
			break
		}
		c.solves++
		peak, err := c.solved(ctx, budget)
		if err != nil {
			return plan.Decisions{}, c.spent, err
		}
		if peak <= limit || c.m.only || c.best.peak <= limit {
			break
		}
		budget += limit - peak
	}
	return plan.Decisions{Absences: c.best.Absences, Reruns: c.best.Reruns}, c.spent, nil
}

// segments considers Chen's segments, cut between ops and, for the program to start from, between groups.
func (c *roundings) segments(ctx context.Context) error {
	seg := newSegmenter(c.s.p, c.s.b)
	d, w, err := seg.decide(ctx, c.limit)
	if err != nil {
		return err
	}
	c.spent += w
	const words = "nothing that the program found is better than %d segments"
	x := candidate{peak: c.s.b.PeakLive(d.Absences, d.Reruns), how: fmt.Sprintf(words, seg.chosen)}
	x.Absences, x.Reruns, x.Time = d.Absences, d.Reruns, c.s.b.TimeOf(d.Reruns)
	if x.beats(&c.best, c.limit) {
		c.best = x
	}
	for k := 2; k <= c.s.groups(); k += 1 + k/6 {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.consider(c.s.segments(k), words, k)
	}
	return nil
}

// fail notes that the solver had no answer: what was found without it stands.
func (c *roundings) fail(what string, err error) {
	if c.failed = fmt.Sprintf("The solver had no answer to the %s within its limits.", what); err != nil {
		c.failed = fmt.Sprintf("The solver had no answer to the %s: %v.", what, err)
	}
}

// coarser takes a view of half as many groups, for which the solver may have an answer.
func (c *roundings) coarser(ctx context.Context) error {
	n := c.s.groups() / 2
	if n < 8 {
		return errCoarsest
	}
	c.s = newStages(c.s.p, c.s.b, n)
	c.known, c.view, c.kept = nil, candidate{}, nil
	c.consider(func(int32, int) bool { return true }, "everything is kept")
	return c.segments(ctx)
}

// errCoarsest says that there is no coarser view.
var errCoarsest = errors.New("the solver has no answer even in the coarsest view")

// relaxed solves the linear relaxation and rounds it at several thresholds; the peak returned is that of the threshold that came nearest to the limit from
// below, or else nearest; 0 where the solver had no answer and the view is a coarser one now.
func (c *roundings) relaxed(ctx context.Context, budget int64) (int64, error) {
	q := newProgram(c.s, budget)
	sol, err := milp.Solve(ctx, &q.m, milp.Options{LPOnly: true, MaxWork: relaxedWork, TimeLimit: wholeTime, Solver: milp.SolverWASM})
	c.work(sol.Work)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil || sol.X == nil {
		c.fail("relaxation", err)
		return 0, c.coarser(ctx)
	}
	thresholds := []float64{0.5, 0.35, 0.65, 0.2, 0.8}
	if c.m.single {
		thresholds = thresholds[:1]
	}
	var nearest int64
	for k, th := range thresholds {
		kept := q.rounded(sol.X, th)
		peak := c.learn(kept, "the relaxation rounded at %g", th)
		if !c.m.single {
			begin := func(v int32) bool { return kept(v, 0) }
			c.learn(c.s.once(begin), "the relaxation of what the forward pass leaves, rounded at %g", th)
		}
		if k == 0 || peak <= c.limit && (peak > nearest || nearest > c.limit) || peak > c.limit && nearest > c.limit && peak < nearest {
			nearest = peak
		}
	}
	return nearest, nil
}

// solved solves the mixed-integer program as far as the limits go, from the best that is known.
func (c *roundings) solved(ctx context.Context, budget int64) (int64, error) {
	q := newProgram(c.s, budget)
	o := milp.Options{Gap: wholeGap, MaxNodes: wholeNodes, MaxWork: wholeWork, TimeLimit: wholeTime, Solver: milp.SolverWASM}
	if x := q.point(c.kept); q.m.Check(x, false) == nil {
		o.Start = x
	}
	if c.most > 0 {
		o.MaxWork = c.most
	}
	sol, err := milp.Solve(ctx, &q.m, o)
	c.work(sol.Work)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil || sol.X == nil {
		c.fail("mixed-integer program", err)
		return c.view.peak, nil
	}
	return c.learn(q.least(sol.X), "the program was solved to %s, gap %.1f %%", sol.Status, 100*sol.Gap), nil
}
