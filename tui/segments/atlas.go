package segments

import (
	"fmt"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// atlas is an allocator's state as rows, with the piece that is selected in it.
type atlas struct {
	st       *timeline.AllocatorState // what rows were made of
	of       moment
	rows     []row
	figures  figures
	hole     place // the largest
	order    order
	selected place
}

// locate returns the piece at an address, nowhere if no row has it.
func (a *atlas) locate(addr uint64) place {
	for i := range a.rows {
		if r := &a.rows[i]; addr >= r.from && addr < r.to {
			return pieceAt(a.st, a.rows, i, addr)
		}
	}
	return nowhere
}

func (a *atlas) segment(p place) *timeline.SegmentState {
	return &a.st.Segments[a.rows[p.row].runs[p.run]]
}

// piece returns the piece at p; a segment without pieces is one hole.
func (a *atlas) piece(p place) timeline.Piece {
	seg := a.segment(p)
	if int(p.piece) >= len(seg.Pieces) {
		return timeline.Piece{Addr: seg.Addr, Size: seg.Size, Alloc: timeline.NoAlloc}
	}
	return seg.Pieces[p.piece]
}

// tagged reports whether rows need a label for their pool, stream or kind.
func (a *atlas) tagged() bool {
	for i := range a.rows {
		if r := &a.rows[i]; r.expandable || r.stream != 0 || r.pool != (traces.Pool{}) {
			return true
		}
	}
	return false
}

func (a *atlas) parts() []part {
	st := a.st
	return []part{
		{"active requested", "requested", st.ActiveRequested, kindActive},
		{"rounding", "rounding", st.Internal, kindInternal},
		{"fragmented", "fragmented", st.Stranded, kindStranded},
		{"cached", "cached", st.Cached, kindCached},
	}
}

// what describes a piece.
func (a *atlas) what(s *leaf.State, p timeline.Piece, seg *timeline.SegmentState) string {
	switch {
	case p.Alloc != timeline.NoAlloc:
		text := s.Device.Allocs.Category[p.Alloc].String()
		if p.State == traces.BlockPendingFree {
			text += ", freed, waits for a stream"
		}
		if site := sites.From(s.Device, p.Alloc); site != "" {
			text += " · " + site
		}
		return text
	case p.State == traces.BlockPendingFree:
		return "freed, waits for a stream"
	case p.State == traces.BlockAllocated:
		return "in use, its allocation is not in the recording"
	case hasActive(seg):
		return "fragmented: a hole in a segment that is in use"
	}
	return "cached: its segment is empty and could go back to the driver"
}

// sentence says how the reserved bytes divide.
func (a *atlas) sentence(s *leaf.State) string {
	st, u := a.st, s.Units
	text := fmt.Sprintf("%s%s reserved in %s %s: %s active",
		a.bound(), u.Bytes(st.Reserved), timeline.Counted(a.figures.segments, "segment"), a.when(s),
		u.Bytes(st.ActiveRequested+st.Internal))
	if st.Stranded > 0 {
		text += ", " + u.Bytes(st.Stranded) + " fragmented"
		if n := a.figures.halfEmpty; n > 0 {
			text += fmt.Sprintf(" (%s)", timeline.Counted(n, "half-empty segment"))
		}
	}
	if st.Cached > 0 {
		text += ", " + u.Bytes(st.Cached) + " cached"
	}
	switch {
	case st.LargestFree > 0:
		text += "; the largest hole is " + u.Bytes(st.LargestFree)
	default:
		text += "; there is no hole"
	}
	if st.PendingFree > 0 {
		text += "; " + u.Bytes(st.PendingFree) + " wait for a stream to be freed"
	}
	if len(a.figures.pools) > 0 {
		sum := int64(0)
		for _, p := range a.figures.pools {
			sum += p.bytes
		}
		text += fmt.Sprintf("; %s in %s", u.Bytes(sum),
			timeline.Counted(len(a.figures.pools), "private pool"))
	}
	return text + "."
}

// when names the moment that the map shows.
func (a *atlas) when(s *leaf.State) string {
	d := s.Device
	switch a.st.At {
	case d.Totals.PeakAt:
		return leaf.AtPeak(d)
	case d.Totals.PeakReservedAt:
		return "at the peak of reserved"
	case timeline.Start:
		return "before the recording"
	case timeline.Moment(d.Len() - 1):
		return "at the end"
	}
	if !d.Timeline().Trace.Clock.HasTime {
		return "after event " + leaf.Count(int64(a.st.At))
	}
	return "at " + timeline.Duration(d.Time(a.st.At)-d.Timeline().Zero())
}

// bound is the sign of a figure that is not exact.
func (a *atlas) bound() string {
	switch a.st.Exactness {
	case timeline.LowerBound:
		return "≥"
	case timeline.Inferred:
		return "~"
	}
	return ""
}
