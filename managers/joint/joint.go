// Package joint is gmemtop's own planner. It keeps, swaps or recomputes each idle interval of each buffer,
// gives everything a place in memory, and proves how far its plan can be from the best possible step time.
//
// Its duties:
//   - [Joint] plans by itself; one made by [Seeded] also asks other managers where it falls short;
//   - [New] makes a [Portfolio], which asks other managers too and is never worse than any of them;
//   - [Bound] is the proven lower bound on the step time within a budget.
//
// testdata/walkthrough.txt, written by a test, follows ten ops through all of it, from the load to the
// places.
package joint

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// The problem: within a budget that holds at every moment, choose for every idle interval (between two
// accesses of a buffer) whether the buffer stays, goes to the host and back, or is dropped and made again,
// when its memory is given back and taken again, and at which address each stay lies, such that the step is
// as short as can be. Choosing alone contains the knapsack problem, placing alone is storage allocation, and
// what a copy costs depends on which other copies share its engine; so we search, and prove how far we are.
//
// The way, from the inside out:
//
//   - model.go compiles the problem: idle intervals, loads, times of ops.
//   - schedule.go turns choices into positions in one pass of linear time and estimates the step time with
//     the queues of the target. Its parts are absences.go, memory.go, chains.go, prefetches.go and
//     queues.go. On the networks tried, estimate and simulator differ by less than a percent, mostly not at
//     all, unless addresses interfere. That is what makes thousands of trials affordable.
//   - cover.go makes first choices, the cheapest for the bytes that they take off the excess first. Prices
//     come from the dual of the bound's linear program, from a sweep of fixed shares and from filling the
//     copy engines.
//   - search.go improves the best of these by local search, with the moves of moves.go.
//   - view.go places the outcome (managers/place), measures it with the evaluator, and where addresses pass
//     the limit lowers the limits and searches on. It does so for the problem as it is, and with its large
//     buffers cut into sections (managers/plan, after tvDNN), of which some can leave while others stay.
//   - ladder.go does that for the rungs of a fine, fixed ladder of limits that lead to the budget: a larger
//     budget never gives a slower step by construction. finder.go asks it for the budget's rung, and for
//     the lowest that takes no longer.
//   - seeds.go asks other managers where that is above the bound, for joint and for portfolio.go, and
//     timing.go has moves for their plans. Where another manager's plan is the best, step times need not
//     fall.
//   - bound.go proves the least step time at a limit, with the knapsack of knapsack.go. Where a plan is not
//     near it, intervals.go looks at all moments at once (phases.go, reruns.go, inputs.go, branches.go).
//   - params.go has the numbers that all of this was tuned with, and what moving them does.
//
// Budget 0 asks for the smallest footprint without loss of time: the lowest rung that takes no longer than
// the topmost, which keeps everything.
//
// Buffers that live longer than their accesses (a framework frees late) give their memory to others before
// the first write and behind the last access: discards, which cost nothing.
//
// Complexity: a schedule is O(ops + gaps + length of chains + positions over which copies and kept results
// lie early), memory is linear. The number of schedules is bounded by counted work, the same for each rung,
// and so is the number of placements.
//
// Rejected: one integer program over positions (Checkmate, tvDNN: right for hundreds of ops, out of reach for
// ten thousand); the simulator in the innermost loop (assembling and placing cost a hundred times as much as
// the estimate); particle swarms and Bayesian optimisation over scores (both spend their trials on what
// prices tell at once).

// Joint plans keep, swap and recompute together with places. Its zero value is ready.
type Joint struct {
	off    mechanisms
	params *params        // nil for the defaults
	seeds  []plan.Manager // asked where the bound is not met
}

// mechanisms are what tests switch off to see what each is worth.
type mechanisms struct {
	prices, recompute, swap, feedback, search, ladder, sections, packing bool
}

// Info implements plan.Manager.
func (Joint) Info() plan.Info {
	return plan.Info{
		Name: "joint", Ours: true, Family: plan.Combining, Needs: traces.Lifetimes,
		Summary: "Keeps, swaps or recomputes each idle interval, with a place for everything, " +
			"searched on a simulator and from other managers' plans, and measured against a proven bound.",
	}
}

// Plan implements plan.Manager. Work counts positions, gaps and accesses looked at while making schedules,
// and the steps of plans that are placed and measured; it bounds the search of a rung, so that a call takes
// some multiple of its share. Without an evaluator plans are told apart by the planner's own estimate of the
// step time.
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
