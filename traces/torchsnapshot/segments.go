package torchsnapshot

import (
	"math"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func (f *fold) setSegment(i uint32, items []value) error {
	s, meta := &f.segments[i], &f.segmentOf[i]
	meta.touched = meta.touched || len(items) > 0
	var more extra
	for j := 0; j+1 < len(items); j += 2 {
		k, v := items[j], items[j+1]
		if k.kind != kText {
			f.wrongType()
			continue
		}
		ok := true
		switch k.text() {
		case tDevice:
			var n int64
			n, ok = v.asInt()
			if meta.host != 0 && n == -1 { // pinned memory belongs to no device
				n = 0
			}
			if ok = ok && n >= 0 && n <= math.MaxInt32; ok {
				meta.device = int32(n)
			}
		case tAddress:
			s.Address, ok = v.asAddress()
		case tTotalSize:
			s.TotalSize, ok = f.size(v)
		case tAllocatedSize:
			s.AllocatedSize, ok = f.size(v)
		case tActiveSize:
			s.ActiveSize, ok = f.size(v)
		case tRequestedSize:
			s.Wanted, ok = f.size(v)
			meta.wanted = ok
		case tStream:
			var handle uint64
			if handle, ok = v.asAddress(); ok {
				s.Stream = traces.StreamID(f.streams.id(handle, f.losses))
			}
		case tSegmentType:
			s.Small = v == textValue(tSmall)
			if !s.Small && v != textValue(tLarge) {
				f.unknownKey()
				f.add(&more, k, v)
			}
		case tSegmentPoolID:
			if v.kind != kNone {
				s.Pool, s.HasPool = f.asPool(v)
				ok = s.HasPool
			}
		case tIsExpandable:
			s.Expandable = v.n != 0
			ok = v.kind == kBool || v.kind == kInt
		case tFrames:
			stack, err := f.stackOf(v, kSegment, tFrames)
			if err != nil {
				return err
			}
			s.Stack = traces.StackID(stack)
		case tBlocks:
			if err := f.setBlocks(i, v); err != nil {
				return err
			}
			s, meta = &f.segments[i], &f.segmentOf[i]
		default:
			f.unknownKey()
			f.add(&more, k, v)
		}
		if !ok {
			f.wrongType()
		}
	}
	s.Extra = f.join(s.Extra, more)
	return nil
}

func (f *fold) setBlocks(i uint32, v value) error {
	v, err := f.container(v, value{kind: kSegment, ref: i}, tBlocks)
	if err != nil || v.kind != kBlocks {
		return err
	}
	l := &f.blockLists[v.ref]
	if l.used && l.count > 0 {
		return limitf("two segments share one list of blocks")
	}
	l.used = true
	f.segments[i].FirstBlock, f.segments[i].EndBlock = l.first, l.first+l.count
	return nil
}

func (f *fold) setBlock(i uint32, items []value) error {
	b, meta := &f.blocks[i], &f.blockOf[i]
	meta.touched = meta.touched || len(items) > 0
	hasFrames := b.Stack != traces.NoStack
	history := value{}
	var more extra
	for j := 0; j+1 < len(items); j += 2 {
		k, v := items[j], items[j+1]
		if k.kind != kText {
			f.wrongType()
			continue
		}
		ok := true
		switch k.text() {
		case tAddress:
			b.Address, ok = v.asAddress()
			meta.addressed = ok
		case tSize:
			b.Size, ok = f.size(v)
		case tRequestedSize:
			if v.kind != kNone {
				var n int64
				n, ok = f.size(v)
				b.Requested = maybe.Known(n)
			}
		case tState:
			f.setState(b, &more, k, v)
		case tFrames:
			stack, err := f.stackOf(v, kBlock, tFrames)
			if err != nil {
				return err
			}
			b.Stack, hasFrames = traces.StackID(stack), true
		case tHistory:
			history = v
		default:
			f.unknownKey()
			f.add(&more, k, v)
		}
		if !ok {
			f.wrongType()
		}
	}
	if history.kind == kList || history.kind == kTuple {
		if err := f.setHistory(b, &more, hasFrames, history); err != nil {
			return err
		}
	}
	b.Extra = f.join(b.Extra, more)
	return nil
}

func (vs *values) setState(b *traces.Block, more *extra, k, v value) {
	switch {
	case v == textValue(tInactive):
		b.State = traces.BlockInactive
	case v == textValue(tActiveAllocated):
		b.State = traces.BlockAllocated
	case v == textValue(tActivePendingFree), v == textValue(tActiveAwaitingFree):
		// the code's name and the documentation's
		b.State = traces.BlockPendingFree
	default:
		vs.lose("unknown_block_states", traces.Info, 1,
			"blocks in a state that this version does not know are shown as inactive")
		vs.add(more, k, v)
	}
}

// setHistory reads what PyTorch up to 2.0 writes instead of frames and requested_size: one entry for each
// allocation that the block still shows, the newest first. The first is the block's content; if there are
// more, all are kept as JSON.
func (f *fold) setHistory(b *traces.Block, more *extra, hasFrames bool, all value) error {
	entries := f.objects[all.ref].items
	if len(entries) == 0 || entries[0].kind != kDict {
		return nil
	}
	keep := len(entries) > 1
	items := f.objects[entries[0].ref].items
	for j := 0; j+1 < len(items); j += 2 {
		k, v := items[j], items[j+1]
		if k.kind != kText {
			continue
		}
		switch k.text() {
		case tFrames:
			if hasFrames {
				continue
			}
			stack, err := f.stackOf(v, kBlock, tFrames)
			if err != nil {
				return err
			}
			b.Stack = traces.StackID(stack)
		case tRealSize:
			if n, ok := f.size(v); ok && !b.Requested.IsKnown() {
				b.Requested = maybe.Known(n)
			}
		case tAddr:
		default: // cpp_frames
			keep = true
		}
	}
	if keep {
		f.add(more, textValue(tHistory), all)
	}
	return nil
}
