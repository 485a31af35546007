package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Bytes in memory, position by position, against their limits.
//
// Problem: a schedule asks thousands of times whether a buffer fits from one position to another, and puts it
// there.
//
// Way chosen: one sum for each position. Copies back, which pass most positions, work by blocks of 16: what
// is added to all of a block is written beside it (added), and so is the least room in it (room), which may
// be too little and is never too much. prefetches.go says what that saves.
//
// Complexity: O(positions of the interval), by blocks a sixteenth of that. Rejected: blocks of 8 and of 64,
// which were slower.

// memory is what a schedule holds at each position.
type memory struct {
	m         *model
	steps     *int64  // counted work
	limit     []int64 // of each position, most bytes
	load      []int64 // of each position, bytes in memory
	rerunPeak []int64 // of each position, bytes held while its rerun runs; 0 where there is none
	// By block, while copies back are placed: the least room in it, and what was added to all of it.
	room, added []int64
}

// blockShift makes a block of 16 positions.
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

// holdThroughout adds to what positions hold.
func (mem *memory) holdThroughout(size int64, from, to plan.OpID) {
	for i := from; i < to; i++ {
		mem.load[i] += size
		if mem.rerunPeak[i] > 0 {
			mem.rerunPeak[i] += size
		}
	}
}

// openBlocks begins work by blocks.
func (mem *memory) openBlocks() {
	blocks := mem.m.n>>blockShift + 1
	mem.room, mem.added = slices.Grow(mem.room[:0], blocks)[:blocks],
		slices.Grow(mem.added[:0], blocks)[:blocks]
	clear(mem.added)
	for b := range mem.room {
		mem.room[b] = math.MaxInt64
	}
	for i := range mem.m.n {
		mem.noteRoom(plan.OpID(i))
	}
}

// noteRoom lowers what a block is known to have room for at least to that of position i, what is written
// beside the block aside.
func (mem *memory) noteRoom(i plan.OpID) {
	b := i >> blockShift
	mem.room[b] = min(mem.room[b], mem.limit[i]-mem.load[i])
	if mem.rerunPeak[i] > 0 {
		mem.room[b] = min(mem.room[b], mem.limit[i]-mem.rerunPeak[i])
	}
}

// closeBlocks writes down what was added to whole blocks.
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

// takeBack takes size off what positions hold, for a copy that is issued later than it was. What is known of
// their room stays, and so is too little.
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
