// Package torchalloc holds the rules by which PyTorch's caching allocator makes sizes: of blocks from
// requests, of segments from blocks. They are those of c10/core/CachingDeviceAllocator.h and
// c10/cuda/CUDACachingAllocator.cpp. replay/allocator emulates the allocator with them; readers, the timeline
// and planners ask them alone.
package torchalloc

// The sizes that the allocator's rules are made of, in bytes, by their names in PyTorch.
const (
	MinBlock      = 512      // kMinBlockSize: the smallest block, and what all blocks are multiples of
	SmallSize     = 1 << 20  // kSmallSize: the largest block of the small pool
	SmallBuffer   = 2 << 20  // kSmallBuffer: a segment of the small pool, or its page in an expandable one
	minLargeAlloc = 10 << 20 // kMinLargeAlloc: the smallest block with a segment of its own
	roundLarge    = 2 << 20  // kRoundLarge: such a segment is a multiple of it
	LargeBuffer   = 20 << 20 // kLargeBuffer: other segments of the large pool (large_segment_size_mb)
)

// Granularity is the size of a device's pages: physical memory is made, mapped and unmapped in multiples of
// it. It is what cuMemGetAllocationGranularity returns for device memory on NVIDIA's GPUs since Pascal.
const Granularity = 2 << 20

// Segment returns the size of the segment that the driver is asked for where no hole has room for a block of
// rounded bytes, and whether it is one of the small pool (get_allocation_size). large is [LargeBuffer] unless
// set otherwise.
func Segment(rounded, large int64) (size int64, small bool) {
	switch {
	case rounded <= SmallSize:
		return SmallBuffer, true
	case rounded < minLargeAlloc:
		return max(large, roundUp(rounded, roundLarge)), false
	}
	return roundUp(rounded, roundLarge), false
}

// Splits reports whether the rest of a hole is split off the block that takes the hole (should_split).
// Settings can forbid it for large blocks; where segments are expandable, the large pool splits as the small
// one does.
func Splits(rest int64, small bool) bool {
	if small {
		return rest >= MinBlock
	}
	return rest > SmallSize
}

func roundUp(size, multiple int64) int64 { return (size + multiple - 1) / multiple * multiple }
