package segments

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// From segments to lines of the screen.
//
// Problem: draw an allocator's segments, a few of which are a thousand times larger than most, so that
// packing and holes are visible, and draw an expandable segment as the one range of addresses that it is,
// although the state lists its mapped runs one by one. Approach: runs of one expandable segment become one
// row with gaps between them; rows are sorted; a row takes one line that it fills or, on one scale for all,
// as many lines as its bytes need. A prefix sum over the lines finds the row of any line by bisection, so
// scrolling through 100,000 lines costs the same as through ten.
//
// Rejected: one picture with addresses on one axis, like a disk defragmenter's. Addresses of different
// segments are terabytes apart and the gaps between them mean nothing.

// order is an order of rows.
type order uint8

const (
	byAddress order = iota
	bySize
	byStranded
	numOrders
)

func (o order) String() string { return [...]string{"address", "size", "holes"}[o] }

// row is one segment, or all mapped runs of one expandable segment: the state's segments runs, ordered by
// address.
type row struct {
	from, to   uint64 // [from, to) in addresses
	runs       []int32
	mapped     int64
	active     int64 // rounded bytes
	stranded   int64 // holes beside active blocks
	cached     int64 // bytes of runs without an active block
	expandable bool
	stream     traces.StreamID
	pool       traces.Pool
	small      bool
}

func (r *row) span() int64 { return int64(r.to - r.from) }

// maxGap is how much unmapped address space a row may show for each mapped byte; runs farther apart are drawn
// as two rows.
const maxGap = 8

// gather makes the rows of a state, by address.
func gather(st *timeline.AllocatorState) []row {
	rows := make([]row, 0, len(st.Segments))
	for i := range st.Segments {
		seg := &st.Segments[i]
		if n := len(rows); n == 0 || !continues(&rows[n-1], seg) {
			rows = append(rows, row{from: seg.Addr, expandable: seg.Expandable, stream: seg.Stream,
				pool: seg.Pool, small: seg.Small})
		}
		r := &rows[len(rows)-1]
		r.to = seg.Addr + uint64(seg.Size)
		r.runs = append(r.runs, int32(i))
		r.mapped += seg.Size
		r.active += seg.Active
		if hasActive(seg) {
			r.stranded += seg.Size - seg.Active
		} else {
			r.cached += seg.Size
		}
	}
	return rows
}

func hasActive(seg *timeline.SegmentState) bool {
	if seg.Active > 0 {
		return true
	}
	for _, p := range seg.Pieces {
		if p.State != traces.BlockInactive {
			return true
		}
	}
	return false
}

// continues reports whether seg is a further run of the expandable segment r.
func continues(r *row, seg *timeline.SegmentState) bool {
	if !r.expandable || !seg.Expandable || r.stream != seg.Stream || r.pool != seg.Pool ||
		r.small != seg.Small || seg.Addr < r.to {
		return false
	}
	return int64(seg.Addr-r.to) <= maxGap*(r.mapped+seg.Size)
}

// sortRows puts rows into an order; rows that are equal in it stay by address.
func sortRows(rows []row, o order) {
	slices.SortFunc(rows, func(a, b row) int {
		switch o {
		case bySize:
			if c := cmp.Compare(b.mapped, a.mapped); c != 0 {
				return c
			}
		case byStranded:
			if c := cmp.Compare(b.stranded, a.stranded); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.from, b.from)
	})
}

// lines maps lines to rows. bytes is how many bytes a line shows on one scale for all, 0 if each row fills
// its one line.
type lines struct {
	first []int32 // first line of each row, and the number of lines at the end
	bytes int64
}

// maxLines bounds the lines of all rows together: an idle scale of one byte a cell must not take all memory.
const maxLines = 1 << 24

func flow(rows []row, bytes int64) lines {
	l := lines{first: make([]int32, len(rows)+1), bytes: bytes}
	n := int64(0)
	for i := range rows {
		l.first[i] = int32(n)
		if bytes == 0 {
			n++
		} else {
			n += max((rows[i].span()+bytes-1)/bytes, 1)
		}
		n = min(n, maxLines)
	}
	l.first[len(rows)] = int32(n)
	return l
}

func (l *lines) len() int {
	if len(l.first) == 0 {
		return 0
	}
	return int(l.first[len(l.first)-1])
}

// at returns the row that line shows, and the addresses [from, to) of it that the line shows.
func (l *lines) at(rows []row, line int) (i int, from, to uint64) {
	i = sort.Search(len(rows), func(i int) bool { return int(l.first[i+1]) > line })
	r := &rows[i]
	if l.bytes == 0 {
		return i, r.from, r.to
	}
	from = r.from + uint64(line-int(l.first[i]))*uint64(l.bytes)
	return i, from, min(from+uint64(l.bytes), r.to)
}

// lineOf returns the line that shows an address of row i.
func (l *lines) lineOf(rows []row, i int, addr uint64) int {
	if l.bytes == 0 {
		return int(l.first[i])
	}
	return min(int(l.first[i])+int(int64(addr-rows[i].from)/l.bytes), int(l.first[i+1])-1)
}

// place names a piece of the state.
type place struct{ row, run, piece int32 }

var nowhere = place{-1, -1, -1}

// find returns the place of a block, nowhere if it is not in the state.
func find(st *timeline.AllocatorState, rows []row, a timeline.AllocID) place {
	if a == timeline.NoAlloc {
		return nowhere
	}
	for i := range rows {
		for j, run := range rows[i].runs {
			for k := range st.Segments[run].Pieces {
				if st.Segments[run].Pieces[k].Alloc == a {
					return place{int32(i), int32(j), int32(k)}
				}
			}
		}
	}
	return nowhere
}

// largestHole returns the place of the largest hole that is stranded or cached.
func largestHole(st *timeline.AllocatorState, rows []row) place {
	best, size := nowhere, int64(0)
	for i := range rows {
		for j, run := range rows[i].runs {
			for k, p := range st.Segments[run].Pieces {
				if p.State == traces.BlockInactive && p.Size > size {
					best, size = place{int32(i), int32(j), int32(k)}, p.Size
				}
			}
		}
	}
	return best
}

// step returns the piece after (or before) p in its row, or p at the row's end.
func step(st *timeline.AllocatorState, rows []row, p place, forward bool) place {
	r := &rows[p.row]
	if forward {
		if int(p.piece)+1 < len(st.Segments[r.runs[p.run]].Pieces) {
			return place{p.row, p.run, p.piece + 1}
		}
		if int(p.run)+1 < len(r.runs) {
			return place{p.row, p.run + 1, 0}
		}
		return p
	}
	if p.piece > 0 {
		return place{p.row, p.run, p.piece - 1}
	}
	if p.run > 0 {
		return place{p.row, p.run - 1, int32(max(len(st.Segments[r.runs[p.run-1]].Pieces)-1, 0))}
	}
	return p
}

// pieceAt returns the piece of row i that holds an address; in a gap, the one after it.
func pieceAt(st *timeline.AllocatorState, rows []row, i int, addr uint64) place {
	r := &rows[i]
	run := sort.Search(len(r.runs)-1, func(j int) bool {
		seg := &st.Segments[r.runs[j]]
		return seg.Addr+uint64(seg.Size) > addr
	})
	pieces := st.Segments[r.runs[run]].Pieces
	k := sort.Search(max(len(pieces)-1, 0), func(k int) bool {
		return pieces[k].Addr+uint64(pieces[k].Size) > addr
	})
	return place{int32(i), int32(run), int32(k)}
}

// figures are what the sentence and the equation say, computed once a state.
type figures struct {
	segments, expandable, halfEmpty, empty int
	pools                                  []poolSum
	categories                             [timeline.NumCategories]int64 // requested bytes of active blocks
	looks                                  [numKinds]int64               // bytes of pieces, by how they look
}

type poolSum struct {
	pool  traces.Pool
	bytes int64
	used  int64
}

func count(d *timeline.Device, st *timeline.AllocatorState, rows []row) figures {
	var f figures
	for i := range st.Segments {
		inUse := hasActive(&st.Segments[i])
		for _, p := range st.Segments[i].Pieces {
			f.looks[kindOf(d, p, inUse)] += p.Size
			switch {
			case p.State == traces.BlockInactive:
			case p.Alloc == timeline.NoAlloc:
				f.categories[timeline.Unknown] += p.Size
			default:
				f.categories[d.Allocs.Category[p.Alloc]] += p.Size
			}
		}
	}
	f.segments = len(rows)
	at := map[traces.Pool]int{}
	for i := range rows {
		r := &rows[i]
		switch {
		case r.expandable:
			f.expandable++
		case r.cached > 0:
			f.empty++
		}
		if r.active > 0 && 2*r.active <= r.mapped {
			f.halfEmpty++
		}
		if r.pool != (traces.Pool{}) {
			j, ok := at[r.pool]
			if !ok {
				j = len(f.pools)
				at[r.pool] = j
				f.pools = append(f.pools, poolSum{pool: r.pool})
			}
			f.pools[j].bytes += r.mapped
			f.pools[j].used += r.active
		}
	}
	slices.SortStableFunc(f.pools, func(a, b poolSum) int { return cmp.Compare(b.bytes, a.bytes) })
	return f
}
