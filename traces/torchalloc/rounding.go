package torchalloc

import "math/bits"

// maxRounded is the largest size that is rounded: above it, the next power of two would overflow.
const maxRounded = 1 << 62

// Rounding is the rule by which PyTorch's caching allocator rounds requested bytes (round_size in
// c10/cuda/CUDACachingAllocator.cpp), as set by roundup_power2_divisions: the number of equal steps into
// which sizes [2^(20+i), 2^(21+i)) are divided, below 2 for none. The first also applies to smaller sizes,
// the last to larger ones. The zero value is the rule without settings: multiples of 512 bytes.
type Rounding [16]int64

// Round returns the rounded size of a request of size bytes. Sizes below 1, and those that no device can
// have, stay unchanged.
func (r *Rounding) Round(size int64) int64 {
	if size <= 0 || size > maxRounded {
		return size
	}
	if size <= MinBlock {
		return MinBlock
	}
	i := min(max(bits.Len64(uint64(size))-1-20, 0), len(r)-1)
	if d := r[i]; d > 1 && size/MinBlock >= d && size > MinBlock*d {
		return nextDivision(size, d)
	}
	return (size + MinBlock - 1) &^ (MinBlock - 1)
}

// Rounded returns the rounded size of a request under the rule without settings.
func Rounded(size int64) int64 { return new(Rounding).Round(size) }

// nextDivision returns the smallest of the d equal steps between two powers of two that is not below n.
func nextDivision(n, d int64) int64 {
	if n&(n-1) == 0 {
		return n
	}
	floor := int64(1) << (bits.Len64(uint64(n)) - 1)
	step := floor >> (bits.Len64(uint64(d)) - 1)
	if step == 0 {
		return floor << 1
	}
	return (n + step - 1) &^ (step - 1)
}
