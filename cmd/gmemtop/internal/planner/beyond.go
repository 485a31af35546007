package planner

import (
	"context"
	"time"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// Beyond adds to a comparison what takes further planning: the smallest budget if nothing fits, the largest
// batches if they are asked for, and how faithful the emulation is.
type Beyond struct {
	*Comparing
	Problem  *plan.Problem
	Managers []plan.Manager
	Options  replay.Options
	// Limit bounds the search for a budget, 0 for ten seconds.
	Limit time.Duration
	// Recording makes the problem of trace i.
	Recording func(i int) (*plan.Problem, error)
	// Again returns the command line with another budget.
	Again func(budget string) string
	// Clock shows what is being done until stop is called. Bar begins to show how far something is.
	Clock func(doing string) (stop func())
	Bar   func() (say func(text string), done func())
	// NoneFound is called if no budget that fits was found within the limit.
	NoneFound func(within time.Duration)
}

// searchTime bounds the search for a budget that fits, where --limit does not.
const searchTime = 10 * time.Second

// Add adds it to made, which is nil if the budget was refused; then it returns the smallest budget, since
// there is no report for it. The end of ctx ends what is being done, and skips the rest.
func (b *Beyond) Add(ctx context.Context, made *replay.Comparison) (*replay.Smallest, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !b.MaxBatch && (made == nil || !made.AnyFits()) {
		s, err := b.smallestBudget(ctx, made)
		if err != nil || made == nil {
			return s, err
		}
		made.Smallest = s
	}
	if made == nil {
		return nil, nil
	}
	if b.MaxBatch {
		if err := b.batches(ctx, made); err != nil {
			return nil, err
		}
	}
	if b.Problem.Source == nil {
		return nil, nil
	}
	defer b.Clock("checking the emulation against the recording")()
	fidelity, err := replay.Prove(ctx, b.Problem.Source)
	if err == nil {
		made.Fidelity = fidelity
	}
	return nil, err
}

// smallestBudget looks for the smallest budget that fits, after one that did not, and gives the command lines
// for it. It returns nil if it found none in time.
func (b *Beyond) smallestBudget(ctx context.Context, made *replay.Comparison) (*replay.Smallest, error) {
	within := searchTime
	if b.Limit > 0 {
		within = b.Limit
	}
	opt := b.Options
	opt.Update = nil
	stop := b.Clock("nothing fits: looking for the smallest budget that does")
	s, err := replay.SmallestBudget(ctx, b.Problem, b.Managers, opt, made, within)
	stop()
	if s == nil && err == nil {
		b.NoneFound(within)
	}
	for x := s; x != nil; x = x.Runnable {
		x.Command = b.Again(x.Text)
	}
	return s, err
}

// batches finds the largest batch that fits the budget for each manager of a comparison.
func (b *Beyond) batches(ctx context.Context, made *replay.Comparison) error {
	say, done := b.Bar()
	defer done()
	all := recordings{N: len(b.Paths), Problem: b.Recording}
	return b.Task.largestBatches(ctx, made, b.Managers, b.Options, all, say)
}
