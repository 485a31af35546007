package torchsnapshot

import (
	"math"

	"github.com/gmemtop/gmemtop/traces"
)

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

// openEvent adds the row of a trace entry. Rows of one trace are consecutive, so only the last trace may
// grow.
func (f *fold) openEvent(parent value) (value, error) {
	switch {
	case parent.kind == kTraces && (len(f.traces) == 0 || f.traces[len(f.traces)-1].host != parent.ref):
		f.traces = append(f.traces, traceList{first: f.events.n, host: parent.ref})
	case parent.kind == kTrace && parent.ref != uint32(len(f.traces)-1):
		return value{}, limitf("a trace goes on after the next one has begun")
	}
	if n := f.events.n; n > 0 && f.events.at(n-1).flags&rowTouched == 0 {
		return value{}, limitf("a trace entry without any key")
	}
	r, err := f.events.add()
	if err != nil {
		return value{}, err
	}
	r.time, r.stack = traces.NoTime, int32(traces.NoStack)
	return value{kind: kEvent, ref: f.events.n - 1}, nil
}

// repeatEvent adds a copy of row i, for an entry that is listed again through the memo.
func (f *fold) repeatEvent(i uint32, parent value) (value, error) {
	v, err := f.openEvent(parent)
	if err == nil {
		*f.events.at(v.ref) = *f.events.at(i)
		if d := f.events.detail(i); d != 0 {
			f.events.setDetail(v.ref, d)
		}
	}
	return v, err
}

// setEvent writes items into a row.
func (f *fold) setEvent(ref uint32, items []value) error {
	r := f.events.at(ref)
	r.flags |= rowTouched
	known := f.events.detail(ref) // the value of d until it is written
	d := f.details.list[known]
	free, hasFree := uint64(0), false
	var more extra
	for i := 0; i+1 < len(items); i += 2 {
		k, v := &items[i], &items[i+1]
		if k.kind != kText {
			f.wrongType()
			continue
		}
		ok := true
		switch k.text() {
		case tActionKey:
			r.flags |= rowAction
			switch {
			case v.kind == kText && v.text() >= tFirstAction &&
				v.text() < tFirstAction+text(endAction-firstAction):
				r.action = firstAction + traces.Action(v.text()-tFirstAction)
			case v.kind == kText:
				d.Action, known = traces.StringID(v.ref), -1
			default:
				ok = false
			}
		case tAddr:
			r.addr, ok = v.asAddress()
			r.flags |= rowAddr
		case tSize:
			r.size, ok = f.size(*v)
		case tStream:
			var handle uint64
			if handle, ok = v.asAddress(); ok {
				r.stream = f.streams.id(handle, f.losses)
			}
		case tTimeUS:
			r.time, ok = f.micros(*v)
		case tFrames:
			var err error
			if r.stack, err = f.stackOf(*v, kEvent, tFrames); err != nil {
				return err
			}
		case tCompileContext:
			ok = setText(&d.CompileContext, &known, *v)
		case tUserMetadata:
			ok = setText(&d.UserMetadata, &known, *v)
		case tCategory:
			ok = setText(&d.Category, &known, *v)
		case tPoolID, tSegmentPoolID:
			if v.kind == kNone {
				break
			}
			if d.Pool, d.HasPool = f.asPool(*v); !d.HasPool {
				ok = false
			}
			known = -1
		case tForwardFrames:
			s, err := f.stackOf(*v, kEvent, tForwardFrames)
			if err != nil {
				return err
			}
			d.ForwardStack, known = traces.StackID(f.stacks.reversed(s)), -1
		case tDeviceFree:
			free, ok = v.asAddress()
			hasFree = ok
		default:
			f.unknownKey()
			f.add(&more, *k, *v)
		}
		if !ok {
			f.wrongType()
		}
	}
	if r.action == traces.OOM && !hasFree {
		r.addr = traces.UnknownFree
	}
	if hasFree {
		if r.action == traces.OOM || r.flags&rowAddr == 0 {
			r.addr = free
		} else {
			f.unknownKey()
			f.add(&more, textValue(tDeviceFree), intValue(int64(free)))
		}
	}
	if len(more) > 0 {
		d.Extra, known = f.join(d.Extra, more), -1
	}
	if known < 0 {
		f.events.setDetail(ref, f.details.intern(d))
	}
	return nil
}

// setText sets a string of a detail. PyTorch writes N/A for no compile context, which means the same as an
// absent key.
func setText(dst *traces.StringID, known *int32, v value) bool {
	t := v.text()
	switch v.kind {
	case kNone:
		return true
	case kText:
	default:
		return false
	}
	if t == tNoContext {
		t = tEmpty
	}
	if *dst != traces.StringID(t) {
		*dst, *known = traces.StringID(t), -1
	}
	return true
}

// maxBytes is more than any device has; sums of such sizes do not come near an overflow.
const maxBytes = 1 << 50

// size returns v as a number of bytes; an impossible one is counted as a loss and becomes 0.
func (vs *values) size(v value) (int64, bool) {
	n, ok := v.asInt()
	if v.kind == kUint || v.kind == kBig {
		n, ok = math.MaxInt64, true
	}
	if ok && (n < 0 || n > maxBytes) {
		vs.lose("sizes_out_of_range", traces.Fault, 1, "sizes below zero or above 1 PiB were taken as 0")
		n = 0
	}
	return n, ok
}

// micros returns v as microseconds since 1970, traces.NoTime if it cannot be.
func (vs *values) micros(v value) (int64, bool) {
	if v.kind == kNone {
		return traces.NoTime, true
	}
	n, ok := v.asInt()
	if ok && n >= 0 && n <= math.MaxInt64/1000 {
		return n, true
	}
	if ok || v.kind == kUint || v.kind == kBig {
		vs.lose("times_out_of_range", traces.Fault, 1,
			"times before 1970 or after the year 2262 were taken as absent")
		ok = true
	}
	return traces.NoTime, ok
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
