package fidelity

import (
	"fmt"

	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// compareSegments counts the equal segment events since the last call.
func (r *replay) compareSegments(m timeline.Moment) {
	rep := &r.report
	rep.SegmentEvents += len(r.recorded)
	rep.EmulatedSegmentEvents += len(r.emulated)
	for i := range max(len(r.recorded), len(r.emulated)) {
		var was, is string
		if i < len(r.recorded) && i < len(r.emulated) {
			a, b := r.recorded[i], r.emulated[i]
			if a.Action == b.Action && a.Size == b.Size && a.Addr == b.Addr {
				rep.SameSegments++
				continue
			}
		}
		if rep.First != nil {
			break
		}
		was, is = "nothing", "nothing"
		if i < len(r.recorded) {
			was = describe(r.recorded[i])
		}
		if i < len(r.emulated) {
			is = describe(r.emulated[i])
		}
		why := whySegment(r.recorded[min(i, len(r.recorded)):], r.emulated[min(i, len(r.emulated)):])
		rep.First = &Divergence{At: m, Recorded: was, Emulated: is, Why: why}
	}
	r.recorded, r.emulated = r.recorded[:0], r.emulated[:0]
}

func describe(e allocator.SegmentEvent) string {
	return fmt.Sprintf("%s of %d bytes at %#x", e.Action, e.Size, e.Addr)
}

// finish compares the final states.
func (r *replay) finish() *Report {
	rep := &r.report
	rep.PeakReserved = r.d.Totals.PeakReserved.Or(0)
	rep.EmulatedPeakReserved = r.alloc.Stats().PeakReserved
	rep.Refusals = r.driver.refused
	if r.strangers > 0 {
		rep.Caveats = append(rep.Caveats, fmt.Sprintf("%d frees are of blocks that no event allocates",
			r.strangers))
	}
	if rep.First != nil && rep.Restored > 0 && rep.Settings.OrdersByAge() {
		rep.Caveats = append(rep.Caveats,
			"blocks of equal size are taken by the age of their segments, which a snapshot does not hold: "+
				"older segments are taken to have lower addresses")
	}
	if !r.d.Totals.FinalKnown || r.end < r.d.Len() {
		return rep
	}
	ends := map[uint64]allocator.SegmentBlock{}
	for _, seg := range r.alloc.Segments() {
		for _, b := range seg.Blocks {
			ends[b.Addr] = b
		}
	}
	final := &r.tr.Final
	for _, seg := range final.Segments {
		if seg.Device != r.d.ID {
			continue
		}
		for _, b := range final.Blocks[seg.FirstBlock:seg.EndBlock] {
			rep.FinalBlocks++
			if is, ok := ends[b.Address]; ok && is.Size == b.Size && stateOf(b.State) == is.State {
				rep.SameFinal++
			}
		}
	}
	return rep
}

func stateOf(s traces.BlockState) allocator.BlockState {
	switch s {
	case traces.BlockAllocated:
		return allocator.Allocated
	case traces.BlockPendingFree:
		return allocator.PendingFree
	}
	return allocator.Inactive
}

// misplaced describes the first block that was put elsewhere, using the state after the request.
func (r *replay) misplaced(m timeline.Moment, e traces.Event, b allocator.Block) *Divergence {
	d := &Divergence{
		At:       m,
		Recorded: fmt.Sprintf("%d bytes at %#x", e.Size, e.Addr),
		Emulated: fmt.Sprintf("at %#x", b.Addr),
		Why:      "the recorded place lies in no segment that the emulation holds",
	}
	for _, seg := range r.alloc.Segments() {
		if e.Addr < seg.Addr || e.Addr >= seg.Addr+uint64(seg.Size) {
			continue
		}
		for _, p := range seg.Blocks {
			if e.Addr < p.Addr || e.Addr >= p.Addr+uint64(p.Size) {
				continue
			}
			switch {
			case p.State != allocator.Inactive:
				d.Why = fmt.Sprintf("the recorded place is in use in the emulation (%s, %d bytes at %#x)",
					p.State, p.Size, p.Addr)
			case p.Addr != e.Addr:
				d.Why = fmt.Sprintf(
					"the recorded place lies within a hole of the emulation (%d bytes at %#x)", p.Size,
					p.Addr)
			case p.Size < b.Size:
				d.Why = fmt.Sprintf("the hole at the recorded place is too small in the emulation (%d bytes)",
					p.Size)
			default:
				d.Why = fmt.Sprintf("the hole at the recorded place (%d bytes) fits less well than the one "+
					"taken in the emulation", p.Size)
			}
		}
	}
	return d
}

// whySegment names a possible cause of a difference in segment events.
func whySegment(recorded, emulated []allocator.SegmentEvent) string {
	gives := func(e []allocator.SegmentEvent) bool {
		return len(e) > 0 && (e[0].Action == allocator.SegmentFree || e[0].Action == allocator.SegmentUnmap)
	}
	switch {
	case len(recorded) == 0 && gives(emulated):
		return "the emulation gave back more than PyTorch did"
	case len(recorded) == 0:
		return "PyTorch had a hole for the request that the emulation does not have"
	case len(emulated) == 0 && gives(recorded):
		return "PyTorch gave back what the emulation has in use, or does not hold"
	case len(emulated) == 0:
		return "the emulation has a hole for the request that PyTorch did not have"
	}
	return "the same request was served by another segment"
}
