package torchsnapshot

import "github.com/gmemtop/gmemtop/traces"

// Events are collected in chunks and then copied into columns of exactly the right length. Growing columns in
// place would copy them two dozen times and leave the old ones to the garbage collector.
const (
	chunkBits = 10
	chunkRows = 1 << chunkBits
)

// row is 32 bytes. The detail, which few events have, is kept beside it.
type row struct {
	time   int64 // microseconds since 1970, traces.NoTime if the entry has none
	addr   uint64
	size   int64
	stack  int32
	stream uint16
	action traces.Action
	flags  uint8
}

// Flags of a row.
const (
	rowTouched = 1 << iota // some key was set: an entry that is cut off before has none
	rowAction
	rowAddr
)

type eventTable struct {
	chunks  []*[chunkRows]row
	details []*[chunkRows]int32 // beside chunks; nil if all are 0
	n       uint32
}

func (t *eventTable) at(i uint32) *row { return &t.chunks[i>>chunkBits][i&(chunkRows-1)] }

func (t *eventTable) detail(i uint32) int32 {
	if c := t.details[i>>chunkBits]; c != nil {
		return c[i&(chunkRows-1)]
	}
	return 0
}

func (t *eventTable) setDetail(i uint32, d int32) {
	c := &t.details[i>>chunkBits]
	if *c == nil {
		*c = new([chunkRows]int32)
	}
	(*c)[i&(chunkRows-1)] = d
}

func (t *eventTable) add() (*row, error) {
	if t.n&(chunkRows-1) == 0 {
		if t.n >= maxRows-chunkRows {
			return nil, limitf("more than %d events", maxRows)
		}
		t.chunks = append(t.chunks, new([chunkRows]row))
		t.details = append(t.details, nil)
	}
	r := t.at(t.n)
	t.n++
	return r, nil
}

// detailTable interns details; their strings are texts and their stacks rows of values.stacks.
type detailTable struct {
	list  []traces.Detail
	index map[traces.Detail]int32
	last  int32
}

func (t *detailTable) init() {
	none := traces.Detail{ForwardStack: traces.NoStack}
	t.list = []traces.Detail{none}
	t.index = map[traces.Detail]int32{none: 0}
}

func (t *detailTable) intern(d traces.Detail) int32 {
	if t.list[t.last] == d { // neighbours are mostly alike
		return t.last
	}
	i, ok := t.index[d]
	if !ok {
		i = int32(len(t.list))
		t.list = append(t.list, d)
		t.index[d] = i
	}
	t.last = i
	return i
}

// streamTable numbers raw stream handles in order of appearance; 0 is the default stream.
type streamTable struct {
	handles []uint64
	index   map[uint64]uint16
	last    uint16
}

func (t *streamTable) init() {
	t.handles = []uint64{0}
	t.index = map[uint64]uint16{0: 0}
}

func (t *streamTable) id(handle uint64, ls losses) uint16 {
	if t.handles[t.last] == handle {
		return t.last
	}
	i, ok := t.index[handle]
	if !ok {
		if len(t.handles) == traces.MaxStreams {
			ls.lose("streams_merged", traces.DataLoss, 1,
				"the trace has more than 65,536 streams; the rest are shown as the last one")
			return traces.MaxStreams - 1
		}
		i = uint16(len(t.handles))
		t.handles = append(t.handles, handle)
		t.index[handle] = i
	}
	t.last = i
	return i
}

// segmentMeta is what finishing needs to know about a segment besides its row.
type segmentMeta struct {
	device  int32
	host    uint8
	touched bool // some key was set
	wanted  bool // requested_size was there
}

type blockMeta struct{ touched, addressed bool }

// blockList is the run of blocks in one list.
type blockList struct {
	first, count int32
	used         bool // a segment has it
}

// segmentTable holds the allocator's final state.
type segmentTable struct {
	segments   []traces.Segment
	segmentOf  []segmentMeta // beside segments
	blocks     []traces.Block
	blockOf    []blockMeta // beside blocks
	blockLists []blockList
}

func (t *segmentTable) openSegment(parent value) (value, error) {
	n := len(t.segments)
	if n > 0 && !t.segmentOf[n-1].touched || n == maxRows {
		return value{}, limitf("a segment without any key")
	}
	t.segments = append(t.segments, traces.Segment{Stack: traces.NoStack})
	t.segmentOf = append(t.segmentOf, segmentMeta{host: uint8(parent.ref)})
	return value{kind: kSegment, ref: uint32(n)}, nil
}

func (t *segmentTable) openBlock(parent value) (value, error) {
	n := len(t.blocks)
	switch {
	case parent.ref != uint32(len(t.blockLists)-1):
		return value{}, limitf("a list of blocks goes on after the next one has begun")
	case n > 0 && !t.blockOf[n-1].touched || n == maxRows:
		return value{}, limitf("a block without any key")
	}
	t.blocks = append(t.blocks, traces.Block{Stack: traces.NoStack, Count: 1})
	t.blockOf = append(t.blockOf, blockMeta{})
	t.blockLists[parent.ref].count++
	return value{kind: kBlock, ref: uint32(n)}, nil
}
