package combine

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Algorithms under a limit.
//
// None of the three methods chooses how an op is computed; the frameworks for which they were built do, and
// take the fastest algorithm whose workspace fits. So do we: an op keeps its recorded variant if that fits
// beside everything that cannot leave memory while the op runs; otherwise it uses the fastest that does, or
// the one with the smallest workspace. The planners then see the problem with those durations and workspaces.
//
// Complexity: O(ops + buffers + gaps) a limit.

// smallest is the share of the peak, as its inverse, below which a buffer is not worth a decision: a copy's
// latency and the bookkeeping cost more than its bytes are worth.
const smallest = 1 << 16

// view is a problem as a limit makes it look, with what planners want to know of it.
type view struct {
	p        *plan.Problem
	variants []uint8 // of the original; nil if all are the recorded ones
	gaps     []plan.Gap
	chains   *chain.Builder
}

// look returns the view of a problem under a limit on live bytes, 0 for none; it reuses last if that is the
// same.
func look(p *plan.Problem, limit int64, last *view) (*view, error) {
	var gaps []plan.Gap
	if last != nil {
		gaps = last.gaps
	} else {
		peak, _ := p.PeakLive()
		gaps = p.Gaps(max(1, peak/smallest), 1)
	}
	v := fitting(p, gaps, limit)
	if last != nil && slices.Equal(v, last.variants) {
		return last, nil
	}
	q := p
	if v != nil {
		c := *p
		c.Ops, c.Buffers = slices.Clone(p.Ops), slices.Clone(p.Buffers)
		for i := range c.Ops {
			if op := &c.Ops[i]; op.Variants != nil {
				chosen := op.Variants[v[i]]
				op.Duration, op.Variants = chosen.Duration, nil
				if op.Workspace != plan.NoBuffer {
					c.Buffers[op.Workspace].Size = chosen.Workspace
				}
			}
		}
		if err := c.Finish(); err != nil {
			return nil, err
		}
		q = &c
	}
	return &view{p: q, variants: v, gaps: gaps, chains: chain.New(q)}, nil
}

// fitting chooses the variants; nil if all are the recorded ones.
func fitting(p *plan.Problem, gaps []plan.Gap, limit int64) []uint8 {
	if limit <= 0 {
		return nil
	}
	var v []uint8
	var stays []int64 // of each op: the bytes that cannot leave while it runs
	for i := range p.Ops {
		op := &p.Ops[i]
		if len(op.Variants) < 2 || op.Workspace == plan.NoBuffer {
			continue
		}
		if stays == nil {
			stays = unmovable(p, gaps)
		}
		if best := fastest(p, op.Variants, limit-stays[i]+p.Rounded(op.Workspace)); best != 0 {
			if v == nil {
				v = make([]uint8, len(p.Ops))
			}
			v[i] = uint8(best)
		}
	}
	return v
}

// fastest returns the first variant if its workspace fits into room, otherwise the fastest that fits,
// otherwise the one with the smallest workspace.
func fastest(p *plan.Problem, variants []plan.Variant, room int64) int {
	bytes := func(k int) int64 { return (variants[k].Workspace + p.Align - 1) &^ (p.Align - 1) }
	best := 0
	for k := 1; k < len(variants) && bytes(0) > room; k++ {
		switch fits := bytes(best) <= room; {
		case !fits && bytes(k) < bytes(best), fits && bytes(k) <= room &&
			variants[k].Duration < variants[best].Duration:
			best = k
		}
	}
	return best
}

// unmovable returns, for each op, the live bytes that are in no gap.
func unmovable(p *plan.Problem, gaps []plan.Gap) []int64 {
	change := make([]int64, len(p.Ops)+1)
	for i := range gaps {
		g := &gaps[i]
		change[g.After+1] -= p.Rounded(g.Buffer)
		change[g.Before] += p.Rounded(g.Buffer)
	}
	load := p.Load()
	var sum int64
	for i := range load {
		sum += change[i]
		load[i] += sum
	}
	return load
}
