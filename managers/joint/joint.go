// Package joint is gmemtop's own planner. For each idle interval of each buffer it decides whether to keep,
// swap or recompute; it assigns every buffer an address; and it proves how far its plan can be from the best
// possible step time.
//
// Entry points:
//   - [Joint] plans on its own. One made by [Seeded] also asks other managers where its own plan falls short.
//   - [New] makes a [Portfolio], which also asks other managers and is never worse than any of them.
//   - [Bound] is the proven lower bound on the step time within a budget.
//
// testdata/walkthrough.txt, written by a test, follows ten ops through the whole planner, from the load to
// the addresses.
package joint

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// The problem: within a budget that holds at every moment, choose for every idle interval (between two
// accesses of a buffer) whether the buffer stays, goes to the host and back, or is dropped and recomputed;
// when its memory is released and taken again; and at which address each instance lies; so that the step is
// as short as possible. The choices alone contain the knapsack problem, and placement alone is dynamic
// storage allocation. The cost of a copy depends on which other copies share its engine. So we search, and
// prove how far we are from the optimum.
//
// The approach, from the inside out:
//
//   - model.go compiles the problem: idle intervals, loads, times of ops.
//   - schedule.go turns choices (setting.go, timing.go) into positions in one linear-time pass and estimates
//     the step time with the queues of the target. Its parts are absences.go, memory.go, chains.go,
//     prefetches.go and queues.go. On the networks tried, estimate and simulator differ by less than a
//     percent, mostly not at all, unless addresses interfere. That is what makes thousands of trials
//     affordable.
//   - bound.go proves the least step time at a limit, with the knapsack of knapsack.go. Where a plan is not
//     near it, intervals.go considers all moments at once (phases.go, spans.go, reruns.go, inputs.go,
//     branches.go, proof.go).
//   - cover.go makes the initial choices: it takes the cheapest first, by cost per byte of excess removed.
//     Prices come from the dual of the bound's linear program, from a sweep of fixed shares and from filling
//     the copy engines (engines.go).
//   - search.go improves the best of these by local search, with the moves of moves.go.
//   - realize.go places the result (managers/place) and measures it with the evaluator. Where addresses
//     exceed the limit, limit.go lowers the limits and searches again. Both do so for each version of the
//     problem (version.go): as it is, and with large buffers cut into sections (managers/plan, after tvDNN),
//     some of which can leave while others stay.
//   - ladder.go does that for the rungs of a fine, fixed ladder of limits (grid.go) up to the budget, so that
//     by construction a larger budget never gives a slower step. finder.go asks it for the budget's rung, and
//     for the lowest rung that takes no longer.
//   - seeds.go asks other managers where the result is above the bound, for joint and for portfolio.go, and
//     resume.go searches on from the best plans, with the moves of retime.go and borrow.go, and measuring.go
//     measures every try. There, a step may get slightly slower as the budget grows, because searches differ
//     by chance.
//   - task.go has what all of these share in one call, found.go the plans found so far, params.go the tuning
//     parameters and what changing each one does.
//
// Files need each other in one direction only: no chain of uses leads from a file back to itself.
//
// Budget 0 asks for the smallest footprint that costs no time: the lowest rung that takes no longer than the
// top one, which keeps everything.
//
// A buffer can outlive its accesses (a framework frees late). It then gives its memory to others before the
// first write and after the last access. These discards cost nothing.
//
// Complexity: a schedule is O(ops + gaps + length of chains + positions over which copies and kept results
// lie early); memory is linear. Counted work bounds the number of schedules, the same for each rung, and the
// number of placements.
//
// Rejected: one integer program over positions (Checkmate, tvDNN: right for hundreds of ops, out of reach for
// ten thousand); the simulator in the innermost loop (assembling and placing cost a hundred times as much as
// the estimate); particle swarms and Bayesian optimisation over scores (both spend their trials on what
// prices tell at once).

// Joint plans which values to keep, swap and recompute, and where everything lies. Its zero value is ready to
// use.
type Joint struct {
	off    mechanisms
	params *params        // nil for the defaults
	seeds  []plan.Manager // asked where the bound is not met
}

// Seeded returns our planner with other managers to ask if it does not meet its bound: it is never slower
// than any of them. The zero value asks nobody.
func Seeded(others ...plan.Manager) Joint { return Joint{seeds: others} }

// Info implements plan.Manager.
func (Joint) Info() plan.Info {
	return plan.Info{
		Name: "joint", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Keeps, swaps or recomputes each idle buffer and gives every buffer an address. It " +
			"searches on a simulator, also from other managers' plans, and compares with a proven bound.",
	}
}

// Plan implements plan.Manager. Work counts positions, gaps and accesses looked at while making schedules,
// and the steps of plans that are placed and measured. It bounds the search of each rung, so a call takes
// several times its share. Without an evaluator, plans are compared by the planner's own estimate of the step
// time.
func (j Joint) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	return j.plan(ctx, p, r, j.Info(), func(f *finder) { f.askOthers(j.seeds) })
}

func (j Joint) plan(
	ctx context.Context,
	p *plan.Problem,
	r plan.Request,
	info plan.Info,
	ask func(*finder),
) (*plan.Plan, error) {
	began := time.Now()
	if err := p.Serve(info); err != nil {
		return nil, err
	}
	if err := p.CheckBudget(r.Budget); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	par := defaults()
	if j.params != nil {
		par = *j.params
	}
	f, err := newFinder(ctx, p, r, j.off, par)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	pl, err := f.find(ask)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", info.Name, err)
	}
	pl.Manager, pl.Budget = info.Name, r.Budget
	pl.Work, pl.Planning = f.work(), time.Since(began)
	return pl, nil
}
