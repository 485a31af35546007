// Package place gives the instances of an assembled plan their addresses.
//
// Every manager that decides what is in memory when must still decide where: a plan that fits by the sum of
// its live buffers may not fit once each has an address. This package turns a plan into a storage-allocation
// problem on the axis of its steps, packs it, and orders the queues.
package place

import (
	"context"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Rule says how hard to try.
type Rule uint8

// The rules.
const (
	// Search packs exactly if it can, bounded by counted work; see [pack.Exact].
	Search Rule = iota
	// BestFit is SmartPool's rule: size descending into the smallest gap that fits.
	BestFit
	// FirstFit is its variant that takes the lowest gap. With keys, instances are placed in the order of
	// theirs.
	FirstFit
	// Classes takes the lowest gap for one class of sizes after the other; see [pack.ByClasses].
	Classes
	// Tight is Classes, followed by Search if that does not meet the capacity and the work is enough for a
	// search to be useful.
	Tight
)

// LeastSteps is how many counted steps a search for places needs for each instance to be of use. Of 1101
// searches with fewer, for plans of the problems of docs/results.md that a greedy pass did not fit in, one
// met the capacity; with ten to twenty a third did, with more most.
const LeastSteps = 10

// Options say how to place.
type Options struct {
	Rule Rule
	// Capacity, if not 0, is a footprint below which the search may stop.
	Capacity int64
	// MostLive is for [Within]: it gives up decisions that have more bytes alive. 0 means the budget of a
	// request whose plan must fit, otherwise no limit.
	MostLive int64
	Seed     uint64
	// Work bounds the search in counted steps; 0 is the packer's default.
	Work int64
	// Rest is for how many steps memory is left unused between two instances if possible: queues that need
	// not wait for each other's bytes lose no time. It makes the footprint larger.
	Rest int32
	// Keys of FirstFit, one for each instance of the plan: the least is placed first.
	Keys []int64
	// Progress is called with the best footprint and its bound.
	Progress func(best, bound int64)
	// Quirk repeats the published code's treatment of the gap below the first taken range; see
	// [pack.FrontGapOnlyBelowOneRange].
	Quirk bool
}

// Result is the result of the placement.
type Result struct {
	// Footprint is the plan's, LowerBound a lower bound for all placements of the same program, both in
	// bytes.
	Footprint, LowerBound int64
	Optimal               bool
	Work                  int64
}

// Place gives every instance of the plan an offset and orders its queues, so that [plan.Validate] finds
// nothing missing. Instances that live for the whole iteration lie at the bottom, out of the way; a carried
// buffer ends the iteration where it began it. If the context ends a search, Place uses the best packing so
// far, which is no error; the error is the context's only if there is none yet.
func Place(ctx context.Context, p *plan.Problem, pl *plan.Plan, opt Options) (Result, error) {
	res, err := address(ctx, p, pl, opt)
	if err == nil {
		pl.Order(p)
	}
	return res, err
}

// address is Place without the order of queues.
func address(ctx context.Context, p *plan.Problem, pl *plan.Plan, opt Options) (Result, error) {
	offsets := make([]int64, len(pl.Instances))
	q := pack.Problem{Align: 1} // sizes are rounded already, and sums of rounded sizes are rounded
	item := make([]int32, len(pl.Instances))
	var keys []int64 // of the items
	var base int64
	end := int64(len(pl.Steps))
	partner, resident := carried(p, pl), pl.ResidentOf(p)
	for i := range pl.Instances {
		x := &pl.Instances[i]
		item[i] = -1
		switch {
		case x.Size == 0:
		case x.From < 0 && int64(x.To) == end:
			offsets[i] = base
			base += x.Size
		case x.From >= 0 && int64(x.To) == end && partner[x.Buffer] >= 0:
			// The end of a carried buffer: placed with its beginning.
		default:
			item[i] = int32(len(q.Items))
			it := pack.Item{Start: int64(x.From), End: min(int64(x.To)+int64(opt.Rest), end), Size: x.Size}
			if x.From < 0 { // From -1 is before the first step
				if last := partner[x.Buffer]; last >= 0 && int(last) != i {
					it.Start2, it.End2 = int64(pl.Instances[last].From), end
					it.End = min(it.End, it.Start2)
				}
			}
			q.Items = append(q.Items, it)
			if opt.Keys != nil {
				keys = append(keys, opt.Keys[i])
			}
		}
	}
	opt.Keys = keys
	res, err := solve(ctx, &q, opt, base)
	if err != nil && (res.Offsets == nil || ctx.Err() == nil) {
		return Result{}, fmt.Errorf("place %d buffers: %w", len(q.Items), err)
	}
	for i := range pl.Instances {
		if k := item[i]; k >= 0 {
			offsets[i] = base + res.Offsets[k]
		}
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if first := partner[x.Buffer]; x.Size > 0 && item[i] < 0 && !(x.From < 0 && int64(x.To) == end) &&
			first >= 0 {
			offsets[i] = offsets[resident[x.Buffer]]
		}
	}
	pl.Place(offsets)
	if pl.Settle(p); p.Scattered {
		return Result{Footprint: pl.Footprint, LowerBound: pl.Footprint, Optimal: true, Work: res.Work}, nil
	}
	return Result{
		Footprint:  pl.Footprint,
		LowerBound: base + res.LowerBound,
		Optimal:    res.Status == pack.Optimal,
		Work:       res.Work,
	}, nil
}

func solve(ctx context.Context, q *pack.Problem, opt Options, base int64) (pack.Result, error) {
	var fit []pack.FitOption
	if opt.Quirk {
		fit = append(fit, pack.FrontGapOnlyBelowOneRange())
	}
	switch opt.Rule {
	case BestFit:
		return pack.BestFit(ctx, q, fit...)
	case FirstFit:
		if opt.Keys != nil {
			fit = append(fit, pack.InOrderOf(opt.Keys))
		}
		return pack.FirstFit(ctx, q, fit...)
	case Classes:
		return pack.FirstFit(ctx, q, append(fit, pack.ByClasses())...)
	case Tight:
		return tight(ctx, q, opt, base)
	}
	o := pack.Options{Seed: opt.Seed, Work: opt.Work}
	if opt.Capacity > base {
		o.Capacity = opt.Capacity - base
	}
	if opt.Progress != nil {
		o.Progress = func(best, bound int64) { opt.Progress(base+best, base+bound) }
	}
	return pack.Exact(ctx, q, o)
}

// tight packs by classes and, if that is not enough, by search.
func tight(ctx context.Context, q *pack.Problem, opt Options, base int64) (pack.Result, error) {
	opt.Rule = Classes
	a, err := solve(ctx, q, opt, base)
	if err != nil || a.Status == pack.Optimal || opt.Capacity > 0 && base+a.Top <= opt.Capacity ||
		opt.Work > 0 && opt.Work < LeastSteps*int64(len(q.Items)) {
		return a, err
	}
	opt.Rule = Search
	b, err := solve(ctx, q, opt, base)
	switch {
	case ctx.Err() != nil && b.Offsets == nil:
		return a, nil
	case err != nil && ctx.Err() == nil:
		return pack.Result{}, err
	}
	work := a.Work + b.Work
	if b.Top < a.Top {
		a = b
	}
	a.Work, a.LowerBound = work, max(a.LowerBound, b.LowerBound)
	return a, nil
}

// carried returns, for each buffer that is carried into the next iteration in an instance other than the one
// it began with, that last instance; -1 for others.
func carried(p *plan.Problem, pl *plan.Plan) []int32 {
	last := make([]int32, len(p.Buffers))
	for b := range last {
		last[b] = -1
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		if int(x.To) == len(pl.Steps) && x.From >= 0 && p.Buffers[x.Buffer].Life != plan.Inside {
			last[x.Buffer] = int32(i)
		}
	}
	return last
}
