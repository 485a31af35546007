package traces

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
)

// Builder collects a trace. Every source writes to one. It is not safe for concurrent use. Fields of the
// trace that need no interning (Source, Process, Ops, Marks, Final...) are set on T directly; events go
// through Event so that they can be ordered.
type Builder struct {
	T Trace

	strings map[string]StringID
	frames  map[Frame]FrameID
	stacks  map[uint64][]StackID
	details map[Detail]DetailID
	streams map[uint64]StreamID
	devices map[Device]DeviceID
	seed    maphash.Seed
	scratch []byte
	losses  map[string]int
}

// Limits of the columns' types.
const (
	MaxStreams = 1 << 16
	MaxDevices = 1 << 8
)

// NewBuilder returns an empty Builder.
func NewBuilder() *Builder {
	b := &Builder{
		strings: map[string]StringID{"": 0},
		frames:  map[Frame]FrameID{},
		stacks:  map[uint64][]StackID{},
		details: map[Detail]DetailID{{ForwardStack: NoStack}: 0},
		streams: map[uint64]StreamID{0: 0},
		devices: map[Device]DeviceID{},
		seed:    maphash.MakeSeed(),
		losses:  map[string]int{},
	}
	b.T.Strings = []string{""}
	b.T.Streams = []uint64{0}
	b.T.Details = []Detail{{ForwardStack: NoStack}}
	b.T.Stacks.Offsets = []int32{0}
	b.T.Clock = Clock{HasTime: true, Resolution: 1}
	return b
}

// String interns s.
func (b *Builder) String(s string) StringID {
	if id, ok := b.strings[s]; ok {
		return id
	}
	s = strings.Clone(s)
	id := StringID(len(b.T.Strings))
	b.T.Strings = append(b.T.Strings, s)
	b.strings[s] = id
	return id
}

// Bytes interns the string of p, without allocating if it is known already.
func (b *Builder) Bytes(p []byte) StringID {
	if id, ok := b.strings[string(p)]; ok {
		return id
	}
	return b.String(string(p))
}

// Frame interns a frame.
func (b *Builder) Frame(f Frame) FrameID {
	if id, ok := b.frames[f]; ok {
		return id
	}
	id := FrameID(len(b.T.Frames))
	b.T.Frames = append(b.T.Frames, f)
	b.frames[f] = id
	return id
}

// Stack interns a stack, innermost frame first; an empty one is NoStack. The slice is copied.
func (b *Builder) Stack(ids []FrameID) StackID {
	if len(ids) == 0 {
		return NoStack
	}
	b.scratch = b.scratch[:0]
	for _, id := range ids {
		b.scratch = binary.LittleEndian.AppendUint32(b.scratch, uint32(id))
	}
	h := maphash.Bytes(b.seed, b.scratch)
	for _, id := range b.stacks[h] {
		if slices.Equal(b.T.Stacks.At(id), ids) {
			return id
		}
	}
	id := StackID(b.T.Stacks.Len())
	b.T.Stacks.IDs = append(b.T.Stacks.IDs, ids...)
	b.T.Stacks.Offsets = append(b.T.Stacks.Offsets, int32(len(b.T.Stacks.IDs)))
	b.stacks[h] = append(b.stacks[h], id)
	return id
}

// Detail interns d. Its ForwardStack must be NoStack if there is none.
func (b *Builder) Detail(d Detail) DetailID {
	if id, ok := b.details[d]; ok {
		return id
	}
	id := DetailID(len(b.T.Details))
	b.T.Details = append(b.T.Details, d)
	b.details[d] = id
	return id
}

// Stream returns the id of a raw stream handle. Beyond MaxStreams handles the last id is shared, and the loss
// counted.
func (b *Builder) Stream(handle uint64) StreamID {
	if id, ok := b.streams[handle]; ok {
		return id
	}
	if len(b.T.Streams) == MaxStreams {
		b.Lose("streams_merged", DataLoss, 1,
			"the trace has more than 65,536 streams; the rest are shown as the last one")
		return MaxStreams - 1
	}
	id := StreamID(len(b.T.Streams))
	b.T.Streams = append(b.T.Streams, handle)
	b.streams[handle] = id
	return id
}

// Device returns the id of a device. Beyond MaxDevices the last id is shared, and the loss counted.
func (b *Builder) Device(kind DeviceKind, ordinal int) DeviceID {
	key := Device{Kind: kind, Ordinal: ordinal}
	if id, ok := b.devices[key]; ok {
		return id
	}
	if len(b.T.Devices) == MaxDevices {
		b.Lose("devices_merged", DataLoss, 1,
			"the trace has more than 256 devices; the rest are shown as the last one")
		return MaxDevices - 1
	}
	id := DeviceID(len(b.T.Devices))
	b.T.Devices = append(b.T.Devices, key)
	b.devices[key] = id
	return id
}

// Event appends a memory event.
func (b *Builder) Event(e Event) { b.T.Events.Append(e) }

// Lose counts n losses of one name; the first severity and detail given for a name stay.
func (b *Builder) Lose(name string, s Severity, n int64, detail string) {
	i, ok := b.losses[name]
	if !ok {
		i = len(b.T.Losses)
		b.losses[name] = i
		b.T.Losses = append(b.T.Losses, Loss{Name: name, Severity: s, Detail: detail})
	}
	b.T.Losses[i].Count += n
}

// Finish orders the tables, gives each device its rows and returns the frozen trace. The Builder must not be
// used after it.
//
// Rows of one device keep the order in which they came, even if the clock goes backwards: the source's order
// is the truth, and a clock that steps back is counted as the loss clock_steps_back.
func (b *Builder) Finish() *Trace {
	t := &b.T
	b.orderByDevice()
	n := len(t.Devices)
	t.deviceRange = make([]span, n)
	steps := int64(0)
	for i := 0; i < t.Events.Len(); {
		d := t.Events.Device[i]
		j := i + 1
		for ; j < t.Events.Len() && t.Events.Device[j] == d; j++ {
			if t.Events.Time[j] < t.Events.Time[j-1] {
				steps++
			}
		}
		t.deviceRange[d] = span{i, j}
		i = j
	}
	if steps > 0 {
		b.Lose("clock_steps_back", Info, steps,
			"the source's clock steps back; events keep the order in which they were recorded")
	}
	slices.SortStableFunc(t.Marks, func(a, b Mark) int { return cmp.Compare(markStart(a), markStart(b)) })
	b.strings, b.frames, b.stacks, b.details, b.streams, b.devices = nil, nil, nil, nil, nil, nil
	return t
}

// markStart is where a mark stands in their order: its end if the source lacks its start.
func markStart(m Mark) int64 {
	if m.Start == NoTime {
		return m.End
	}
	return m.Start
}

// orderByDevice makes each device's rows contiguous, stably, and points accesses and counters at the moved
// rows.
func (b *Builder) orderByDevice() {
	e := &b.T.Events
	if slices.IsSorted(e.Device) {
		return
	}
	order := deviceOrder(e.Device)
	moved := make([]int32, e.Len())
	for to, from := range order {
		moved[from] = int32(to)
	}
	var out Events
	out.Grow(e.Len())
	for _, from := range order {
		out.Append(e.At(int(from)))
	}
	*e = out
	for i := range b.T.Counters {
		for j, ev := range b.T.Counters[i].Event {
			b.T.Counters[i].Event[j] = moved[ev]
		}
	}
	b.moveAccesses(order)
}

// deviceOrder returns the rows ordered by device, stably. It is a counting sort, since there are at most
// MaxDevices devices, and a recording of two may interleave all of its rows.
func deviceOrder(device []DeviceID) []int32 {
	var next [MaxDevices]int32
	for _, d := range device {
		next[d]++
	}
	sum := int32(0)
	for d, n := range next {
		next[d] = sum
		sum += n
	}
	order := make([]int32, len(device))
	for i, d := range device {
		order[next[d]] = int32(i)
		next[d]++
	}
	return order
}

// moveAccesses places each access before the next event of its own device in the new order. Both tables are
// in the source's order, so one walk over the two finds how many events of each device came before each
// access.
func (b *Builder) moveAccesses(order []int32) {
	e := &b.T.Events
	var first, seen [MaxDevices]int32
	for i := len(e.Device) - 1; i >= 0; i-- {
		first[e.Device[i]] = int32(i)
	}
	device := make([]DeviceID, len(order)) // device of each event in the old order
	for to, from := range order {
		device[from] = e.Device[to]
	}
	k := 0
	for i := range b.T.Accesses {
		a := &b.T.Accesses[i]
		for ; k < int(a.Event) && k < len(device); k++ {
			seen[device[k]]++
		}
		a.Event = first[a.Device] + seen[a.Device]
	}
}
