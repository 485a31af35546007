package recompute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimal rematerialisation.
//
// Problem: choose what to keep and what to rerun so that the extra time is least within the budget, on any
// graph, with the measured times of ops.
//
// Approach: Jain, Jain, Nrusimha, Gholami, Abbeel, Keutzer, Stoica, Gonzalez, "Checkmate: Breaking the Memory
// Wall with Optimal Tensor Rematerialization", MLSys 2020, arXiv 1910.02653: a mixed-integer program over
// stages, one for each step of the frontier, with R (what runs in the stage) and S (what is kept from the
// stage before), partitioned so that R is triangular. checkmate solves it; checkmate-lp solves its linear
// relaxation and rounds in two phases: S at a threshold, then the least R that makes S correct.
//
// Our reading. The exact program has n^2 variables for n ops; ours has one stage for each group of ops, see
// stages.go for groups and program.go for rows. The paper rounds S at 0.5 and solves the relaxation for
// (1-eps) of the budget, since rounding overshoots. We try five thresholds, measure the true peak of each and
// solve again for a budget shifted by the error, so that eps is found instead of given. We also try rounding
// only the S of the first stage (what the forward pass leaves), and keeping recomputed items from then on: S
// of later stages is often a fraction spread over many stages, which rounding turns into reruns of the same
// ops in each. If what the forward pass leaves is fractional, we also try keeping whole items at even
// distances. The forward pass reruns nothing.
//
// A group is rerun only from a few stages before the first that needs its output. Chains are short, because a
// checkpoint every few groups costs less than the peak of a long chain. Something out of reach cannot come
// back, so until then its S is one variable. This makes the program linear in groups instead of quadratic,
// which allows finer groups. On ResNet-101, VGG-416 and GPT-2 the relaxation at 60 % of the peak came to the
// same value with a reach of 4 stages as without (at 40 % of the peak 1.5 % more on VGG-416, and with 8
// stages 0.1 %), and to a third less on ResNet-101 with three times as many groups. The reach is as long as
// the number of variables allows, and unlimited for small networks.
//
// A plan of checkmate fits the budget and is proven to be within a gap of the best: as in the paper, a share
// of the time of all ops, first runs included. Otherwise the problem is unsolved, and there is no plan: what
// the rounding found is checkmate-lp's.
//
// Both managers start with Chen's segments in the same view, and never return anything worse. A shifted
// budget changes only right-hand sides, so the simplex method continues from the last basis. The
// mixed-integer program starts from the best that segments and rounding found and stops at a gap, at a number
// of nodes, at counted work or, as a safety net, at a time limit. If addresses take the plan above its
// budget, results for one limit are considered again under the next. If the relaxation is not solved within
// its limits, a view with half as many groups is used. Notes of the plan say which view was solved, where its
// decisions come from and what the program proves about that view.
//
// Complexity: groups x reach integer variables and that times readers continuous ones, with as many rows.
// Rejected: the exact program beside the coarse one for small networks: with as many groups as ops that make
// activations, the coarse one loses only what is within a group; dynamic programming over chains (Rockmate,
// treeverse), which needs a chain; the interior-point method for the relaxation (measured: no faster than
// dual simplex on these programs, and without a basis to continue from).
type checkmate struct {
	whole  bool // solve the mixed-integer program, not only its relaxation
	groups int
	// only uses just what the whole program says; single tries only the threshold 0.5 and the given budget.
	// For the ablation.
	only, single bool
}

// The sizes of the coarse view, and what bounds the search. A unit of the solver's work is 0.1 to 3 ms, the
// more the larger the program.
const (
	mostGroups  = 160
	mostRuns    = 1000 // groups x reach; leastReach if that would be less
	leastReach  = 6
	relaxedWork = 20_000 // for one relaxation
	// for all programs of one plan: after that, tighter limits choose among known results
	totalWork = 30_000
	// for one mixed-integer program, divided by its rows; or twice what the first relaxation took, if that is
	// more
	wholeWork  = 10_000_000
	wholeNodes = 2_000
	wholeGap   = 0.01
	wholeTime  = 5 * time.Minute
)

// Checkmate returns the manager "checkmate": the mixed-integer program.
func Checkmate() plan.Manager { return checkmate{whole: true, groups: mostGroups} }

// CheckmateLP returns the manager "checkmate-lp": the linear relaxation with two-phase rounding.
func CheckmateLP() plan.Manager { return checkmate{groups: mostGroups} }

// Info implements [plan.Manager].
func (m checkmate) Info() plan.Info {
	i := plan.Info{Name: "checkmate-lp", After: "Jain 2020", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: fmt.Sprintf("stages are groups of ops, at most %d, that run again a few "+
			"stages ahead at most; "+
			"the program's budget is shifted until the rounded plan meets the real one.", m.groups),
		Summary: "Chooses what to keep in each stage by a linear program, rounds its answer, and " +
			"recomputes what is then missing."}
	if m.whole {
		i.Name, i.Summary = "checkmate", "Chooses what to keep and what to run again in each stage as a "+
			"mixed-integer program."
		i.Reading = fmt.Sprintf("stages are groups of ops, at most %d, that run again a few stages ahead "+
			"at most; the forward pass runs nothing again; a plan is within %.0f %% of the least time that "+
			"the program proves, or the problem is unsolved.", m.groups, 100*wholeGap)
	}
	return i
}

// Plan implements [plan.Manager]. Request.Work bounds the solver's counted work for one mixed-integer program
// and for all programs together. If the whole program is not solved within the budget and to the gap, the
// error is a [*plan.Unavailable] that says so, joined with the context's if that was cancelled.
func (m checkmate) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var c *roundings
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		c = &roundings{m: m, s: newStages(p, b, m.groups), most: r.Work}
		rounds := int64(0)
		return func(limit int64) (plan.Decisions, int64, error) {
			if limit <= 0 || len(c.s.acts) == 0 {
				return plan.Decisions{}, 0, nil
			}
			// holes close slowly: each further round asks for a little more than they took
			limit = max(limit-limit/2000*rounds*rounds, 1)
			rounds++
			d, work, err := c.decide(ctx, limit)
			c.told = append(c.told, told{d.Absences, fmt.Sprintf("%s; %s.", c.view(), c.best.how),
				c.proved(), c.gap()})
			return d, work, err
		}
	})
	if err != nil {
		return nil, err
	}
	gap := 0.0
	if i := slices.IndexFunc(c.told, func(t told) bool {
		return slices.Equal(t.absences, pl.Absences)
	}); i >= 0 {
		pl.Note("%s", c.told[i].how)
		pl.Note("%s", c.told[i].proved)
		gap = c.told[i].gap
	}
	if c.failed != "" {
		pl.Note("%s", c.failed)
	}
	if why := unsolved(pl, gap); m.whole && !m.only && why != "" {
		return nil, errors.Join(&plan.Unavailable{Manager: m.Info().Name, Reason: why}, ctx.Err())
	}
	return pl, nil
}

// roundings looks for the best decisions over several solutions.
type roundings struct {
	m    checkmate
	s    *stages
	most int64 // Request.Work

	limit int64
	best  candidate
	views []candidate // candidates considered under this limit that the coarse view can express
	spent int64

	known  []candidate // the solver's results under other limits
	total  int64       // the solver's work under all limits
	solves int         // of the mixed-integer program

	first int64       // work of the first relaxation
	floor int64       // of the programs so far
	basis *milp.Basis // the final basis of the last relaxation

	// What the solver proved for the limit: the least nanoseconds of reruns, whether anything was proved, and
	// by how many MiB the memory rows cannot be met.
	lower   int64
	bounded bool
	short   float64

	failed string // a sentence, if the solver had no answer
	told   []told
}

// told is what to say about the decisions under one limit, because the plan may come from another limit.
type told struct {
	absences    []plan.Absence
	how, proved string
	gap         float64
}

// candidate is the result of some decisions.
type candidate struct {
	chain.Result
	peak int64
	how  string
	// whether an item is in memory when a stage begins; nil if the coarse view cannot express that
	kept func(v int32, t int) bool
}

// beats reports whether x is the better choice: it is within the limit, then it is faster; otherwise it is
// smaller.
func (x *candidate) beats(y *candidate, limit int64) bool {
	switch fits, did := x.peak <= limit, y.peak <= limit; {
	case y.how == "" || fits && !did:
		return true
	case fits && did:
		return x.Time < y.Time || x.Time == y.Time && x.peak < y.peak
	}
	return x.peak < y.peak && x.peak > limit && y.peak > limit
}

// view describes what is solved.
func (c *roundings) view() string {
	what := fmt.Sprintf("%d groups of %d ops that make activations, in %d stages", c.s.groups(), c.s.makers(),
		c.s.count())
	if c.s.groups() == c.s.makers() {
		what = fmt.Sprintf("each of %d ops that make activations, in %d stages", c.s.groups(), c.s.count())
	}
	if r := c.reach(); r < c.s.count() {
		what += fmt.Sprintf(", run again at most %d stages ahead", r)
	}
	return what
}

// reach is how many stages before its first need a group may be rerun.
func (c *roundings) reach() int {
	if c.s.groups() == 0 || c.s.groups()*c.s.count() <= mostRuns {
		return c.s.count()
	}
	return max(leastReach, mostRuns/c.s.groups())
}

// mostWork is the maximum solver work for all programs.
func (c *roundings) mostWork() int64 {
	if c.most > 0 {
		return c.most
	}
	return totalWork
}

// learn considers a rounded solution now and under every later limit.
func (c *roundings) learn(kept func(v int32, t int) bool, format string, args ...any) (peak int64) {
	how := fmt.Sprintf(format, args...)
	c.known = append(c.known, candidate{kept: kept, how: how})
	return c.consider(kept, "%s", how)
}

// work adds what the solver spent.
func (c *roundings) work(n int64) {
	c.spent += n
	c.total += n
}

// consider measures the result of keeping some items and remembers it if it is better.
func (c *roundings) consider(kept func(v int32, t int) bool, format string, args ...any) (peak int64) {
	r, _ := c.s.b.PlanPossible(c.s.drops(kept), nil, 0)
	x := candidate{Result: r, peak: c.s.b.PeakLive(r.Absences, r.Reruns), how: fmt.Sprintf(format, args...),
		kept: kept}
	if x.beats(&c.best, c.limit) {
		c.best = x
	}
	c.views = append(c.views, candidate{Result: chain.Result{Time: r.Time}, peak: x.peak, how: x.how,
		kept: kept})
	return x.peak
}

// shifts bounds how often the program's budget is shifted to meet the real one.
const shifts = 6

// decide returns the best decisions for a limit, and their work. If the context is cancelled they are the
// best so far, and its error is returned if these keep everything.
func (c *roundings) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	c.limit, c.best, c.views, c.spent = limit, candidate{}, nil, 0
	c.lower, c.bounded, c.short = 0, false, 0
	if c.consider(func(int32, int) bool { return true }, "everything is kept"); c.best.peak <= limit {
		return plan.Decisions{}, 0, nil
	}
	if err := c.search(ctx, limit); err != nil && (ctx.Err() == nil || len(c.best.Absences) == 0) {
		return plan.Decisions{}, c.spent, err
	}
	return plan.Decisions{Absences: c.best.Absences, Reruns: c.best.Reruns}, c.spent, nil
}

// search looks for the best candidate for a limit.
func (c *roundings) search(ctx context.Context, limit int64) error {
	if !c.m.only && !c.m.single {
		if err := c.segments(ctx); err != nil {
			return err
		}
	}
	for _, k := range c.known {
		c.consider(k.kept, "%s", k.how)
	}
	budget, good := limit, limit
	for range shifts {
		if c.m.only || c.total >= c.mostWork() {
			break
		}
		peak, err := c.relaxed(ctx, budget)
		if errors.Is(err, errCoarsest) {
			break
		}
		if err != nil {
			return err
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
		if c.m.single || next <= 0 || peak <= limit && next-budget < limit/200 || c.short > 0 {
			break
		}
		budget = next
	}
	budget = good
	for range 2 {
		if !c.m.whole || c.total >= c.mostWork() && c.solves > 0 || c.near() && !c.m.only {
			break
		}
		c.solves++
		peak, err := c.solved(ctx, budget)
		if err != nil {
			return err
		}
		if peak <= limit || c.m.only || c.best.peak <= limit {
			break
		}
		budget += limit - peak
	}
	if c.m.whole && !c.m.only && good < limit && c.gap() > wholeGap && c.best.peak <= limit {
		_, err := c.solved(ctx, limit) // a program for less memory proves nothing
		return err
	}
	return nil
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

// fail records that the solver had no answer; results found without it stay.
func (c *roundings) fail(what string, err error) {
	if c.failed = fmt.Sprintf("The solver had no answer to the %s within its limits.", what); err != nil {
		c.failed = fmt.Sprintf("The solver had no answer to the %s: %v.", what, err)
	}
}

// coarser switches to a view with half as many groups, for which the solver may have an answer.
func (c *roundings) coarser(ctx context.Context) error {
	n := c.s.groups() / 2
	if n < 8 {
		return errCoarsest
	}
	c.s = newStages(c.s.p, c.s.b, n)
	c.known, c.views, c.basis, c.floor = nil, nil, nil, 0
	c.lower, c.bounded, c.short = 0, false, 0
	c.consider(func(int32, int) bool { return true }, "everything is kept")
	return c.segments(ctx)
}

// errCoarsest says that there is no coarser view.
var errCoarsest = errors.New("the solver has no answer even in the coarsest view")

// relaxed solves the linear relaxation and rounds it at several thresholds. It returns the peak of the
// threshold that is nearest to the limit from below, or else nearest; 0 if the solver had no answer and the
// view is now a coarser one.
func (c *roundings) relaxed(ctx context.Context, budget int64) (int64, error) {
	q := c.program(budget)
	o := milp.Options{LPOnly: true, MaxWork: relaxedWork, TimeLimit: wholeTime, Solver: milp.SolverWASM,
		Basis: c.basis}
	if c.most > 0 {
		o.MaxWork = min(o.MaxWork, c.most)
	}
	sol, err := milp.Solve(ctx, &q.m, o)
	c.work(sol.Work)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil || sol.X == nil {
		c.fail("relaxation", err)
		return 0, c.coarser(ctx)
	}
	c.basis = sol.Basis
	if c.first == 0 {
		c.first = sol.Work
	}
	c.prove(q, &sol, budget)
	if !c.m.single {
		c.learn(c.s.once(q.spread(sol.X)), "the relaxation of what the forward pass leaves, its "+
			"fractions spread over items")
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
		if k == 0 || peak <= c.limit && (peak > nearest || nearest > c.limit) || peak > c.limit &&
			nearest > c.limit && peak < nearest {
			nearest = peak
		}
	}
	return nearest, nil
}

// program builds the program for a budget, of the same shape as the last one if that is possible.
func (c *roundings) program(budget int64) *program {
	if budget < c.floor || c.floor < budget*3/4 {
		c.floor, c.basis = budget*9/10, nil
	}
	return newProgram(c.s, scope{budget: budget, floor: c.floor, reach: c.reach()})
}

// solved solves the mixed-integer program as far as its limits allow, starting from the best known candidate.
func (c *roundings) solved(ctx context.Context, budget int64) (int64, error) {
	q := c.program(budget)
	o := milp.Options{Gap: wholeGap, MaxNodes: wholeNodes, MaxWork: max(wholeWork/int64(q.m.NumRows()+1),
		2*c.first), TimeLimit: wholeTime,
		Solver: milp.SolverWASM}
	if c.most > 0 {
		o.MaxWork = c.most
	}
	best := -1 // among those that the program can express: a chain may be longer than its reach
	for i := range c.views {
		if x := &c.views[i]; best < 0 || x.beats(&c.views[best], c.limit) {
			if p := q.point(x.kept); q.m.Check(p, false) == nil {
				best, o.Start = i, p
			}
		}
	}
	sol, err := milp.Solve(ctx, &q.m, o)
	c.work(sol.Work)
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil || sol.X == nil {
		c.fail("mixed-integer program", err)
		return c.best.peak, nil
	}
	c.prove(q, &sol, budget)
	return c.learn(q.least(sol.X), "the program was solved to %s, gap %.1f %%", sol.Status, 100*sol.Gap), nil
}
