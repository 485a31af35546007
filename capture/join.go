package capture

import (
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// Windows of one process have gaps between them, and each begins with memory already allocated. Stitching
// makes them one trace: a block that is alive at the end of one window and at the start of the next, at the
// same address and with the same size, lives on. At the start of the next window, what vanished in the gap is
// freed and what appeared in it is allocated, with a detail that says so. Ops, accesses and marks go on;
// times move onto the clock of the first window.
//
// What is alive at a window's start is not always written down. Described windows list it as allocations at
// time 0, which are dropped if the block lives on. An allocator's history implies it through its final state:
// walking the events backwards from there takes every allocation away and puts every freed block back, and
// what remains at the front was there before. So the law start + alloc - free = final closes over the joined
// trace because it closes over each window and the seam is the difference of two known states.
//
// Rejected: giving the blocks of every window new identities and freeing all of them at each seam. That needs
// no matching and the law closes too, but a parameter that lives for the whole job would appear to die at
// every seam.
//
// Work and memory are linear in the windows' events. Segments are matched whole; if a window maps parts of
// expandable segments, only its blocks are stitched, and the loss segments_between_windows says so.

// betweenWindows is the name of the loss, and of the op in the details of events made up at a seam.
const betweenWindows = traces.LossBetweenWindows

// rows is what a joiner writes to: gmt.Writer, or a traces.Builder in tests.
type rows interface {
	String(string) traces.StringID
	Frame(traces.Frame) traces.FrameID
	Stack([]traces.FrameID) traces.StackID
	Detail(traces.Detail) traces.DetailID
	Stream(uint64) traces.StreamID
	Device(traces.Device) traces.DeviceID
	Event(traces.Event)
	Op(traces.Op) traces.OpID
	Access(traces.Access)
	Mark(traces.Mark)
	Lose(name string, s traces.Severity, n int64, detail string)
}

// place is where a block or a segment is.
type place struct {
	device traces.DeviceID // of the joined trace
	addr   uint64
}

// held is a block that is alive, or freed and waiting for a stream.
type held struct {
	size    int64
	stack   traces.StackID // of the joined trace
	detail  traces.DetailID
	stream  traces.StreamID
	pending bool
}

// joiner writes window after window to one set of rows.
type joiner struct {
	out      rows
	epoch    int64
	windows  int
	live     map[place]held
	segments map[place]held
	final    traces.State
	last     int64 // index of the last step of the window before
	end      int64 // the time of its last row
	// tables of the window that is being added, by its own ids; -1 where not yet known
	t       *traces.Trace
	strings []traces.StringID
	frames  []traces.FrameID
	stacks  []traces.StackID
	details []traces.DetailID
	streams []traces.StreamID
	devices []traces.DeviceID
	all     map[traces.DetailID]traces.Detail // by the joined rows' ids
}

func newJoiner(out rows, epoch int64) *joiner {
	return &joiner{out: out, epoch: epoch, live: map[place]held{}, segments: map[place]held{}}
}

// add appends a window.
func (j *joiner) add(w Window) {
	t := w.Trace
	j.adopt(t)
	shift := t.Clock.Epoch - j.epoch
	if t.Clock.Epoch == 0 || j.epoch == 0 {
		shift = 0
	}
	// the window before ended on the device later than on the host
	if begin := start(t); j.windows > 0 && begin+shift < j.end {
		shift = j.end - begin
	}
	given := leading(t)
	blocks, segments := j.atStart(t, given)
	if j.windows == 0 {
		j.live, j.segments = blocks, segments
		given = 0 // the first window's allocations at its start stay what they are
	} else {
		j.seam(blocks, segments, shift+start(t))
		if gap := w.First - j.last - 1; gap > 0 {
			j.out.Lose("steps_between_windows", traces.Info, gap,
				"steps of which only totals were taken stand between the windows of this recording")
		}
	}
	j.copy(t, given, shift)
	for _, l := range t.Losses {
		j.out.Lose(l.Name, l.Severity, l.Count, l.Detail)
	}
	j.final = j.state(&t.Final)
	// a window may have begun before the recording, at negative times
	if last := end(t) + shift; j.windows == 0 || last > j.end {
		j.end = last
	}
	j.windows++
	j.last = w.Last
}

// end returns the time of a window's last row.
func end(t *traces.Trace) int64 {
	at := int64(0)
	for _, m := range t.Marks {
		if m.End != traces.NoTime {
			at = max(at, m.End)
		}
	}
	for d := range t.Devices {
		if first, end := t.DeviceEvents(traces.DeviceID(d)); first < end {
			at = max(at, t.Events.Time[end-1])
		}
	}
	return at
}

// start returns the time of a window's first row.
func start(t *traces.Trace) int64 {
	at, some := int64(0), false
	take := func(x int64) {
		if x != traces.NoTime && (!some || x < at) {
			at, some = x, true
		}
	}
	for _, m := range t.Marks {
		take(m.Start)
	}
	for d := range t.Devices {
		if first, end := t.DeviceEvents(traces.DeviceID(d)); first < end {
			take(t.Events.Time[first])
		}
	}
	return at
}

// leading returns the time before which a window's allocations only list what was already there: 1 for
// described windows, which list it at time 0; 0 for windows that list it another way.
func leading(t *traces.Trace) int64 {
	if saysWhatWasThere(t) && !t.Final.Known {
		return 1
	}
	return 0
}

// saysWhatWasThere reports whether a window opens with allocations at time 0 of what was already there, as
// described windows and those of probes do.
func saysWhatWasThere(t *traces.Trace) bool {
	return t.Source.Format == "described" || t.Source.Format == "probes"
}

// isGiven reports whether event i of t only lists what was already there.
func isGiven(t *traces.Trace, i int, before int64) bool {
	a := t.Events.Action[i]
	return t.Events.Time[i] < before &&
		(a == traces.Alloc || a == traces.SegmentAlloc || a == traces.SegmentMap)
}

// atStart returns what is held when the window begins, in the joined trace's ids.
func (j *joiner) atStart(t *traces.Trace, before int64) (blocks, segments map[place]held) {
	blocks, segments = map[place]held{}, map[place]held{}
	if t.Final.Known {
		for i := range t.Final.Segments {
			s := &t.Final.Segments[i]
			d := j.devices[s.Device]
			segments[place{d, s.Address}] = held{size: s.TotalSize, stack: j.stack(s.Stack),
				stream: j.streams[s.Stream]}
			for _, b := range t.Final.Blocks[s.FirstBlock:s.EndBlock] {
				if b.State == traces.BlockInactive {
					continue
				}
				blocks[place{d, b.Address}] = held{size: b.Requested.Or(b.Size), stack: j.stack(b.Stack),
					stream: j.streams[s.Stream], pending: b.State == traces.BlockPendingFree}
			}
		}
	} else {
		j.play(t, blocks, segments)
	}
	for i := t.Events.Len() - 1; i >= 0; i-- {
		e := t.Events.At(i)
		at := place{j.devices[e.Device], e.Addr}
		h := held{size: e.Size, stack: j.stack(e.Stack), detail: j.detail(e.Detail),
			stream: j.streams[e.Stream]}
		switch e.Action {
		case traces.Alloc:
			if !isGiven(t, i, before) {
				delete(blocks, at)
			}
		case traces.FreeRequested, traces.Free:
			blocks[at] = h
		case traces.FreeCompleted:
			h.pending = true
			blocks[at] = h
		case traces.SegmentAlloc, traces.SegmentMap:
			if !isGiven(t, i, before) {
				delete(segments, at)
			}
		case traces.SegmentFree, traces.SegmentUnmap:
			segments[at] = h
		}
	}
	return blocks, segments
}

// play replays a window's events into blocks and segments, which then hold what is there at its end.
func (j *joiner) play(t *traces.Trace, blocks, segments map[place]held) {
	for i := range t.Events.Len() {
		e := t.Events.At(i)
		at := place{j.devices[e.Device], e.Addr}
		switch e.Action {
		case traces.Alloc:
			blocks[at] = held{size: e.Size, stack: j.stack(e.Stack), detail: j.detail(e.Detail),
				stream: j.streams[e.Stream]}
		case traces.FreeRequested:
			if h, ok := blocks[at]; ok {
				h.pending = true
				blocks[at] = h
			}
		case traces.Free, traces.FreeCompleted:
			delete(blocks, at)
		case traces.SegmentAlloc, traces.SegmentMap:
			segments[at] = held{size: e.Size, stack: j.stack(e.Stack), detail: j.detail(e.Detail),
				stream: j.streams[e.Stream]}
		case traces.SegmentFree, traces.SegmentUnmap:
			delete(segments, at)
		}
	}
}

// seam makes up the events that lead from what was held at the end of the windows so far to what is held at
// the start of the next.
func (j *joiner) seam(blocks, segments map[place]held, at int64) {
	made := int64(0)
	emit := func(p place, h held, a traces.Action) {
		d := traces.Detail{ForwardStack: traces.NoStack, Op: j.out.String(betweenWindows)}
		if known, ok := j.detailOf(h.detail); ok {
			d.Category, d.UserMetadata = known.Category, known.UserMetadata
		}
		j.out.Event(traces.Event{Time: at, Addr: p.addr, Size: h.size, Stack: h.stack,
			Detail: j.out.Detail(d), Stream: h.stream,
			Device: p.device, Action: a})
		made++
	}
	for _, p := range sorted(j.live) {
		h := j.live[p]
		now, stays := blocks[p]
		stays = stays && now.size == h.size
		switch {
		case stays && now.pending == h.pending:
		case stays && now.pending:
			emit(p, h, traces.FreeRequested)
		case h.pending:
			emit(p, h, traces.FreeCompleted)
			delete(j.live, p)
		default:
			j.free(p, h, emit)
			delete(j.live, p)
		}
	}
	j.segmentSeam(segments, emit)
	for _, p := range sorted(blocks) {
		h, was := blocks[p], false
		if _, was = j.live[p]; was {
			continue
		}
		emit(p, h, traces.Alloc)
		if h.pending {
			emit(p, h, traces.FreeRequested)
		}
	}
	j.live = blocks
	if made > 0 {
		j.out.Lose(betweenWindows, traces.DataLoss, made,
			"nothing was recorded between two windows; events at the start of the later one make up for it")
	}
}

// free frees a block with the events that the windows use: described ones do not distinguish a free request
// from its completion.
func (j *joiner) free(p place, h held, emit func(place, held, traces.Action)) {
	if saysWhatWasThere(j.t) {
		emit(p, h, traces.Free)
		return
	}
	emit(p, h, traces.FreeRequested)
	emit(p, h, traces.FreeCompleted)
}

func (j *joiner) segmentSeam(segments map[place]held, emit func(place, held, traces.Action)) {
	if slices.ContainsFunc(j.t.Final.Segments, func(s traces.Segment) bool { return s.Expandable }) {
		j.out.Lose("segments_between_windows", traces.DataLoss, 1,
			"the segments are expandable, and what of them was mapped between two windows is not known")
		j.segments = segments
		return
	}
	for _, p := range sorted(j.segments) {
		if now, stays := segments[p]; !stays || now.size != j.segments[p].size {
			emit(p, j.segments[p], traces.SegmentFree)
			delete(j.segments, p)
		}
	}
	for _, p := range sorted(segments) {
		if _, was := j.segments[p]; !was {
			emit(p, segments[p], traces.SegmentAlloc)
		}
	}
	j.segments = segments
}

func sorted(m map[place]held) []place {
	out := make([]place, 0, len(m))
	for p := range m {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b place) int {
		if a.device != b.device {
			return int(a.device) - int(b.device)
		}
		if a.addr < b.addr {
			return -1
		}
		return 1
	})
	return out
}

// copy appends the window's own rows, and runs them on j.live and j.segments.
func (j *joiner) copy(t *traces.Trace, before, shift int64) {
	ops := make([]traces.OpID, len(t.Ops))
	for i, o := range t.Ops {
		o.Start += shift
		o.Name, o.Module, o.Stack, o.Stream, o.Device = j.string(o.Name), j.string(o.Module),
			j.stack(o.Stack), j.streams[o.Stream], j.devices[o.Device]
		if o.Parent >= 0 && int(o.Parent) < i {
			o.Parent = ops[o.Parent]
		}
		ops[i] = j.out.Op(o)
	}
	// A trace holds the events of one device after those of another, and its accesses as they came. Each
	// access comes before the next event of its own device, so we write that device's events up to there,
	// then the access.
	next := make([]int, len(t.Devices))
	events := func(d traces.DeviceID, end int) {
		for ; next[d] < end; next[d]++ {
			if isGiven(t, next[d], before) {
				continue
			}
			e := t.Events.At(next[d])
			e.Time += shift
			e.Stack, e.Detail, e.Stream, e.Device = j.stack(e.Stack), j.detail(e.Detail), j.streams[e.Stream],
				j.devices[e.Device]
			j.out.Event(e)
			j.track(e)
		}
	}
	for d := range next {
		next[d], _ = t.DeviceEvents(traces.DeviceID(d))
	}
	for _, a := range t.Accesses {
		_, end := t.DeviceEvents(a.Device)
		events(a.Device, min(int(a.Event), end))
		a.Time += shift
		a.Device = j.devices[a.Device]
		if a.Op >= 0 && int(a.Op) < len(ops) {
			a.Op = ops[a.Op]
		}
		j.out.Access(a)
	}
	for d := range next {
		_, end := t.DeviceEvents(traces.DeviceID(d))
		events(traces.DeviceID(d), end)
	}
	for _, m := range t.Marks {
		if m.Start != traces.NoTime {
			m.Start += shift
		}
		if m.End != traces.NoTime {
			m.End += shift
		}
		m.Name = j.string(m.Name)
		if int(m.Device) < len(j.devices) {
			m.Device = j.devices[m.Device]
		}
		j.out.Mark(m)
	}
}

// track runs one event, in the joined trace's ids.
func (j *joiner) track(e traces.Event) {
	at := place{e.Device, e.Addr}
	h := held{size: e.Size, stack: e.Stack, detail: e.Detail, stream: e.Stream}
	switch e.Action {
	case traces.Alloc:
		j.live[at] = h
	case traces.FreeRequested:
		h.pending = true
		j.live[at] = h
	case traces.Free, traces.FreeCompleted:
		delete(j.live, at)
	case traces.SegmentAlloc, traces.SegmentMap:
		j.segments[at] = h
	case traces.SegmentFree, traces.SegmentUnmap:
		delete(j.segments, at)
	}
}
