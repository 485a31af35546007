package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Bytes in memory, position by position, against their limits.
//
// The problem: a schedule asks thousands of times whether a buffer fits from one position to another, and
// then puts it there.
//
// The approach: one sum per position. Copies back, which span most positions, work by blocks of 16: a block
// records what was added to all of it (added) and the least room in it (room), which may be an underestimate
// but never an overestimate. prefetches.go says what that saves.
//
// Complexity: O(positions of the interval), by blocks a sixteenth of that. Rejected: blocks of 8 and of 64,
// which were slower.

// memory is what a schedule holds at each position.
type memory struct {
	m         *model
	steps     *int64  // counted work
	limit     []int64 // the most bytes at each position
	load      []int64 // bytes in memory at each position
	rerunPeak []int64 // bytes held while the rerun at each position runs; 0 if there is none
	// By block, while copies back are placed: the least room in the block, and what was added to all of it.
	room, added []int64
}

// blockShift gives blocks of 16 positions. It changes how long placing copies takes, and no plan.
const blockShift = 4

// fits reports whether size more bytes fit during ops [from, to).
func (mem *memory) fits(size int64, from, to plan.OpID) bool {
	for i := from; i < to; i++ {
		if mem.load[i]+size > mem.limit[i] {
			*mem.steps += int64(i-from) / 4
			return false
		}
	}
	*mem.steps += int64(to-from) / 4
	return true
}

func (mem *memory) hold(size int64, from, to plan.OpID) {
	for i := from; i < to; i++ {
		mem.load[i] += size
	}
}

// holdThroughout adds size to what positions hold, during reruns too.
func (mem *memory) holdThroughout(size int64, from, to plan.OpID) {
	for i := from; i < to; i++ {
		mem.load[i] += size
		if mem.rerunPeak[i] > 0 {
			mem.rerunPeak[i] += size
		}
	}
}

// openBlocks starts work by blocks.
func (mem *memory) openBlocks() {
	blocks := mem.m.n>>blockShift + 1
	mem.room, mem.added = slices.Grow(mem.room[:0], blocks)[:blocks],
		slices.Grow(mem.added[:0], blocks)[:blocks]
	clear(mem.added)
	for b := range mem.room {
		room := int64(math.MaxInt64)
		for i := b << blockShift; i < min((b+1)<<blockShift, mem.m.n); i++ {
			room = min(room, mem.limit[i]-max(mem.load[i], mem.rerunPeak[i]))
		}
		mem.room[b] = room
	}
}

// closeBlocks applies what was added to whole blocks.
func (mem *memory) closeBlocks() {
	for b, size := range mem.added {
		if size != 0 {
			mem.holdThroughout(
				size,
				plan.OpID(b)<<blockShift,
				min(plan.OpID(b+1)<<blockShift, plan.OpID(mem.m.n)),
			)
		}
	}
}

// takeBack subtracts size from what positions hold, for a copy that is issued later than before. The known
// room stays as it is, so it is an underestimate.
func (mem *memory) takeBack(size int64, from, to plan.OpID) {
	for i := from; i < to; {
		b := i >> blockShift
		end := min((b+1)<<blockShift, to)
		if end-i == 1<<blockShift {
			mem.added[b] -= size
		} else {
			mem.holdThroughout(-size, i, end)
		}
		i = end
	}
}
