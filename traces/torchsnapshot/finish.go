package torchsnapshot

import (
	"errors"

	"github.com/gmemtop/gmemtop/traces"
)

// Finishing makes a trace whose tables are in the order of first use (segments, blocks, events, marks),
// whatever the order of the source's keys. Interned values that nothing uses are dropped, and writing a trace
// and reading it back gives the same tables.

// format is the name of this reader and writer in Source.Format and in errors.
const format = "torch_snapshot"

var errNoSnapshot = errors.New("this is not a memory snapshot: it has neither segments nor device_traces")

// end takes the value of the whole input.
func (f *fold) end(v value) (err error) {
	switch v.kind {
	case kDict: // made by DICT
		v, err = f.adopt(v, kRoot, value{}, tEmpty)
	case kList, kTuple:
		v, err = f.adopt(v, kSegments, value{}, tSegments)
	}
	f.take(v)
	t := &f.taken
	switch {
	case err != nil:
		return err
	case v.kind == kSegments && len(f.segments) > 0 && f.segmentOf[0].touched && len(f.blockLists) > 0:
		return nil
	case t.segments[0], t.segments[1], t.traces[0], t.traces[1]:
		if v.kind == kRoot {
			return nil
		}
	}
	f.segments, f.segmentOf = nil, nil
	return errNoSnapshot
}

// cut keeps what it can of an input that ends early: everything that was complete.
func (f *fold) cut() {
	f.taken = f.opened
	if n := f.events.n; n > 0 && f.events.at(n-1).flags&rowTouched == 0 {
		f.events.n--
	}
	if n := len(f.segments); n > 0 && !f.segmentOf[n-1].touched {
		f.segments, f.segmentOf = f.segments[:n-1], f.segmentOf[:n-1]
	}
	if f.lastChild == kSegments {
		f.noState = true
		f.lose("final_state_incomplete", traces.DataLoss, 1,
			"the file ends among the segments: the allocator's final state is not known")
	}
	f.lose(traces.LossTruncated, traces.DataLoss, 1, "the file ends early: what follows is missing")
}

// finish returns the trace of everything folded.
func (f *fold) finish() *traces.Trace {
	b := traces.NewBuilder()
	t := &b.T
	t.Source.Format = format
	t.Process = f.host
	t.Settings, t.Extra = f.settings, f.extra
	if !f.taken.annotations {
		f.notes = nil
	}
	f.layState(f.taken.segments)
	t.Final.Known = (f.taken.segments[0] || f.taken.segments[1]) && !f.noState
	runs, marks := f.runs(), f.notes.pair(&f.values)
	ids := f.devices(b, runs, marks)
	r := newRenumber(f, t)
	r.state(ids)
	clock := f.events.clock(runs, marks)
	t.Clock = clock.clock()
	r.events(runs, ids, clock)
	if !clock.hasTime && len(marks) > 0 {
		f.lose("annotations_dropped", traces.DataLoss, int64(len(marks)),
			"annotations have times and events have none: they cannot be placed")
		marks = nil
	}
	for _, m := range marks {
		kind, phase := markKind(f.texts.string(m.name))
		t.Marks = append(t.Marks, traces.Mark{
			Start: clock.nanos(m.start), End: clock.nanos(m.end), Name: r.text(traces.StringID(m.name)),
			Kind: kind, Phase: phase, Device: ids[device(0, int(m.device))],
		})
	}
	f.giveLosses(b)
	return b.Finish()
}

// layState puts the devices' segments before the host's, makes each segment's blocks consecutive, and fills
// in what old versions omit: the addresses of blocks, which tile their segment, and the sum of requested
// sizes.
func (t *segmentTable) layState(taken [2]bool) {
	tiled := int32(0)
	for i := range t.segments {
		s, meta := &t.segments[i], t.segmentOf[i]
		if s.FirstBlock != tiled && s.FirstBlock != s.EndBlock || !taken[meta.host] ||
			i > 0 && meta.host < t.segmentOf[i-1].host {
			t.rebuildState(taken)
			break
		}
		s.FirstBlock = tiled
		s.EndBlock = max(s.EndBlock, tiled)
		tiled = s.EndBlock
	}
	if n := len(t.segments); n > 0 {
		t.blocks = t.blocks[:t.segments[n-1].EndBlock]
	} else {
		t.blocks = nil
	}
	for i := range t.segments {
		s := &t.segments[i]
		wanted, next := int64(0), s.Address
		for j := s.FirstBlock; j < s.EndBlock; j++ {
			b := &t.blocks[j]
			if !t.blockOf[j].addressed {
				b.Address = next
			}
			next = b.Address + uint64(b.Size)
			if b.State != traces.BlockInactive {
				wanted += b.Requested.Or(0)
			}
		}
		if !t.segmentOf[i].wanted {
			s.Wanted = wanted
		}
	}
}

// rebuildState copies the state into the order that layState needs, without what was under unknown keys.
func (t *segmentTable) rebuildState(taken [2]bool) {
	var segments []traces.Segment
	var segmentOf []segmentMeta
	var blocks []traces.Block
	var blockOf []blockMeta
	for host := range uint8(2) {
		if !taken[host] {
			continue
		}
		for i, s := range t.segments {
			if t.segmentOf[i].host != host {
				continue
			}
			first := int32(len(blocks))
			blocks = append(blocks, t.blocks[s.FirstBlock:s.EndBlock]...)
			blockOf = append(blockOf, t.blockOf[s.FirstBlock:s.EndBlock]...)
			s.FirstBlock, s.EndBlock = first, int32(len(blocks))
			segments = append(segments, s)
			segmentOf = append(segmentOf, t.segmentOf[i])
		}
	}
	t.segments, t.segmentOf, t.blocks, t.blockOf = segments, segmentOf, blocks, blockOf
}
