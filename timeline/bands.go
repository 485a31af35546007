package timeline

import "context"

// liveSet is the live set at a moment that moves forward: dead allocations are dropped and new ones appended,
// which keeps the set in the order of Allocs. Moving costs O(size + log n), with the ends and sizes beside
// the ids so that the walk is sequential.
type liveSet struct {
	d     *Device
	begun AllocID
	ids   []AllocID
	ends  []Moment
	sizes []int64
	fresh []AllocID
}

// advance moves the set to m, which must not lie before the previous moment.
func (l *liveSet) advance(m Moment) {
	n := 0
	for i, end := range l.ends {
		if end > m {
			l.ids[n], l.ends[n], l.sizes[n] = l.ids[i], end, l.sizes[i]
			n++
		}
	}
	l.ids, l.ends, l.sizes = l.ids[:n], l.ends[:n], l.sizes[:n]
	a, to := &l.d.Allocs, l.d.Begun(m)
	l.fresh = after(a.Requested, a.maxRequested, l.begun, to, m, l.fresh[:0])
	for _, id := range l.fresh {
		l.ids, l.ends, l.sizes = append(l.ids, id), append(l.ends, a.Requested[id]),
			append(l.sizes, a.Rounded[id])
	}
	l.begun = to
}

// Bands returns, for each of the n columns of window w, the allocations alive at the column's MaxAt stacked
// in the order of Allocs, bottom up, so that the topmost band ends at the column's Max. Neighbours smaller
// than minBytes become one band, up to where a larger one stands alone. A band with Alloc NoAlloc is
// Totals.Unattributed.
func Bands(ctx context.Context, d *Device, w Window, n int, minBytes int64) ([][]Band, error) {
	out := make([][]Band, 0, max(n, 0))
	live := liveSet{d: d}
	for _, c := range d.Columns(d.Allocated, w, n, nil) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		live.advance(c.MaxAt)
		out = append(out, live.stack(minBytes))
	}
	return out, nil
}

// stack returns the bands of the set.
func (l *liveSet) stack(minBytes int64) []Band {
	var bands []Band
	bottom := l.d.Totals.Unattributed
	if bottom > 0 {
		bands = append(bands, Band{Top: bottom, Alloc: NoAlloc, Count: 1})
	}
	run := Band{Alloc: NoAlloc} // of small neighbours
	var largest int64
	flush := func() {
		if run.Count > 0 {
			bands = append(bands, run)
		}
		run, largest = Band{Alloc: NoAlloc}, 0
	}
	for i, id := range l.ids {
		size := l.sizes[i]
		if size >= minBytes {
			flush()
			bands = append(bands, Band{Bottom: bottom, Top: bottom + size, Alloc: id, Count: 1})
			bottom += size
			continue
		}
		if run.Count == 0 {
			run.Bottom = bottom
		}
		run.Count++
		bottom += size
		run.Top = bottom
		if size > largest || run.Alloc == NoAlloc {
			largest, run.Alloc = size, id
		}
	}
	flush()
	return bands
}
