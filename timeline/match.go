package timeline

import (
	"context"

	"github.com/gmemtop/gmemtop/traces"
)

// Which allocation does a free belong to? The one that the address holds at that moment. So one walk over a
// device's events, with a table from each address to the allocation that it holds now, finds every lifetime
// in O(n). The table is open addressing with linear probing over slots of 16 bytes, and never deletes: an
// address keeps its slot, because it is reused soon and because the slot counts its uses (the version that
// memory_viz prints). Go's own map costs three to four times as much here.
//
// Rejected: sorting events by address and walking each address's run (n log n, and 12 bytes of scratch per
// event).
//
// This walk reveals what a recording lost: an allocation at an address that still holds one (its free is
// missing), a free at an address whose last block was freed already (its allocation is missing). Both are
// counted, never silently repaired.

// slotState is the state of an address.
type slotState uint32

const (
	slotUnused slotState = iota // no event had the address yet
	slotIdle                    // its last block was freed
	slotAllocated
	slotPending // freed by the user, not completed
)

// slot is the state of one address. held is the provisional id of the allocation that it holds.
type slot struct {
	addr uint64
	held int32
	bits uint32 // version<<2 | state
}

func (s *slot) state() slotState      { return slotState(s.bits & 3) }
func (s *slot) version() int32        { return int32(s.bits >> 2) }
func (s *slot) become(st slotState)   { s.bits = s.bits&^3 | uint32(st) }
func (s *slot) hold(id int32)         { s.held = id; s.become(slotAllocated) }
func (s *slot) release()              { s.bits = (s.bits>>2+1)<<2 | uint32(slotIdle) }
func (s *slot) isHeld() bool          { return s.bits&2 != 0 }
func earlierID(i int) int32           { return int32(-2 - i) } // -1 is NoAlloc
func isEarlier(id int32) (int, bool)  { return int(-2 - id), id < -1 }
func hashAddr(a uint64, sh uint) uint { return uint((a * 0x9e3779b97f4a7c15) >> sh) }

// addrTable maps addresses to slots.
type addrTable struct {
	slots []slot
	shift uint
	used  int
}

func newAddrTable() *addrTable {
	const bits = 12
	return &addrTable{slots: make([]slot, 1<<bits), shift: 64 - bits}
}

// find returns the slot of an address, nil if no event had it.
func (t *addrTable) find(addr uint64) *slot {
	s := t.probe(addr)
	if s.state() == slotUnused {
		return nil
	}
	return s
}

// probe returns the slot of an address, or the unused slot that it would take.
func (t *addrTable) probe(addr uint64) *slot {
	mask := uint(len(t.slots) - 1)
	for i := hashAddr(addr, t.shift); ; i++ {
		s := &t.slots[i&mask]
		if s.addr == addr && s.bits != 0 || s.bits == 0 {
			return s
		}
	}
}

// slot returns the slot of an address and takes a new one if it has none; the caller must then set its state.
// known says whether it had one.
func (t *addrTable) slot(addr uint64) (s *slot, known bool) {
	s = t.probe(addr)
	if s.bits != 0 {
		return s, true
	}
	if t.used*8 >= len(t.slots)*5 {
		t.grow()
		s = t.probe(addr)
	}
	t.used++
	s.addr = addr
	s.become(slotIdle)
	return s, false
}

func (t *addrTable) grow() {
	old := t.slots
	t.slots = make([]slot, 2*len(old))
	t.shift--
	for i := range old {
		if old[i].bits != 0 {
			*t.probe(old[i].addr) = old[i]
		}
	}
}

// earlier is an allocation that was there before the recording: its free has no alloc, or the final state has
// it without one.
type earlier struct {
	addr          uint64
	size, rounded int64 // rounded is 0 where only the rule gives it
	stack         traces.StackID
	count         int32
	version       int32
	stream        traces.StreamID
	pending       bool // already freed by the user when the recording began
	freeStack     bool // stack is the free event's
}

// closing is the end of an allocation at an event that is not its own free.
type closing struct {
	at Moment
	id int32
}

// ending is a closing with a final id.
type ending struct {
	at Moment
	id AllocID
}

// matching is the result of the walk: for each event its allocation, as a provisional id (new ones from 0 in
// order of their alloc, earlier ones from -2 down in order of discovery).
type matching struct {
	of       []AllocID
	versions []int32 // of new allocations
	earlier  []earlier
	closings []closing
	joined   []joinedBlock
	table    *addrTable

	freeMissing, allocMissing, requestMissing int64
	actions                                   [256]int
}

// joinedBlock is a block of the final state that an allocation of the trace explains.
type joinedBlock struct {
	id   int32
	size int64
}

// segmentEvents counts the events that obtain or return segments.
func (m *matching) segmentEvents() int {
	a := &m.actions
	return a[traces.SegmentAlloc] + a[traces.SegmentMap] + a[traces.SegmentFree] + a[traces.SegmentUnmap]
}

// tick is called every tickEvents events with how many were visited since the last call.
type tick func(n int)

const tickEvents = 1 << 16

// matchEvents finds the allocation of each event of rows [first, end).
func matchEvents(ctx context.Context, ev *traces.Events, first, end int, visit tick) (*matching, error) {
	m := &matching{of: make([]AllocID, end-first), table: newAddrTable()}
	for _, a := range ev.Action[first:end] {
		m.actions[a]++
	}
	m.versions = make([]int32, 0, m.actions[traces.Alloc])
	for row := first; row < end; {
		stop := min(row+tickEvents, end)
		m.run(ev, first, row, stop)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		visit(stop - row)
		row = stop
	}
	return m, nil
}

func (m *matching) run(ev *traces.Events, first, from, to int) {
	for row := from; row < to; row++ {
		at := row - first
		switch ev.Action[row] {
		case traces.Alloc:
			m.of[at] = AllocID(m.alloc(ev.Addr[row], Moment(at)))
		case traces.FreeRequested:
			m.of[at] = AllocID(m.freeRequested(ev, row, Moment(at)))
		case traces.FreeCompleted, traces.Free:
			m.of[at] = AllocID(m.freed(ev, row))
		case traces.Annotate:
			m.of[at] = NoAlloc
			if s := m.table.find(ev.Addr[row]); s != nil && s.isHeld() {
				m.of[at] = AllocID(s.held)
			}
		default:
			m.of[at] = NoAlloc
		}
	}
}

func (m *matching) alloc(addr uint64, at Moment) int32 {
	s, _ := m.table.slot(addr)
	if s.isHeld() {
		m.freeMissing++
		m.closings = append(m.closings, closing{at, s.held})
		s.release()
	}
	id := int32(len(m.versions))
	m.versions = append(m.versions, s.version())
	s.hold(id)
	return id
}

func (m *matching) freeRequested(ev *traces.Events, row int, at Moment) int32 {
	s, known := m.table.slot(ev.Addr[row])
	if s.state() == slotAllocated {
		s.become(slotPending)
		return s.held
	}
	if known {
		m.allocMissing++
	}
	if s.state() == slotPending {
		m.closings = append(m.closings, closing{at, s.held})
		s.release()
	}
	id := m.discover(ev, row, s.version(), false)
	s.hold(id)
	s.become(slotPending)
	return id
}

// freed handles the completion of a free, including a free whose request and completion are one event.
func (m *matching) freed(ev *traces.Events, row int) int32 {
	s, known := m.table.slot(ev.Addr[row])
	completion := ev.Action[row] == traces.FreeCompleted
	id := s.held
	if !s.isHeld() {
		if known {
			m.allocMissing++
		}
		id = m.discover(ev, row, s.version(), completion)
	} else if completion && s.state() == slotAllocated {
		m.requestMissing++
	}
	s.release()
	return id
}

func (m *matching) discover(ev *traces.Events, row int, version int32, pending bool) int32 {
	id := earlierID(len(m.earlier))
	m.earlier = append(m.earlier, earlier{
		addr: ev.Addr[row], size: ev.Size[row], stack: ev.Stack[row], stream: ev.Stream[row],
		count: 1, version: version, pending: pending, freeStack: true,
	})
	return id
}

// join matches the blocks of the final state with the allocations that are open at the end, and adds the
// blocks that none explains.
func (m *matching) join(state *traces.State, device traces.DeviceID) {
	for i := range state.Segments {
		seg := &state.Segments[i]
		if seg.Device != device {
			continue
		}
		for _, b := range state.Blocks[seg.FirstBlock:seg.EndBlock] {
			if b.State != traces.BlockInactive {
				m.joinBlock(seg, b)
			}
		}
	}
}

func (m *matching) joinBlock(seg *traces.Segment, b traces.Block) {
	s := m.table.find(b.Address)
	open := s != nil && (s.state() == slotAllocated || s.state() == slotPending &&
		b.State == traces.BlockPendingFree)
	if open {
		m.joined = append(m.joined, joinedBlock{s.held, b.Size})
		return
	}
	e := earlier{
		addr: b.Address, size: b.Requested.Or(b.Size), rounded: b.Size, stack: b.Stack, stream: seg.Stream,
		count: max(b.Count, 1), pending: b.State == traces.BlockPendingFree,
	}
	if s != nil {
		e.version = s.version()
		if s.isHeld() { // the free of what the recording last shows there is missing
			e.version++
		}
	}
	m.earlier = append(m.earlier, e)
}
