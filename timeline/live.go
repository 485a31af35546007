package timeline

import "sort"

// What is alive at a moment? Allocations are ordered by their start, so those that have begun are a prefix. A
// pyramid of maxima over the ends finds those in the prefix that have not ended: a node whose maximum has
// passed holds nothing alive and is skipped whole. The cost is O(k·log n) for k alive, whatever the length of
// the recording, in two to three nanoseconds each.
//
// Rejected: an interval tree (pointers, or three times the memory), and checkpoints of the live set every so
// many events (they answer moments, but Bands asks what came to life since the last column).

// liveFan is the fan-out of the pyramids over ends. It is smaller than fanOut, because a query visits a node
// for each allocation alive, and neighbours live differently long.
const liveFan = 16

// pyramid returns the levels above v: each value is the maximum of liveFan neighbours of the level below. v
// itself is not kept.
func pyramid(v []Moment) [][]Moment {
	var levels [][]Moment
	for len(v) > liveFan {
		up := make([]Moment, (len(v)+liveFan-1)/liveFan)
		for i := range up {
			hi := v[i*liveFan]
			for _, x := range v[i*liveFan+1 : min((i+1)*liveFan, len(v))] {
				hi = max(hi, x)
			}
			up[i] = hi
		}
		levels = append(levels, up)
		v = up
	}
	return levels
}

// Begun returns how many allocations have begun at m: they are a prefix of Allocs. Begun(Start) is the first
// allocation whose event is in the recording.
func (d *Device) Begun(m Moment) AllocID {
	start := d.Allocs.Start
	return AllocID(sort.Search(len(start), func(i int) bool { return start[i] > m }))
}

// AllocsIn returns the allocations [first, end) made in the events [from, to).
func (d *Device) AllocsIn(from, to Moment) (first, end AllocID) {
	first = d.Begun(max(from, 0) - 1)
	return first, max(first, d.Begun(to-1))
}

// LiveAt appends the allocations that are allocated at m to dst, in the order of Allocs, and returns it.
func (d *Device) LiveAt(m Moment, dst []AllocID) []AllocID {
	return after(d.Allocs.Requested, d.Allocs.maxRequested, 0, d.Begun(m), m, dst)
}

// ActiveAt appends the allocations that are active at m, pending frees included, to dst, in the order of
// Allocs, and returns it.
func (d *Device) ActiveAt(m Moment, dst []AllocID) []AllocID {
	return after(d.Allocs.End, d.Allocs.maxEnd, 0, d.Begun(m), m, dst)
}

// after appends the ids in [from, to) whose end is after m.
func after(ends []Moment, levels [][]Moment, from, to AllocID, m Moment, dst []AllocID) []AllocID {
	for i := int(from); i < int(to); {
		// Skip the largest whole node at i in which everything has ended.
		step := 1
		for k := 0; k < len(levels) && i%(step*liveFan) == 0 && levels[k][i/(step*liveFan)] <= m; k++ {
			step *= liveFan
		}
		if step > 1 {
			i += step
			continue
		}
		// Nothing to skip at i: check the ends themselves up to the next node.
		stop := min((i/liveFan+1)*liveFan, int(to))
		for ; i < stop; i++ {
			if ends[i] > m {
				dst = append(dst, AllocID(i))
			}
		}
	}
	return dst
}

// LiveAtAddr returns the allocation that is allocated at m and holds address addr, NoAlloc if none does.
func LiveAtAddr(d *Device, m Moment, addr uint64) AllocID {
	a := &d.Allocs
	for _, id := range d.LiveAt(m, nil) {
		if addr-a.Addr[id] < uint64(max(a.Rounded[id], 1)) {
			return id
		}
	}
	return NoAlloc
}

// AllocOf returns the allocation that event m allocates, frees or annotates, NoAlloc for other events.
func (d *Device) AllocOf(m Moment) AllocID {
	if m < 0 || int(m) >= d.n {
		return NoAlloc
	}
	return d.allocOf[m]
}

// Lifetime returns when an allocation begins and when the user frees it, in nanoseconds, both bounded by the
// recording. An allocation that was never freed ends with Span.
func (d *Device) Lifetime(a AllocID) (start, end int64) {
	start = d.Time(d.Allocs.Start[a])
	if d.Allocs.Requested[a] == Never {
		_, end = d.Span()
		return start, end
	}
	return start, d.Time(d.Allocs.Requested[a])
}
