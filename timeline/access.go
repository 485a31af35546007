package timeline

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/traces"
)

// AccessesOf returns the accesses to an allocation while it was active, in order; nil if the trace has none.
// An access belongs to the allocation whose rounded bytes hold its address.
func (d *Device) AccessesOf(a AllocID) []traces.Access {
	rows := accesses.Of(d)
	table := d.tl.Trace.Accesses
	start, end := d.Allocs.Start[a], d.Allocs.End[a]
	// An access "before event e" happens once all events up to e-1 have happened.
	from := sort.Search(len(rows), func(i int) bool {
		return Moment(int(table[rows[i]].Event)-d.first-1) >= start
	})
	var out []traces.Access
	for _, r := range rows[from:] {
		acc := table[r]
		if Moment(int(acc.Event)-d.first-1) >= end {
			break
		}
		if acc.Addr-d.Allocs.Addr[a] < uint64(max(d.Allocs.Rounded[a], 1)) {
			out = append(out, acc)
		}
	}
	return out
}

// accesses returns the rows of the trace's accesses to the device, in order.
var accesses = NewMemo(func(d *Device) []int32 {
	return accessRows(d.tl.Trace, func(x *traces.Access) bool { return x.Device == d.ID })
})

// accessRows returns the rows of the accesses to keep, in order of their events.
func accessRows(tr *traces.Trace, keep func(x *traces.Access) bool) []int32 {
	table := tr.Accesses
	var rows []int32
	for i := range table {
		if keep(&table[i]) {
			rows = append(rows, int32(i))
		}
	}
	slices.SortStableFunc(rows, func(i, j int32) int { return cmp.Compare(table[i].Event, table[j].Event) })
	return rows
}
