package recompute

import (
	"context"
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
// and solve again for a budget shifted by the error, so that eps is found instead of given. The forward pass runs nothing again.
//
// Both begin with Chen's segments in the same view, and take nothing worse. The mixed-integer program starts from the best that segments and rounding found and
// stops at a gap, at a number of nodes, at counted work or, as a safety net, at the clock. A note of the plan says where its decisions come from.
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

// The sizes of the coarse views, and what bounds the search. A unit of the solver's work is some tens of microseconds.
const (
	groupsWhole   = 24
	groupsRelaxed = 48
	wholeWork     = 100_000
	relaxedWork   = 100_000
	wholeNodes    = 2_000
	wholeGap      = 0.01
	wholeTime     = 60 * time.Second
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
		c = &roundings{m: m, s: newStages(p, b, m.groups), work: r.Work}
		return func(limit int64) (plan.Decisions, int64, error) {
			if limit <= 0 || len(c.s.acts) == 0 {
				return plan.Decisions{}, 0, nil
			}
			return c.decide(ctx, limit)
		}
	})
	if err == nil && c != nil && c.how != "" {
		pl.Note("%d groups in %d stages; %s.", c.s.groups(), c.s.count(), c.how)
	}
	return pl, err
}

// roundings looks for the best decisions over several solutions.
type roundings struct {
	m    checkmate
	s    *stages
	work int64
	how  string

	limit int64
	best  chain.Result
	kept  func(v int32, t int) bool // of best
	peak  int64
	tried bool
	spent int64
}

// consider measures what keeping comes to and remembers it if it is better: within the limit, then faster; else lower.
func (c *roundings) consider(kept func(v int32, t int) bool, how string) (peak int64) {
	r, _ := c.s.b.PlanPossible(c.s.drops(kept), nil, 0)
	peak = c.s.b.PeakLive(r.Absences, r.Reruns)
	fits, did := peak <= c.limit, c.peak <= c.limit
	if !c.tried || fits && (!did || r.Time < c.best.Time || r.Time == c.best.Time && peak < c.peak) || !did && !fits && peak < c.peak {
		c.best, c.kept, c.peak, c.tried, c.how = r, kept, peak, true, how
	}
	return peak
}

// shifts bounds how often the program's budget is shifted to meet the real one.
const shifts = 4

func (c *roundings) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	c.limit, c.tried, c.spent = limit, false, 0
	if c.consider(func(int32, int) bool { return true }, "everything is kept"); c.peak <= limit {
		return plan.Decisions{}, 0, nil
	}
	if !c.m.only {
		for k := 2; k <= c.s.groups(); k += 1 + k/6 {
			if ctx.Err() != nil {
				return plan.Decisions{}, c.spent, ctx.Err()
			}
			c.consider(c.s.segments(k), fmt.Sprintf("nothing that the program found is better than %d segments", k))
		}
	}
	budget, good := limit, limit
	if !c.m.only {
		for range shifts {
			peak, err := c.relaxed(ctx, budget)
			if err != nil {
				return plan.Decisions{}, c.spent, err
			}
			if c.m.single {
				break
			}
			if peak <= limit {
				good = budget
			}
			next := budget + (limit-peak)*3/4 // too low: the coarse view is pessimistic; too high: rounding overshot
			if abs(next-budget) < limit/200 {
				break
			}
			budget = next
		}
	}
	if c.m.whole {
		budget := good
		for range 2 {
			peak, err := c.solved(ctx, budget)
			if err != nil {
				return plan.Decisions{}, c.spent, err
			}
			if peak <= limit || c.m.only {
				break
			}
			budget += limit - peak
		}
	}
	return plan.Decisions{Absences: c.best.Absences, Reruns: c.best.Reruns}, c.spent, nil
}

func abs(x int64) int64 { return max(x, -x) }

// relaxed solves the linear relaxation and rounds it at several thresholds; the peak returned is that of the threshold that came nearest to the limit from
// below, or else nearest.
func (c *roundings) relaxed(ctx context.Context, budget int64) (int64, error) {
	q := newProgram(c.s, budget)
	sol, err := milp.Solve(ctx, &q.m, milp.Options{LPOnly: true, MaxWork: relaxedWork, TimeLimit: wholeTime, Solver: milp.SolverWASM})
	c.spent += sol.Work
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("relaxation: %w", err)
	}
	if sol.X == nil {
		return c.peak, nil
	}
	thresholds := []float64{0.5, 0.35, 0.65, 0.2, 0.8}
	if c.m.single {
		thresholds = thresholds[:1]
	}
	var nearest int64
	for k, th := range thresholds {
		peak := c.consider(q.rounded(sol.X, th), fmt.Sprintf("the relaxation rounded at %g", th))
		if k == 0 || peak <= c.limit && (peak > nearest || nearest > c.limit) || peak > c.limit && nearest > c.limit && peak < nearest {
			nearest = peak
		}
	}
	return nearest, nil
}

// solved solves the mixed-integer program as far as the limits go, from the best that is known.
func (c *roundings) solved(ctx context.Context, budget int64) (int64, error) {
	q := newProgram(c.s, budget)
	o := milp.Options{Gap: wholeGap, MaxNodes: wholeNodes, MaxWork: wholeWork, TimeLimit: wholeTime, Solver: milp.SolverWASM, Start: q.point(c.kept)}
	if c.work > 0 {
		o.MaxWork = c.work
	}
	sol, err := milp.Solve(ctx, &q.m, o)
	c.spent += sol.Work
	if err != nil && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("mixed-integer program: %w", err)
	}
	if sol.X == nil {
		return c.peak, nil
	}
	return c.consider(q.least(sol.X), fmt.Sprintf("the program was solved to %s, gap %.1f %%", sol.Status, 100*sol.Gap)), nil
}
