package combine

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Paying for memory.
//
// Once no more swap can be hidden, every further byte costs time: a swap that compute waits for, or reruns.
// The greedy algorithm below takes the gap with the most bytes saved per nanosecond of overhead, each gap in
// its cheaper way. Overheads change with every choice: a dropped input makes the chains that read it longer,
// for candidates and for earlier choices, and a copy takes time on the link that the next one lacks. Since
// overheads hardly ever fall, a stale offer is an upper bound, and it is enough to re-evaluate the top offer
// of the heap before taking it (lazy greedy).
//
// Complexity: O(gaps log gaps) evaluations in practice, each O(length of the chain + stretches of the link).
// Rejected: recomputing all overheads after each choice, which is quadratic.

// offer is a gap with the estimated gain of taking it.
type offer struct {
	rate float64 // bytes per nanosecond
	gap  int32
}

type offers []offer

func (o offers) Len() int { return len(o) }
func (o offers) Less(i, j int) bool {
	return o[i].rate > o[j].rate || o[i].rate == o[j].rate && o[i].gap < o[j].gap
}
func (o offers) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(x any)   { *o = append(*o, x.(offer)) }
func (o *offers) Pop() any {
	x := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return x
}

const (
	// longestChain bounds the ops of one chain that the greedy considers: longer ones cost more than any
	// swap, and the bound keeps planning linear. With more than about 10,000 gaps, chains may have
	// longestTogether ops in total, and chainAnyway each.
	longestChain    = 384
	longestTogether = 8_000_000
	chainAnyway     = 8
	// mostReaders bounds the chosen chains that a further drop may lengthen.
	mostReaders = 32
)

// longestOf returns the maximum ops of one chain for a number of gaps.
func longestOf(gaps int) int { return min(longestChain, chainAnyway+longestTogether/(1+gaps)) }

// ways says which ways of leaving memory a greedy may use.
type ways struct {
	swap, recompute bool
	// anyScratch takes chains even where their scratch goes over the limit.
	anyScratch bool
}

// pay takes gaps by bytes saved per overhead until the limit holds, or none is left.
func (s *selection) pay(ctx context.Context, order []int32, w ways) error {
	var o offers
	for _, g := range order {
		if how, overhead := s.cheapest(g, w); how != keep {
			o = append(o, offer{rate(s.size(g), overhead), g})
		}
	}
	heap.Init(&o)
	for turn := 0; len(o) > 0 && !s.fits(); turn++ {
		if turn%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		top := o[0]
		how, overhead := s.cheapest(top.gap, w)
		if how == keep {
			heap.Pop(&o)
			continue
		}
		if r := rate(s.size(top.gap), overhead); r < top.rate {
			o[0].rate = r
			heap.Fix(&o, 0)
			if o[0].gap != top.gap {
				continue
			}
		}
		heap.Pop(&o)
		s.take(top.gap, how)
	}
	return nil
}

// cheapest returns the cheaper way for a gap to leave memory throughout, and its overhead in nanoseconds;
// keep if there is no way or it would not help.
func (s *selection) cheapest(g int32, w ways) (choice, int64) {
	x := &s.gaps[g]
	if s.how[g] != keep || !s.helps(x.After+1, x.Before) {
		return keep, 0
	}
	how, overhead := keep, int64(0)
	if w.swap && s.pinnable(g) {
		t := s.exposure(g)
		if s.dependents(g, func(d int32, longer, extra int64) bool {
			t += longer
			return w.anyScratch || !s.over(s.fetch[d], extra)
		}) {
			how, overhead = swap, t
		}
	}
	if w.recompute {
		switch t, fits, ok := s.again(g, w); {
		case !ok || how == swap && t >= overhead:
		case fits:
			how, overhead = recompute, t
		default:
			how = keep // recomputing is cheaper once there is room for its scratch: postponed
		}
	}
	return how, overhead
}

// take takes a gap out of memory throughout.
func (s *selection) take(g int32, how choice) {
	x := &s.gaps[g]
	if how == swap {
		s.why[g] = "the swap shows, and is cheaper than to recompute"
		s.swap(g, x.After+1, x.Before)
	} else {
		s.why[g] = "saves the most bytes per time recomputed"
		s.leave(g, recompute, x.After+1, x.Before)
		s.chain(g)
	}
	s.lengthen(g)
}

// revise swaps what later choices have made dearer to recompute than to swap.
func (s *selection) revise(ctx context.Context) error {
	for g := range s.gaps {
		if s.how[g] != recompute || s.fetch[g] != s.gaps[g].Before || !s.pinnable(int32(g)) {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		x := &s.gaps[g]
		one := [1]plan.BufferID{x.Buffer}
		if c, err := s.chains.At(x.Before, one[:], s.away); err != nil || c.Time > s.exposure(int32(g)) {
			s.stay(int32(g))
			s.why[g] = "the swap shows, and is cheaper than to recompute by now"
			s.swap(int32(g), x.After+1, x.Before)
		}
	}
	return nil
}

// together lets chains share: a chain's by-products that a later op needs stay in memory from there on, if
// the limit allows, instead of being recomputed again. By-products that have been swapped out come back from
// the host sooner instead, on the same condition.
func (s *selection) together(ctx context.Context) error {
	order := s.order[:0]
	for g := range s.gaps {
		if s.how[g] == recompute {
			order = append(order, int32(g))
		}
	}
	s.order = order
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(s.fetch[a], s.fetch[b]) })
	for turn, g := range order {
		if turn%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if s.fetch[g] != s.gaps[g].Before {
			continue // an earlier chain brings it back
		}
		for _, how := range [...]choice{swap, recompute} {
			if err := s.share(g, how); err != nil {
				break
			}
		}
	}
	return s.hasten(ctx)
}

// hasten moves fetches of swaps earlier, as far as the limit allows, if a chain reads their buffer before the
// op for which they come back.
func (s *selection) hasten(ctx context.Context) error {
	for turn, g := range s.order {
		if turn%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		at := s.fetch[g]
		one := [1]plan.BufferID{s.gaps[g].Buffer}
		c, err := s.chains.At(at, one[:], s.away)
		if err != nil {
			continue
		}
		for _, o := range c.Ops {
			for _, a := range s.p.AccessesOf(o) {
				if d := s.gapAt(a.Buffer, at); d >= 0 && s.how[d] == swap && s.fetch[d] <= at &&
					a.Mode.Reads() {
					due := s.at.reach[at] - s.inTime(d)
					s.sooner(d, plan.OpID(sort.Search(int(at), func(k int) bool {
						return s.at.reach[k+1] > due
					})))
				}
			}
		}
	}
	return nil
}

// share brings back, where the chain of a gap runs, those of its by-products that are absent in the given
// way.
func (s *selection) share(g int32, how choice) error {
	at := s.gaps[g].Before
	one := [1]plan.BufferID{s.gaps[g].Buffer}
	c, err := s.chains.At(at, one[:], s.away)
	if err != nil || len(c.Ops) < 2 {
		return err
	}
	for _, o := range c.Ops {
		for _, a := range s.p.AccessesOf(o) {
			if !a.Mode.Writes() || a.Buffer == one[0] {
				continue
			}
			d := s.gapAt(a.Buffer, at)
			if d >= 0 && s.how[d] == how && s.release[d] <= at && at < s.fetch[d] &&
				s.tree.Max(int(at), int(s.fetch[d]))+s.size(d) <= s.limit {
				if how == recompute {
					s.why[d] = "stays from a chain that makes it on its way"
				}
				s.move(d, s.release[d], at)
			}
		}
	}
	return nil
}

// apart undoes together for recomputed gaps.
func (s *selection) apart() {
	for g := range s.gaps {
		if x := &s.gaps[g]; s.how[g] == recompute && s.fetch[g] != x.Before {
			s.move(int32(g), s.release[g], x.Before)
		}
	}
}
