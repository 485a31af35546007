package autopsy

import (
	"context"

	"github.com/gmemtop/gmemtop/timeline"
)

// What a change would take off the peak, worked out on the whole recording: bytes that blocks would not need
// are taken off for as long as they live, and the peak is looked for again. It may have moved to another
// moment, which is why taking the blocks' bytes off the old peak would promise too much. Linear in events
// plus cuts.

// Change is what a lever does to one allocation: it holds Bytes fewer in the moments [From, To). If all of
// its bytes are off from its start to its end, it is never made; if from a later moment on, it ends earlier;
// if To comes before its end, it is allocated again there.
type Change struct {
	Alloc    timeline.AllocID
	From, To timeline.Moment
	Bytes    int64 // rounded
}

// peakWithout returns the peak of allocated bytes after cuts, of the moments before a given one. scratch is
// working memory of d.Len()+2 numbers.
func peakWithout(ctx context.Context, d *timeline.Device, cuts []Change, before timeline.Moment,
	scratch []int64) (int64, error) {
	diff := scratch[:d.Len()+2] // index m+1: the state before the first event comes first
	clear(diff)
	for _, c := range cuts {
		if c.To <= c.From {
			continue
		}
		diff[c.From+1] -= c.Bytes
		diff[min(int(c.To)+1, d.Len()+1)] += c.Bytes
	}
	peak, sum := int64(0), int64(0)
	for i := 0; i <= min(d.Len(), int(before)); i++ {
		if i&0xfffff == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		sum += diff[i]
		peak = max(peak, d.Allocated.At(timeline.Moment(i)-1)+sum)
	}
	return peak, nil
}

// bytesAt returns what cuts take off at one moment.
func bytesAt(cuts []Change, m timeline.Moment) int64 {
	sum := int64(0)
	for _, c := range cuts {
		if c.From <= m && m < c.To {
			sum += c.Bytes
		}
	}
	return sum
}

// life takes some bytes off an allocation for as long as it is allocated.
func life(d *timeline.Device, a timeline.AllocID, bytes int64) Change {
	return Change{a, d.Allocs.Start[a], min(d.Allocs.Requested[a], timeline.Moment(d.Len())), bytes}
}

// cutsOf returns a change for every allocation of which less picks bytes off.
func cutsOf(d *timeline.Device, less func(timeline.AllocID) int64) []Change {
	var cuts []Change
	for a := range d.Allocs.Rounded {
		if n := less(timeline.AllocID(a)); n > 0 {
			cuts = append(cuts, life(d, timeline.AllocID(a), min(n, d.Allocs.Rounded[a])))
		}
	}
	return cuts
}
