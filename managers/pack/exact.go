package pack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// Options of Exact.
type Options struct {
	Capacity int64  // Bytes to stay within; 0 asks for the lowest top.
	Seed     uint64 // Seed of every random choice.
	Work     int64  // Most counted steps, the only limit besides the context; 0 means DefaultWork.

	// Progress, if not nil, is called with the best top and the lower bound whenever one of them changes. It
	// is called from Exact's own goroutine.
	Progress func(best, bound int64)
}

// defaultWork is the work limit of Exact where Options gives none: about a minute on two cores.
const defaultWork = 10_000_000

// Exact looks for the lowest top, or for a packing within the capacity.
//
// When the context ends, the result is the best packing found so far with its status, and the error wraps the
// context's: a caller that wants an answer in time uses the result and ignores the error if errors.Is says
// that it is the context's. The result has no offsets only if the problem or the options are wrong, or if the
// context ended before the first greedy pass did.
func Exact(ctx context.Context, p *Problem, opts Options) (Result, error) {
	return exact(ctx, p, opts, allKnobs)
}

func exact(ctx context.Context, p *Problem, opts Options, k knobs) (Result, error) {
	if err := p.Check(); err != nil {
		return Result{}, err
	}
	if opts.Capacity < 0 {
		return Result{}, fmt.Errorf("the capacity %d is negative; give bytes, or 0 to minimise",
			opts.Capacity)
	}
	if opts.Work <= 0 {
		opts.Work = defaultWork
	}
	r := &runner{in: compile(p), opts: opts, knobs: k}
	r.bound = r.in.bound()
	if err := r.greedy(ctx); err != nil {
		return Result{}, fmt.Errorf("packing stopped before the first answer: %w", err)
	}
	r.merge(ctx)
	r.improve(ctx)
	res := Result{Offsets: r.in.expand(p, r.best), Top: r.top, LowerBound: r.bound, Work: r.used,
		Status: r.status()}
	if err := ctx.Err(); err != nil && !r.done() {
		return res, fmt.Errorf("packing stopped early: %w", err)
	}
	return res, nil
}

// improve looks for better answers than there are, as the options say.
func (r *runner) improve(ctx context.Context) {
	if r.opts.Capacity > 0 {
		r.meet(ctx)
	} else {
		r.minimise(ctx)
	}
}

// merge packs the blocks that the items merge into, if those are notably fewer. It comes before items are
// peeled and postponed, which would take away pieces that others fit to. It proves nothing.
func (r *runner) merge(ctx context.Context) {
	n := len(r.in.size)
	work := r.left() / mergedShare
	merging := mergeSteps * int64(n)
	if r.done() || n < mergeFrom || merging > work {
		return
	}
	r.used += merging
	blocks, m := r.in.merge()
	if len(blocks.size) > n-n/fewerBlocks {
		return
	}
	of := &runner{in: blocks, opts: r.opts, knobs: r.knobs, bound: r.bound}
	of.opts.Work, of.opts.Progress = work-merging, nil
	if of.greedy(ctx) == nil {
		of.improve(ctx)
		r.offer(m.spread(n, blocks, of.best))
	}
	r.used += of.used
}

// How blocks are tried.
const (
	mergeFrom   = 1000 // items
	mergedShare = 4    // the part of the work for blocks
	mergeSteps  = 20   // the counted steps of merging, per item: it takes as long as ten greedy passes
	fewerBlocks = 4    // blocks are tried where at least this part of the items has gone
)

// runner is one call of Exact.
type runner struct {
	in    *instance
	opts  Options
	knobs knobs
	used  int64

	best       []int64
	top, bound int64
}

// done reports whether nothing is left to look for.
func (r *runner) done() bool {
	return r.top == r.bound || r.opts.Capacity > 0 && (r.top <= r.opts.Capacity || r.bound > r.opts.Capacity)
}

func (r *runner) status() Status {
	switch {
	case r.top == r.bound && (r.opts.Capacity == 0 || r.top <= r.opts.Capacity):
		return Optimal
	case r.opts.Capacity == 0 || r.top <= r.opts.Capacity:
		return Feasible
	case r.bound > r.opts.Capacity:
		return Infeasible
	}
	return Unknown
}

// offer takes an answer if it is better.
func (r *runner) offer(offsets []int64) {
	if top := r.in.top(offsets); r.best == nil || top < r.top {
		r.best, r.top = offsets, top
		r.report()
	}
}

// prove raises the lower bound.
func (r *runner) prove(bound int64) {
	if bound = min(bound, r.top); bound > r.bound {
		r.bound = bound
		r.report()
	}
}

func (r *runner) report() {
	if r.opts.Progress != nil {
		r.opts.Progress(r.top, r.bound)
	}
}

// left is the work not yet spent.
func (r *runner) left() int64 { return r.opts.Work - r.used }

// greedy makes the first answers.
func (r *runner) greedy(ctx context.Context) error {
	for k, rule := range fitPortfolio {
		if k > 0 && (r.done() || r.in.large() || r.used+fitSteps(len(r.in.size)) > r.opts.Work/4) {
			break // a large core does its own passes, once what can be removed has been
		}
		offsets, err := r.in.fit(ctx, r.in.order(rule.order), rule.fitRule)
		if err != nil {
			if r.best != nil {
				break
			}
			return err
		}
		r.used += fitSteps(len(r.in.size))
		r.offer(offsets)
	}
	return nil
}

// fitSteps is the counted steps of a greedy pass over n items.
func fitSteps(n int) int64 { return 2*int64(n) + 1 }

// fitPortfolio is the greedy passes, SmartPool's rule first.
var fitPortfolio = []struct {
	order string
	fitRule
}{
	{"Z", fitRule{}}, {"WA", fitRule{first: true}}, {"A", fitRule{}}, {"TA", fitRule{}},
	{"A", fitRule{first: true}},
	{"ZW", fitRule{first: true}},
	{"WA", fitRule{}}, {"TZ", fitRule{first: true}}, {"SZ", fitRule{}}, {"TW", fitRule{}},
}

// order sorts the items by keys, descending, ties by index.
func (in *instance) order(keys string) []int32 {
	figures := in.orderKeys()
	order := in.indices()
	slices.SortFunc(order, func(a, b int32) int {
		for _, c := range []byte(keys) {
			if k := figures[c]; k[a] != k[b] {
				return cmp.Compare(k[b], k[a])
			}
		}
		return int(a - b)
	})
	return order
}

// meet looks for a packing within the capacity.
func (r *runner) meet(ctx context.Context) {
	if !r.done() && r.left() > 0 {
		r.attempt(ctx, r.opts.Capacity, r.left())
	}
}

// minimise looks for the lowest top: first at the bound, which most problems meet; then it halves the
// distance between the best top and the highest capacity that was given up on, and comes back to that one
// with what work is left.
func (r *runner) minimise(ctx context.Context) {
	unit := r.in.unit()
	share := r.opts.Work / 8
	if r.in.large() { // the first attempt has all the passes to make
		share *= 2
	}
	for !r.done() && r.left() > 0 && ctx.Err() == nil {
		gaveUp := r.bound
		r.attempt(ctx, r.bound, min(2*share, r.left()))
		for !r.done() && r.left() > 0 && ctx.Err() == nil {
			mid := gaveUp + max(1, (r.top-gaveUp)/2/unit)*unit
			if mid >= r.top {
				break
			}
			if r.attempt(ctx, mid, min(share, r.left())) != packed {
				gaveUp = mid
			}
		}
		share *= 2
	}
}

// unit is the greatest common divisor of all sizes and fixed offsets: canonical offsets and tops are
// multiples of it.
func (in *instance) unit() int64 {
	var unit int64
	gcd := func(v int64) {
		for v != 0 {
			unit, v = v, unit%v
		}
	}
	for i, size := range in.size {
		gcd(size)
		if in.fixed != nil && in.fixed[i] > 0 {
			gcd(in.fixed[i])
		}
	}
	return max(unit, 1)
}

// attempt looks for a packing within a capacity of at least the bound, offers what it finds and proves what
// it can.
func (r *runner) attempt(ctx context.Context, capacity, work int64) outcome {
	red := r.in.reduce(capacity)
	solved := make([][]int64, len(red.cores))
	order := make([]int, len(red.cores))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return len(red.cores[a].in.size) - len(red.cores[b].in.size)
	})
	limit := r.used + work
	result := packed
	for n, k := range order {
		c := red.cores[k]
		share := max(1, (limit-r.used)/int64(len(order)-n))
		if result != packed {
			share = 1 // the rest only needs places for an answer above the capacity
		}
		offsets, used, out := c.solve(ctx, capacity-c.base, r.opts.Seed, share, r.knobs)
		r.used += used
		if out == impossible {
			unit := r.in.unit()
			r.prove((capacity/unit + 1) * unit)
			return out
		}
		if offsets == nil {
			return out
		}
		solved[k] = offsets
		if result == packed {
			result = out
		}
	}
	r.offer(r.in.assemble(red, solved))
	return result
}

// Sizes that decide how a core is solved.
const (
	// up to this many items the search comes right after a few greedy passes; more are large
	searchFirst = 2000
	fewPasses   = 3 // how many those are
	// the search's tables of overlapping pairs and of items by section stay below this
	mostOverlaps  = 20_000_000
	passesBetween = 4  // in larger cores greedy passes get this part of the work before the search, and
	manyPasses    = 12 // at least this many: each of the portfolio and some that have learned
	// overlapping pairs per available step, above which a search would be spent on its tables
	overlapsAStep = 100
)

// solve packs the core within the capacity: by greedy passes and then by search. If it ran out of work, the
// offsets are the best packing above the capacity, or nil.
func (c core) solve(ctx context.Context, capacity int64, seed uint64, work int64, k knobs) ([]int64, int64,
	outcome) {
	n, searchable := len(c.in.size), c.in.overlaps() <= min(mostOverlaps,
		overlapsAStep*min(work, mostOverlaps))
	passes := work
	switch {
	case searchable && n <= searchFirst:
		passes = min(work, fewPasses*fitSteps(n))
	case searchable:
		passes = min(work, max(work/passesBetween, manyPasses*fitSteps(n)))
	}
	best, used, out := c.squeaky(ctx, capacity, seed, passes)
	if out != ranOut || !searchable || used >= work {
		return best, used, out
	}
	offsets, more, out := solveCore(ctx, newGraph(c.in), capacity, seed, work-used, k)
	if offsets == nil {
		offsets = best
	}
	return offsets, used + more, out
}

// large reports whether greedy passes come before a search.
func (in *instance) large() bool { return len(in.size) > searchFirst }

// overlaps is the number of ordered pairs of overlapping items, or of items and sections if that is larger.
func (in *instance) overlaps() int64 {
	started, ended := make([]int64, in.sections+1), make([]int64, in.sections+1)
	var members, pairs int64
	each := func(visit func(r span)) {
		for i := range in.size {
			a, b := in.stretches(int32(i))
			visit(a)
			if b.lo < b.hi {
				visit(b)
			}
		}
	}
	each(func(r span) {
		members += int64(r.hi - r.lo)
		started[r.lo+1]++
		ended[r.hi]++
	})
	for s := range in.sections {
		started[s+1] += started[s]
		ended[s+1] += ended[s]
	}
	each(func(r span) { pairs += started[r.hi] - ended[r.lo] })
	return max(members, pairs)
}
