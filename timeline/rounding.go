package timeline

import (
	"encoding/json"
	"math/bits"
	"strconv"

	"github.com/gmemtop/gmemtop/traces"
)

// minBlock is the caching allocator's smallest block and the multiple of every other (kMinBlockSize).
const minBlock = 512

// rounding is the caching allocator's rule from requested to rounded bytes, as PyTorch's round_size has it: multiples of 512
// bytes, or, from 1 MiB up and where roundup_power2_divisions is set, the next of so many equal steps between powers of two. What
// the rule cannot know is a remainder too small to split off, which stays in the block.
type rounding struct {
	none      bool       // the device is not the caching allocator's
	divisions [16]uint64 // of sizes [2^(20+i), 2^(21+i)); the first also of what is smaller, the last of what is larger
}

// newRounding returns the rule for a device of a trace.
func newRounding(tr *traces.Trace, kind traces.DeviceKind) rounding {
	r := rounding{none: kind != traces.DeviceGPU}
	var byMiB map[string]uint64
	if json.Unmarshal([]byte(tr.Setting("roundup_power2_divisions")), &byMiB) != nil {
		return r
	}
	for i := range r.divisions {
		r.divisions[i] = byMiB[strconv.Itoa(1<<i)]
	}
	return r
}

// round returns the rounded size of a requested one.
func (r *rounding) round(size int64) int64 {
	if r.none || size <= 0 {
		return size
	}
	if size <= minBlock {
		return minBlock
	}
	n := uint64(size)
	i := min(max(bits.Len64(n)-1-20, 0), len(r.divisions)-1)
	if d := r.divisions[i]; d > 1 && n/minBlock >= d && n > minBlock*d {
		return int64(nextDivision(n, d))
	}
	return (size + minBlock - 1) &^ (minBlock - 1)
}

// nextDivision returns the smallest of the d equal steps between two powers of two that is not below n.
func nextDivision(n, d uint64) uint64 {
	if n&(n-1) == 0 {
		return n
	}
	floor := uint64(1) << (bits.Len64(n) - 1)
	step := floor >> (bits.Len64(d) - 1)
	if step == 0 {
		return floor << 1
	}
	return (n + step - 1) &^ (step - 1)
}
