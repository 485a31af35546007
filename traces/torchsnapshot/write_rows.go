package torchsnapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

type snapshotWriter struct {
	*pickler
	ctx context.Context
	t   *traces.Trace
	// Memo entries of the trace's rows, 0 for those not written yet.
	strings, frames, stacks []uint32
	forward                 map[traces.StackID]*uint32 // stacks written as lists of strings
}

// list writes n elements in batches, like Python's own pickler, so that no reader must hold them all on its
// stack.
func (s *snapshotWriter) list(n int, element func(i int) error) error {
	s.op(opEmptyList)
	for i := 0; i < n; {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		s.op(opMark)
		for end := min(n, i+1000); i < end; i++ {
			if err := element(i); err != nil {
				return err
			}
		}
		s.op(opAppends)
	}
	return nil
}

func (s *snapshotWriter) text(id traces.StringID) {
	s.shared(&s.strings[id], func() {
		s.string(s.t.Strings[id])
		s.put(s.strings[id])
	})
}

func (s *snapshotWriter) textItem(key text, id traces.StringID) {
	s.key(key)
	s.text(id)
}

func (s *snapshotWriter) intItem(key text, n int64) {
	s.key(key)
	s.int(n)
}

func (s *snapshotWriter) poolItem(key text, p traces.Pool) {
	s.key(key)
	s.int(p.First)
	s.int(p.Second)
	s.op(opTuple2)
}

// formattedPrefix begins the Extra of a frame that was a string.
const formattedPrefix = `{"` + formattedKey + `":`

func (s *snapshotWriter) frame(id traces.FrameID) (err error) {
	fr := s.t.Frames[id]
	extra := s.t.Text(fr.Extra)
	s.shared(&s.frames[id], func() {
		if strings.HasPrefix(extra, formattedPrefix) {
			s.string(s.formatted(fr))
			s.put(s.frames[id])
			return
		}
		s.op(opEmptyDict)
		s.put(s.frames[id])
		s.op(opMark)
		s.textItem(tFilename, fr.File)
		s.intItem(tLine, int64(fr.Line))
		s.textItem(tName, fr.Func)
		err = s.members(extra)
		s.op(opSetItems)
	})
	return err
}

// formatted returns a frame as Python's traceback.format_stack has it.
func (s *snapshotWriter) formatted(fr traces.Frame) string {
	var extra map[string]any
	if json.Unmarshal([]byte(s.t.Text(fr.Extra)), &extra) == nil {
		if own, ok := extra[formattedKey].(string); ok {
			return own
		}
	}
	return fmt.Sprintf("  File \"%s\", line %d, in %s\n", s.t.Text(fr.File), fr.Line, s.t.Text(fr.Func))
}

func (s *snapshotWriter) stack(id traces.StackID) (err error) {
	if id == traces.NoStack {
		s.op(opEmptyList)
		return nil
	}
	s.shared(&s.stacks[id], func() {
		s.op(opEmptyList)
		s.put(s.stacks[id])
		s.op(opMark)
		for _, fr := range s.t.Stacks.At(id) {
			if err = s.frame(fr); err != nil {
				return
			}
		}
		s.op(opAppends)
	})
	return err
}

// forwardStack writes a stack as the strings that autograd keeps from the forward pass, outermost first.
func (s *snapshotWriter) forwardStack(id traces.StackID) {
	entry := s.forward[id]
	if entry == nil {
		entry = new(uint32)
		s.forward[id] = entry
	}
	s.shared(entry, func() {
		s.op(opEmptyList)
		s.put(*entry)
		s.op(opMark)
		for _, fr := range slices.Backward(s.t.Stacks.At(id)) {
			s.string(s.formatted(s.t.Frames[fr]))
		}
		s.op(opAppends)
	})
}

// segments writes the final state of the host's memory, or of all other memory.
func (s *snapshotWriter) segments(key text, host bool) error {
	var of []traces.Segment
	for _, seg := range s.t.Final.Segments {
		if (s.t.Devices[seg.Device].Kind == traces.DeviceHost) == host {
			of = append(of, seg)
		}
	}
	s.key(key)
	return s.list(len(of), func(i int) error { return s.segment(&of[i]) })
}

func (s *snapshotWriter) segment(seg *traces.Segment) error {
	extra := s.t.Text(seg.Extra)
	s.op(opEmptyDict)
	s.op(opMark)
	s.intItem(tDevice, int64(s.t.Devices[seg.Device].Ordinal))
	s.key(tAddress)
	s.uint(seg.Address)
	s.intItem(tTotalSize, seg.TotalSize)
	s.intItem(tAllocatedSize, seg.AllocatedSize)
	s.intItem(tActiveSize, seg.ActiveSize)
	s.intItem(tRequestedSize, seg.Wanted)
	s.key(tStream)
	s.uint(s.t.Streams[seg.Stream])
	if !hasMember(extra, tSegmentType) {
		s.key(tSegmentType)
		s.key(map[bool]text{true: tSmall, false: tLarge}[seg.Small])
	}
	if seg.HasPool {
		s.poolItem(tSegmentPoolID, seg.Pool)
	}
	s.key(tIsExpandable)
	s.bool(seg.Expandable)
	s.key(tFrames)
	if err := s.stack(seg.Stack); err != nil {
		return err
	}
	s.key(tBlocks)
	blocks := s.t.Final.Blocks[seg.FirstBlock:seg.EndBlock]
	if err := s.list(len(blocks), func(i int) error { return s.block(&blocks[i]) }); err != nil {
		return err
	}
	err := s.members(extra)
	s.op(opSetItems)
	return err
}

// hasMember reports whether a JSON object that we wrote may have a member of that name.
func hasMember(object string, key text) bool {
	return object != "" && strings.Contains(object, `"`+name(key)+`":`)
}

var stateNames = [...]text{
	traces.BlockInactive: tInactive, traces.BlockAllocated: tActiveAllocated,
	traces.BlockPendingFree: tActivePendingFree,
}

func (s *snapshotWriter) block(b *traces.Block) error {
	extra := s.t.Text(b.Extra)
	s.op(opEmptyDict)
	s.op(opMark)
	s.key(tAddress)
	s.uint(b.Address)
	s.intItem(tSize, b.Size)
	if n, known := b.Requested.Value(); known {
		s.intItem(tRequestedSize, n)
	}
	if !hasMember(extra, tState) {
		s.key(tState)
		s.key(stateNames[min(b.State, traces.BlockPendingFree)])
	}
	s.key(tFrames)
	if err := s.stack(b.Stack); err != nil {
		return err
	}
	err := s.members(extra)
	s.op(opSetItems)
	return err
}

// maxOrdinal is the highest ordinal that gets its own place in a list of lists.
const maxOrdinal = 1 << 12

// deviceLists gives each device its place in the accelerators' list: its ordinal, or the next free one. An
// entry of -1 has no events.
func (s *snapshotWriter) deviceLists() []int {
	lists := s.ordinals(traces.DeviceGPU)
	for i, d := range s.t.Devices {
		first, end := s.t.DeviceEvents(traces.DeviceID(i))
		if d.Kind != traces.DeviceGPU && d.Kind != traces.DeviceHost && end > first {
			lists = append(lists, i)
		}
	}
	return lists
}

func (s *snapshotWriter) ordinals(kind traces.DeviceKind) []int {
	var lists, rest []int
	for i, d := range s.t.Devices {
		first, end := s.t.DeviceEvents(traces.DeviceID(i))
		switch {
		case d.Kind != kind || end == first:
		case d.Ordinal < 0 || d.Ordinal >= maxOrdinal:
			rest = append(rest, i)
		default:
			for len(lists) <= d.Ordinal {
				lists = append(lists, -1)
			}
			lists[d.Ordinal] = i
		}
	}
	return append(lists, rest...)
}

func (s *snapshotWriter) traces(key text, lists []int) error {
	s.key(key)
	return s.list(len(lists), func(i int) error {
		if lists[i] < 0 {
			s.op(opEmptyList)
			return nil
		}
		first, end := s.t.DeviceEvents(traces.DeviceID(lists[i]))
		return s.list(end-first, func(j int) error { return s.event(first + j) })
	})
}

func (s *snapshotWriter) event(i int) error {
	e, d := s.t.Events.At(i), s.t.DetailOf(i)
	s.op(opEmptyDict)
	s.op(opMark)
	switch {
	case e.Action >= firstAction && e.Action < endAction:
		s.key(tActionKey)
		s.key(tFirstAction + text(e.Action-firstAction))
	case d.Action != 0:
		s.textItem(tActionKey, d.Action)
	}
	switch {
	case e.Action != traces.OOM:
		s.key(tAddr)
		s.uint(e.Addr)
	case e.Addr != traces.UnknownFree:
		s.key(tDeviceFree)
		s.uint(e.Addr)
	}
	s.intItem(tSize, e.Size)
	s.key(tStream)
	s.uint(s.t.Streams[e.Stream])
	if s.t.Clock.HasTime {
		s.intItem(tTimeUS, s.micros(e.Time))
	}
	if d.CompileContext != 0 {
		s.textItem(tCompileContext, d.CompileContext)
	}
	switch {
	case d.UserMetadata != 0:
		s.textItem(tUserMetadata, d.UserMetadata)
	case d.Op != 0:
		s.textItem(tUserMetadata, d.Op) // the place where memory_viz shows it
	}
	if e.Stack != traces.NoStack {
		s.key(tFrames)
		if err := s.stack(e.Stack); err != nil {
			return err
		}
	}
	if d.HasPool {
		s.poolItem(tPoolID, d.Pool)
	}
	if d.Category != 0 {
		s.textItem(tCategory, d.Category)
	}
	if d.ForwardStack != traces.NoStack {
		s.key(tForwardFrames)
		s.forwardStack(d.ForwardStack)
	}
	err := s.members(s.t.Text(d.Extra))
	s.op(opSetItems)
	return err
}

// micros returns a time of the trace in microseconds since 1970, or since the trace's beginning if it has no
// epoch.
func (s *snapshotWriter) micros(t int64) int64 {
	return max((s.t.Clock.Epoch+t)/1000, 0)
}
