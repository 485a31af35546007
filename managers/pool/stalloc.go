package pool

import (
	"context"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// STAlloc (arXiv 2507.16274; its authors' repository): SmartPool's idea for today's models.
//
// Problem: offline planning of 10^4 to 10^5 tensors of a transformer; few sizes, lifetimes that fall into
// phases. Rule: what stays (weights, gradients, optimizer state) lies below, then what crosses iterations,
// then activations. Activations that are made in one phase and freed in one phase belong together: each such
// group is packed on its own and placed as one block, large groups first; then what lives within one phase
// fills the real holes, best fit, the largest first. The same is planned without groups, and the better plan
// is kept (the repository's "autotune"). Tensors whose sizes change from step to step are served online; a
// recording of one iteration has none.
//
// Our reading: a phase is a forward, backward or optimizer stretch of one module; without modules, of the
// iteration. The repository's second algorithm ("split and fuse") is not reproduced; plain best fit stands in
// for it. Complexity: two greedy packings, O(n log n). Rejected: search (that is what exact does).

// stAlloc returns the manager.
func stAlloc() plan.Manager {
	return planner{
		info: plan.Info{Name: "stalloc", After: "STAlloc 2025", Family: plan.Pooling, Needs: traces.Lifetimes,
			Summary: "Groups activations by the phases in which they are made and freed, places groups as " +
				"blocks, fills holes with the rest.",
			Reading: "phases are stretches of one module; its second algorithm is plain best fit here"},
		make: func(ctx context.Context, p *plan.Problem, _ plan.Request) (*plan.Plan, error) {
			grouped, err := spaceTime(ctx, p, true)
			if err != nil {
				return nil, err
			}
			single, err := spaceTime(ctx, p, false)
			if err != nil {
				return nil, err
			}
			if single.Footprint < grouped.Footprint {
				single.Note("planned without groups, which came out smaller")
				return single, nil
			}
			grouped.Note("planned in groups of equal phases")
			return grouped, nil
		},
	}
}

// phaseKey names the stretch that an op lies in.
type phaseKey struct {
	phase  traces.Phase
	module string
}

type groupKey struct{ made, freed phaseKey }

// spaceTime places persistent buffers, carried ones, groups, and the rest, in this order.
func spaceTime(ctx context.Context, p *plan.Problem, groups bool) (*plan.Plan, error) {
	pl, err := keepAll(p)
	if err != nil {
		return nil, err
	}
	phaseOf := func(i plan.OpID) phaseKey {
		i = min(max(i, 0), plan.OpID(len(p.Ops)-1))
		return phaseKey{p.Ops[i].Phase, p.Ops[i].Module}
	}
	offsets := make([]int64, len(pl.Instances))
	item := make([]int, len(pl.Instances))
	q := pack.Problem{}
	slot := map[plan.BufferID]int{}
	members := map[groupKey][]int{}
	var order []groupKey
	var base int64
	for i := range pl.Instances {
		x := &pl.Instances[i]
		b := &p.Buffers[x.Buffer]
		item[i] = -1
		if b.Life == plan.Persistent {
			offsets[i] = base
			base += x.Size
			continue
		}
		if k, seen := slot[x.Buffer]; seen && b.Life == plan.Carried {
			q.Items[k].Start2, q.Items[k].End2, item[i] = int64(x.From), int64(x.To), k
			continue
		}
		item[i] = len(q.Items)
		slot[x.Buffer] = item[i]
		q.Items = append(q.Items, pack.Item{Start: int64(x.From), End: int64(x.To), Size: x.Size})
		if made, freed := phaseOf(b.Start), phaseOf(b.End-1); groups && b.Life == plan.Inside &&
			made != freed {
			key := groupKey{made, freed}
			if members[key] == nil {
				order = append(order, key)
			}
			members[key] = append(members[key], item[i])
		}
	}
	if groups {
		if err := placeGroups(ctx, &q, order, members); err != nil {
			return nil, err
		}
	}
	res, err := pack.BestFit(ctx, &q)
	if err != nil {
		return nil, fmt.Errorf("place what is in no group: %w", err)
	}
	for i := range pl.Instances {
		if item[i] >= 0 {
			offsets[i] = base + res.Offsets[item[i]]
		}
	}
	pl.Place(offsets)
	pl.Order(p)
	pl.LowerBound, _ = p.PeakLive()
	return pl, nil
}

// placeGroups packs each group by itself, places the groups as blocks, and fixes their members there.
func placeGroups(ctx context.Context, q *pack.Problem, order []groupKey, members map[groupKey][]int) error {
	q.Fixed = slices.Repeat([]int64{-1}, len(q.Items))
	var blocks pack.Problem
	inner := make([][]int64, len(order))
	for g, key := range order {
		var local pack.Problem
		block := pack.Item{Start: 1 << 62, End: -1 << 62}
		for _, k := range members[key] {
			it := q.Items[k]
			local.Items = append(local.Items, it)
			block.Start, block.End = min(block.Start, it.Start), max(block.End, it.End)
		}
		res, err := pack.BestFit(ctx, &local)
		if err != nil {
			return fmt.Errorf("pack a group: %w", err)
		}
		inner[g], block.Size = res.Offsets, res.Top
		blocks.Items = append(blocks.Items, block)
	}
	res, err := pack.BestFit(ctx, &blocks)
	if err != nil {
		return fmt.Errorf("place the groups: %w", err)
	}
	for g, key := range order {
		for n, k := range members[key] {
			q.Fixed[k] = res.Offsets[g] + inner[g][n]
		}
	}
	return nil
}
