package timeline

import "context"

// What a change would take off the peak, worked out on the whole recording: bytes that blocks would not need
// are taken off for as long as they live, and the peak is looked for again. It may have moved to another
// moment, which is why taking the blocks' bytes off the old peak would promise too much. Linear in events
// plus cuts.

// cut takes bytes off the allocated series in the moments [from, to).
type cut struct {
	from, to Moment
	bytes    int64
}

// peakWithout returns the peak of allocated bytes after cuts. scratch is working memory of d.Len()+2 numbers.
func (d *Device) peakWithout(ctx context.Context, cuts []cut, scratch []int64) (int64, error) {
	diff := scratch[:d.Len()+2] // index m+1: the state before the first event comes first
	clear(diff)
	for _, c := range cuts {
		if c.to <= c.from {
			continue
		}
		diff[c.from+1] -= c.bytes
		diff[min(int(c.to)+1, d.Len()+1)] += c.bytes
	}
	peak, sum := int64(0), int64(0)
	for i := 0; i <= d.Len(); i++ {
		if i&0xfffff == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		sum += diff[i]
		peak = max(peak, d.Allocated.At(Moment(i)-1)+sum)
	}
	return peak, nil
}

// bytesAt returns what cuts take off at one moment.
func bytesAt(cuts []cut, m Moment) int64 {
	sum := int64(0)
	for _, c := range cuts {
		if c.from <= m && m < c.to {
			sum += c.bytes
		}
	}
	return sum
}

// life returns a cut of some bytes of an allocation for as long as it is allocated.
func (d *Device) life(a AllocID, bytes int64) cut {
	return cut{d.Allocs.Start[a], min(d.Allocs.Requested[a], Moment(d.Len())), bytes}
}

// cutsOf returns a cut for every allocation of which less picks bytes off.
func (d *Device) cutsOf(less func(AllocID) int64) []cut {
	var cuts []cut
	for a := range d.Allocs.Rounded {
		if n := less(AllocID(a)); n > 0 {
			cuts = append(cuts, d.life(AllocID(a), min(n, d.Allocs.Rounded[a])))
		}
	}
	return cuts
}
