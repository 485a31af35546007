package steps

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The iteration detector of SmartPool and AutoSwap (Zhang et al., arXiv 1903.06631), as in its authors' code:
// the published reference for the detector that gmemtop uses, and the source of the op indices in those two
// managers' plans.
//
// Every op on memory gets a number that does not depend on addresses. AutoSwap: the size for a Malloc, for
// any other op the distance in ops to the previous op on the same pointer. SmartPool, which sees Malloc and
// Free only: the size for a Malloc, the block's lifetime in ops for a Free; that is the same number. A length
// len repeats at i if the len-1 numbers from i equal those from i+len. All starts and lengths are tried,
// shortest first, and the longest is kept; AutoSwap stops at the first above its threshold, SmartPool repeats
// the test inside the segment found, which may hold several iterations. The start then moves on to the first
// Malloc.
//
// Complexity: quadratic in ops, several times over; the authors call it their bottleneck. It serves for tens
// of thousands of ops.

// SmartPoolPeriod is an iteration found by the SmartPool and AutoSwap detector, in ops counted from the
// device's first.
type SmartPoolPeriod struct {
	Location, Length int
}

// Thresholds of the authors' code: for the swap pool, for the pool, and for the test inside a found segment.
const (
	swapThreshold   = 1000
	swapThresholdTo = 2000
	poolCheckEvery  = 300
	poolThreshold   = 100
	innerThreshold  = 50
)

// SmartPool returns the iteration that SmartPool's detector finds in the device's allocations and frees or,
// if the trace has accesses, the one that AutoSwap's finds in all ops; false if there is none.
func SmartPool(d *timeline.Device) (SmartPoolPeriod, bool) {
	rep, malloc := opSignatures(d)
	if hasAccesses(d) {
		return autoSwapPeriod(rep, malloc)
	}
	return smartPoolPeriod(rep, malloc)
}

func hasAccesses(d *timeline.Device) bool {
	return slices.ContainsFunc(d.Timeline().Trace.Accesses,
		func(a traces.Access) bool { return a.Device == d.ID })
}

// opSignatures returns the number of each op of the device, in the order of the source, and whether it is a
// Malloc.
func opSignatures(d *timeline.Device) (rep []int64, malloc []bool) {
	last := map[uint64]int{}
	add := func(addr uint64, size int64, isMalloc bool) {
		i := len(rep)
		n := size
		if prev, ok := last[addr]; ok && !isMalloc {
			n = int64(i - prev)
		}
		last[addr] = i
		rep = append(rep, n)
		malloc = append(malloc, isMalloc)
	}
	tr := d.Timeline().Trace
	acc := tr.Accesses
	first, end := tr.DeviceEvents(d.ID)
	for i := first; ; i++ {
		for ; len(acc) > 0; acc = acc[1:] {
			// The device first: other devices' events are numbered separately.
			if acc[0].Device != d.ID {
				continue
			}
			if int(acc[0].Event) > i && i < end {
				break
			}
			add(acc[0].Addr, acc[0].Size, false)
		}
		if i == end {
			return rep, malloc
		}
		switch a := tr.Events.Action[i]; {
		case a == traces.Alloc:
			add(tr.Events.Addr[i], tr.Events.Size[i], true)
		case a.IsFreeRequest():
			add(tr.Events.Addr[i], tr.Events.Size[i], false)
		}
	}
}

// autoSwapPeriod tests as the ops come in, every threshold ops; the threshold grows with the number of ops.
func autoSwapPeriod(rep []int64, malloc []bool) (SmartPoolPeriod, bool) {
	threshold := swapThreshold
	for n := threshold; ; n += threshold {
		n = min(n, len(rep))
		if p := repeatable(rep[:n], threshold); p.Length > threshold {
			return p.fromMalloc(malloc), true
		}
		if n == len(rep) {
			return SmartPoolPeriod{}, false
		}
		threshold = min(swapThresholdTo, max(threshold, n/10))
	}
}

// smartPoolPeriod tests at check points that double, from the first 300 ops on.
func smartPoolPeriod(rep []int64, malloc []bool) (SmartPoolPeriod, bool) {
	for n := poolCheckEvery; ; n *= 2 {
		n = min(n, len(rep))
		if p := repeatable(rep[:n], n); p.Length > poolThreshold {
			return p.verified(rep).fromMalloc(malloc), true
		}
		if n == len(rep) {
			return SmartPoolPeriod{}, false
		}
	}
}

// verified repeats the test inside the segment, and cuts the segment if it holds several iterations.
func (p SmartPoolPeriod) verified(rep []int64) SmartPoolPeriod {
	if in := repeatable(rep[p.Location:p.Location+p.Length], p.Length); in.Length > innerThreshold {
		p.Length = in.Length
		p.Location += in.Location
	}
	return p
}

// fromMalloc moves on to the first Malloc of the segment.
func (p SmartPoolPeriod) fromMalloc(malloc []bool) SmartPoolPeriod {
	for p.Location < len(malloc)-1 && !malloc[p.Location] {
		p.Location++
	}
	return p
}

// repeatable is the brute force: the first length above the threshold, else the longest.
func repeatable(rep []int64, threshold int) SmartPoolPeriod {
	var best SmartPoolPeriod
	for i := range rep {
		for n := best.Length + 1; n <= (len(rep)-i)/2; n++ {
			if slices.Equal(rep[i:i+n-1], rep[i+n:i+2*n-1]) {
				best = SmartPoolPeriod{Location: i, Length: n}
				if n > threshold {
					return best
				}
			}
		}
	}
	return best
}
