package pack

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
)

// One-pass packing: items in a fixed order, each put into a gap between its already placed neighbours.
//
// The order and the gap are SmartPool's (Zhang, Yeung, Shu, He, Wang, "Efficient Memory Management for
// GPU-based Deep Learning Systems", 2019; the weighted interval-graph colouring of apache/singa's memory
// pool): size descending, ties by start ascending; best fit takes the smallest gap that fits, first fit the
// lowest; with no gap the item goes on top of its highest neighbour. Equal gaps: the lowest. Equal sizes and
// starts: the problem's order.
//
// Our reading: the gap between address 0 and the first taken range counts like any other. The authors' code
// tries it only when the neighbours' ranges merge into exactly one; FrontGapOnlyBelowOneRange does as the
// code does.
//
// ByClasses is ours: sizes within a power of two form one class, the largest class first, and within a class
// items come in the order in which they begin. Items of similar size then follow each other at the same
// addresses, as intervals of one size do in an optimal colouring, and a smaller class fills what is left. If
// sizes differ by orders of magnitude and lifetimes end in no order, it wastes half as much as descending
// size does (14 to 20 % of the load against 31 to 42 % with 20,000 items, by first fit). If a few sizes occur
// many times, as in networks, the two come within a thousandth of each other, sometimes one is ahead,
// sometimes the other. Classes of a factor of four or sixteen were worse as often as better.
//
// With the index of ranges (ranges.go) a pass costs O(n * live) at worst, in order of address and without
// sorting. Fixed items are placed before all others.

// FitOption changes the rule of BestFit and FirstFit.
type FitOption func(*fitRule)

// FrontGapOnlyBelowOneRange tries the gap below the first taken range only where the neighbours' ranges merge
// into exactly one, as the published code of SmartPool does.
func FrontGapOnlyBelowOneRange() FitOption { return func(r *fitRule) { r.quirk = true } }

// ByClasses takes items by classes of sizes, each reaching to twice the previous one, the largest first;
// within a class the first to begin comes first.
func ByClasses() FitOption { return func(r *fitRule) { r.classes = true } }

// InOrderOf takes items in ascending order of the keys, one for each item of the problem, whatever their
// size.
func InOrderOf(keys []int64) FitOption { return func(r *fitRule) { r.keys = keys } }

// fitRule chooses among gaps.
type fitRule struct {
	keys    []int64 // see InOrderOf
	first   bool    // the lowest gap instead of the smallest
	quirk   bool    // see FrontGapOnlyBelowOneRange
	classes bool    // see ByClasses; what chooses a gap does not look at it
}

// class is the class of items of similar size.
func (r fitRule) class(size int64) int64 {
	if r.classes {
		return int64(bits.Len64(uint64(size)))
	}
	return size
}

// smallest returns the least gap that matters to the rule for an item of the size.
func (r fitRule) smallest(size int64) int64 {
	if r.quirk { // it counts ranges
		return 1
	}
	return size
}

// BestFit packs by SmartPool's rule with best fit. The result is Optimal where its top meets the lower bound
// and Feasible otherwise. The error is Check's, or the context's, wrapped, when it was cancelled: there is
// then no result.
func BestFit(ctx context.Context, p *Problem, opts ...FitOption) (Result, error) {
	return fit(ctx, p, fitRule{}, opts)
}

// FirstFit packs by SmartPool's rule with first fit; otherwise it is like BestFit.
func FirstFit(ctx context.Context, p *Problem, opts ...FitOption) (Result, error) {
	return fit(ctx, p, fitRule{first: true}, opts)
}

func fit(ctx context.Context, p *Problem, rule fitRule, opts []FitOption) (Result, error) {
	for _, o := range opts {
		o(&rule)
	}
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	in := compile(p)
	order := in.fitOrder(p, rule)
	offsets, err := in.fit(ctx, order, rule)
	if err != nil {
		return Result{}, fmt.Errorf("packing stopped: %w", err)
	}
	res := Result{Offsets: in.expand(p, offsets), Top: in.top(offsets), LowerBound: in.bound(),
		Status: Feasible,
		Work:   int64(len(order))}
	if res.Top == res.LowerBound {
		res.Status = Optimal
	}
	return res, nil
}

// fitOrder is the order in which a rule places items. It copies the keys beside the indices that it sorts.
func (in *instance) fitOrder(p *Problem, rule fitRule) []int32 {
	type key struct {
		class, start, size int64
		item               int32
	}
	keys := make([]key, len(in.size))
	for i, size := range in.size {
		k := key{rule.class(size), p.Items[in.origin[i]].Start, size, int32(i)}
		if rule.keys != nil {
			k.class = -rule.keys[in.origin[i]]
		}
		keys[i] = k
	}
	slices.SortFunc(keys, func(a, b key) int {
		switch {
		case a.class != b.class:
			return cmp.Compare(b.class, a.class)
		case a.start != b.start:
			return cmp.Compare(a.start, b.start)
		case a.size != b.size:
			return cmp.Compare(b.size, a.size)
		}
		return cmp.Compare(a.item, b.item)
	})
	order := make([]int32, len(keys))
	for k := range keys {
		order[k] = keys[k].item
	}
	return order
}

// indices returns the items in the problem's order.
func (in *instance) indices() []int32 {
	order := make([]int32, len(in.size))
	for i := range order {
		order[i] = int32(i)
	}
	return order
}

// checkEvery is how many items or nodes pass between two looks at the context.
const checkEvery = 1024

// fit places the items in the given order, fixed ones first.
func (in *instance) fit(ctx context.Context, order []int32, rule fitRule) ([]int64, error) {
	offsets := make([]int64, len(in.size))
	index := newRangeIndex(in)
	place := func(i int32, at int64) {
		offsets[i] = at
		index.place(in, i, at)
	}
	for i, at := range in.fixed {
		if at >= 0 {
			place(int32(i), at)
		}
	}
	for k, i := range order {
		if k%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if in.fixed != nil && in.fixed[i] >= 0 {
			continue
		}
		a, b := in.stretches(i)
		place(i, index.choose(rule, a, b, in.size[i]))
	}
	return offsets, nil
}
