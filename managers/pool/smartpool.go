package pool

import (
	"context"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// SmartPool (Zhang, Yeung, Shu, He, Wang: "Efficient Memory Management for GPU-based Deep Learning Systems",
// arXiv 1903.06631; the authors' code in the pull request of their framework).
//
// Problem: training repeats, so the lifetimes of one iteration are those of all; addresses can be chosen
// once, offline. Rule: buffers are vertices of an interval graph, weighted by size; two that are alive
// together share an edge. Colour the heaviest first (ties: the earlier one first): give it the smallest gap
// between its coloured neighbours that fits, else the bytes above them. First fit takes the lowest gap. The
// authors report the same results for both on their networks. Blocks that cross into the next iteration are
// coloured apart, first, and their area is kept twice, used in turn, since two iterations' blocks may be
// alive together; everything else goes above. Blocks that stay for ever lie below all.
//
// Our reading: the gap below the first coloured range counts like any other (their code tries it only when
// all neighbours form one range). A buffer that is gone before its successor is made needs no second place;
// we keep the two areas all the same, as they do, and exact does not. Complexity: O(n^2) in the paper; here
// O(n log n) with an index of ranges. Rejected by the authors: optimal colouring, as NP-hard.

// smartPoolBestFit returns the pool with best fit, the authors' default.
func smartPoolBestFit() plan.Manager { return smartPool("smartpool", "the smallest", pack.BestFit) }

// smartPoolFirstFit returns the pool with first fit.
func smartPoolFirstFit() plan.Manager { return smartPool("smartpool-ff", "the lowest", pack.FirstFit) }

// fit is a one-pass packing.
type fit func(ctx context.Context, q *pack.Problem, opts ...pack.FitOption) (pack.Result, error)

// smartPoolSwap returns the later, swap-aware variant: what crosses iterations is coloured with everything
// else, with an edge across the iteration's end instead of two areas. The same colouring serves plans that
// swap, whose absences are gaps in a buffer's life.
func smartPoolSwap() plan.Manager {
	return planner{
		info: plan.Info{Name: "smartpool-swap", After: "Zhang 2019", Family: plan.Pooling,
			Needs: traces.Lifetimes,
			Summary: "SmartPool's later variant: colours blocks that cross into the next iteration " +
				"together with the rest.",
			Reading: "the gap below the first neighbour counts like any other"},
		make: func(ctx context.Context, p *plan.Problem, _ plan.Request) (*plan.Plan, error) {
			return placed(ctx, p, place.Options{Rule: place.BestFit})
		},
	}
}

func smartPool(name, gap string, rule fit, opts ...pack.FitOption) plan.Manager {
	return planner{
		info: plan.Info{Name: name, After: "Zhang 2019", Family: plan.Pooling, Needs: traces.Lifetimes,
			Summary: "Colours one iteration's interval graph, the largest block first, into " + gap +
				" gap between its neighbours that fits.",
			Reading: "the gap below the first neighbour counts like any other"},
		make: func(ctx context.Context, p *plan.Problem, _ plan.Request) (*plan.Plan, error) {
			return colour(ctx, p, rule, opts)
		},
	}
}

// colour places what persists, then what is carried, twice, then the rest.
func colour(ctx context.Context, p *plan.Problem, rule fit, opts []pack.FitOption) (*plan.Plan, error) {
	pl, err := keepAll(p)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(pl.Instances))
	var base int64
	var carried, normal pack.Problem
	item := make([]int, len(pl.Instances))
	slot := map[plan.BufferID]int{}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		switch p.Buffers[x.Buffer].Life {
		case plan.Persistent:
			offsets[i] = base
			base += x.Size
		case plan.Carried:
			k, seen := slot[x.Buffer]
			if !seen {
				k = len(carried.Items)
				slot[x.Buffer] = k
				carried.Items = append(carried.Items, pack.Item{Start: -1, End: int64(x.To), Size: x.Size})
			} else {
				carried.Items[k].Start2, carried.Items[k].End2 = int64(x.From), int64(x.To)
			}
			item[i] = k
		default:
			item[i] = len(normal.Items)
			normal.Items = append(normal.Items, pack.Item{Start: int64(x.From), End: int64(x.To),
				Size: x.Size})
		}
	}
	first, err := rule(ctx, &carried, opts...)
	if err != nil {
		return nil, fmt.Errorf("colour what crosses iterations: %w", err)
	}
	rest, err := rule(ctx, &normal, opts...)
	if err != nil {
		return nil, fmt.Errorf("colour what lives within the iteration: %w", err)
	}
	for i := range pl.Instances {
		switch p.Buffers[pl.Instances[i].Buffer].Life {
		case plan.Carried:
			offsets[i] = base + first.Offsets[item[i]]
		case plan.Inside:
			offsets[i] = base + 2*first.Top + rest.Offsets[item[i]]
		}
	}
	pl.Place(offsets)
	pl.Order(p)
	pl.LowerBound, _ = p.PeakLive()
	if first.Top > 0 {
		pl.Note("what crosses iterations has two areas of %d bytes, used in turn", first.Top)
	}
	return pl, nil
}

// Exact returns our own placement: a search that begins with the greedy ones and certifies its result if it
// can; see package pack.
func Exact() plan.Manager {
	return planner{
		info: plan.Info{Name: "exact", Ours: true, Family: plan.Pooling, Needs: traces.Lifetimes,
			Summary: "Searches for the smallest packing, by bounds and decomposition, and says " +
				"when it is proven optimal."},
		make: func(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
			opt := place.Options{Seed: r.Seed, Work: exactWork(r, len(p.Buffers))}
			if r.Progress != nil {
				opt.Progress = func(best, bound int64) { r.Progress(bound, best) }
			}
			return placed(ctx, p, opt)
		},
	}
}

// exactWork is how many steps exact may take. If the request does not say, it is the packer's default for
// problems small enough that a search tends to end in a proof; for larger ones it corresponds to the time
// that planning may take, some 2 s for 10,000 buffers.
func exactWork(r plan.Request, buffers int) int64 {
	const provable, perBuffer, least = 2000, 16, 160_000
	if r.Work > 0 || buffers <= provable {
		return r.Work
	}
	return max(least, perBuffer*int64(buffers))
}
