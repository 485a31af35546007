package cuda

import (
	"fmt"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// KeepAll returns the plan that keeps everything in memory, laid out so that it may fit a card; overheads are
// relative to it. Buffers that live for the whole iteration, or are carried into the next, are at the bottom;
// the others take the best-fitting hole when they come, as in an arena allocator. The arena need not be the
// smallest possible: managers that make it smaller are compared with this plan.
func KeepAll(p *plan.Problem) (*plan.Plan, error) {
	pl, err := plan.Assemble(p, plan.Decisions{})
	if err != nil {
		return nil, fmt.Errorf("keep everything: %w", err)
	}
	pl.Manager = "keep-all"
	align := max(p.Align, torchalloc.MinBlock) // what the arena cuts its blocks at
	round := func(size int64) int64 { return (size + align - 1) &^ (align - 1) }
	offsets := make([]int64, len(pl.Instances))
	at := make([]int64, len(p.Buffers)) // of what is at the bottom
	var base int64
	for _, i := range pl.Resident {
		b := pl.Instances[i].Buffer
		at[b], offsets[i] = base, base
		base += round(pl.Instances[i].Size)
	}
	a, err := allocator.NewArena(allocator.Config{Driver: allocator.NewDriver(arenaSpace)})
	if err != nil {
		return nil, fmt.Errorf("keep everything: %w", err)
	}
	blocks := make([]allocator.Block, len(pl.Instances))
	var first uint64
	for s := range pl.Steps {
		st := &pl.Steps[s]
		i := st.Instance
		if st.Kind != plan.Alloc && st.Kind != plan.Free {
			continue
		}
		if b := pl.Instances[i].Buffer; p.Buffers[b].Life != plan.Inside {
			offsets[i] = at[b]
			continue
		}
		switch {
		case pl.Instances[i].Size == 0:
		case st.Kind == plan.Free:
			if err := a.Free(blocks[i]); err != nil {
				return nil, fmt.Errorf("keep everything: %w", err)
			}
		default:
			if blocks[i], err = a.Malloc(round(pl.Instances[i].Size), 0); err != nil {
				return nil, fmt.Errorf("keep everything: %w", err)
			}
			if first == 0 {
				first = blocks[i].Addr // the arena is empty, and its first block at its beginning
			}
			offsets[i] = base + int64(blocks[i].Addr-first)
		}
	}
	pl.Place(offsets)
	pl.Order(p)
	return pl, nil
}

// arenaSpace bounds KeepAll's arena, in bytes.
const arenaSpace = int64(1) << 44
