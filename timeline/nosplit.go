package timeline

import (
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// Could a private pool have been told not to split its segments? torch.cuda.MemPool(no_split=True) gives each
// request a whole segment, and a recording does not say so. Blocks in the final state show it, and the check
// of the rules then fails (see sizeProof). Without such blocks the addresses decide: a pool that ever handed
// out an address inside a segment does split. A pool that never did, though a request left room for more, may
// not split, and the sizes of its blocks are uncertain. O(events), for recordings that name private pools.

// mayNotSplit reports whether a private pool of the device may have handed out whole segments where the rules
// split.
func (b *deviceBuilder) mayNotSplit() bool {
	if !namesPrivatePools(b.tr) {
		return false
	}
	ev, first := &b.tr.Events, b.d.first
	sizes := map[uint64]int64{} // the size of the last segment at each address
	splits, open := map[traces.Pool]bool{}, map[traces.Pool]bool{}
	for i := range b.tr.Final.Segments {
		seg := &b.tr.Final.Segments[i]
		if seg.Device == b.d.ID {
			sizes[seg.Address] = seg.TotalSize
			splits[seg.Pool] = splits[seg.Pool] || seg.EndBlock-seg.FirstBlock > 1
		}
	}
	for row := first; row < first+b.d.n; row++ {
		if ev.Action[row] == traces.SegmentAlloc {
			sizes[ev.Addr[row]] = ev.Size[row]
			continue
		}
		pool := b.tr.DetailOf(row).Pool
		if ev.Action[row] != traces.Alloc || pool == (traces.Pool{}) {
			continue
		}
		size, whole := sizes[ev.Addr[row]]
		switch rest := size - b.rule.round(ev.Size[row]); {
		case !whole:
			splits[pool] = true
		case torchalloc.Splits(rest, size <= torchalloc.SmallBuffer):
			open[pool] = true
		}
	}
	for pool := range open {
		if !splits[pool] {
			return true
		}
	}
	return false
}

// namesPrivatePools reports whether the recording names a private pool with its events.
func namesPrivatePools(t *traces.Trace) bool {
	for i := range t.Details {
		if d := &t.Details[i]; d.HasPool && d.Pool != (traces.Pool{}) {
			return true
		}
	}
	return false
}
