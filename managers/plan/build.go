package plan

import (
	"context"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// From a recording to a problem.
//
// One steady iteration is cut out and laid on an axis of ops. If the recording has the data flow, an op is a
// position, and what is allocated and freed between two ops happens at the second; a free that follows an
// allocation there gets a position of its own (an op of no duration), so that the problem's peak is the
// recording's. If the recording only has accesses or lifetimes, every allocation, free and access is a
// position of its own, with the time until the next one as its duration: the axis on which the AutoSwap and
// SmartPool papers plan.
//
// What is alive throughout persists. What was alive before and dies within is paired with what is made within
// and survives (same size, same call site, same order): the same tensor, one iteration apart, carried across
// the boundary. What finds no partner lives from the boundary on or up to it; a note counts it.
//
// Complexity: O(events log events) of the iteration. Rejected: planning for the whole recording (iterations
// repeat, and a plan for one serves all); pairing by address (the allocator may give the next one another).

// BuildOptions say which iteration is taken and on what hardware it is planned.
type BuildOptions struct {
	// Iteration is the index of the iteration to take, counted from 0, or [SteadyIteration] or
	// [LastIteration].
	Iteration int
	// Period, where its Length is not 0, cuts the window in ops as SmartPool and AutoSwap count them
	// (allocations, frees, accesses) instead.
	Period   steps.SmartPoolPeriod
	Hardware Hardware
	// EagerOnly makes a problem for a training that runs in eager PyTorch, of one iteration whatever outlives
	// it: see [Problem.EagerOnly]. What outlives it counts twice only while there are two of it.
	EagerOnly bool
	// Align overrides the alignment; 0 takes 512 bytes on a GPU, 64 on a CPU, 1 for a storage-allocation
	// problem.
	Align int64
	Name  string
}

const (
	// SteadyIteration selects the steady one with the highest peak or, of two recorded op by op, the second:
	// only there is it known what was carried over.
	SteadyIteration = -1
	// LastIteration takes the last one, of a recording that ends with a whole step.
	LastIteration = -2
)

// tick is an event or an access of the recording.
type tick struct {
	time  int64
	alloc timeline.AllocID
	row   int32 // of an access in Trace.Accesses; 0 for an event
	kind  tickKind
}

type tickKind uint8

const (
	tickAlloc tickKind = iota
	tickFree
	tickAccess
)

// extractor is the state of one extraction.
type extractor struct {
	d     *timeline.Device
	tr    *traces.Trace
	p     *Problem
	ticks []tick
	// By allocation: its buffer, and for one that is carried with an overlap the slot that the next
	// iteration's one uses.
	buffer map[timeline.AllocID]BufferID
	stream map[traces.StreamID]int16
	// unattributed are bytes that only the source's totals contain, doubled those of buffers that live longer
	// than the window
	unattributed, doubled int64
	// lost are accesses of no known block, wider those that name more bytes than theirs has.
	lost, wider int
}

// worthUnrolling is the share of the peak that buffers which outlive an iteration must hold for two
// iterations to be planned as one.
const worthUnrolling = 0.01

// FromDevice builds a problem from a device's recording. It returns an [*Unavailable] if the recording has no
// lifetimes, and the context's error when cancelled.
func FromDevice(ctx context.Context, d *timeline.Device, opt BuildOptions) (*Problem, error) {
	tr := d.Timeline().Trace
	kind := tr.Kind()
	if kind == traces.Point {
		return nil, &Unavailable{Reason: kind.Missing()}
	}
	x := &extractor{d: d, tr: tr, buffer: map[timeline.AllocID]BufferID{},
		stream: map[traces.StreamID]int16{},
		p: &Problem{Name: opt.Name, Kind: kind, EagerOnly: opt.EagerOnly, Hardware: opt.Hardware,
			Source: d, HasTimes: tr.Clock.HasTime, Align: opt.Align}}
	if x.p.Align == 0 {
		switch d.Info.Kind {
		case traces.DeviceGPU:
			x.p.Align = torchalloc.MinBlock
		case traces.DeviceArena:
			x.p.Align = 1
		default:
			x.p.Align = 64
		}
	}
	x.p.TimesInferred = kind == traces.Lifetimes
	x.p.Hardware.LaunchGap = 0 // recorded times hold it already
	x.unattributed = d.Totals.Unattributed
	if err := x.collect(ctx); err != nil {
		return nil, err
	}
	w, err := x.window(opt)
	if err != nil {
		return nil, err
	}
	p, doubled, err := x.problem(ctx, w.first, w.end, 1, w.idle[0])
	if err != nil || w.second <= w.end || opt.EagerOnly {
		return p, err
	}
	if peak, _ := p.PeakLive(); float64(doubled) < worthUnrolling*float64(peak) {
		return p, nil
	}
	// Buffers that outlive an iteration alternate between two places: over two iterations they do not.
	two, still, err := x.problem(ctx, w.first, w.second, 2, w.idle[1])
	if err != nil || still > doubled/2 {
		return p, ctx.Err()
	}
	two.Notes = append(two.Notes, "buffers live longer than an iteration: two iterations are planned as "+
		"one, and times and traffic are given for one")
	return two, nil
}

// problem cuts the ticks [first, end), which hold n iterations, with the time around them. It also returns
// the bytes of buffers that live longer than that.
func (x *extractor) problem(ctx context.Context, first, end, n int, around idle) (*Problem, int64, error) {
	y := *x
	p := *x.p
	y.p, y.doubled, y.lost, y.wider = &p, 0, 0, 0
	y.buffer, y.stream = map[timeline.AllocID]BufferID{}, map[traces.StreamID]int16{}
	p.Notes, p.Iterations = slices.Clone(p.Notes), n
	if err := y.cut(ctx, first, end, around); err != nil {
		return nil, 0, err
	}
	if err := p.Finish(); err != nil {
		return nil, 0, err
	}
	return &p, y.doubled, nil
}

// collect lists the device's ticks in the order of the recording.
func (x *extractor) collect(ctx context.Context) error {
	acc := x.tr.Accesses
	base, n := x.tr.DeviceEvents(x.d.ID)
	n -= base
	live := map[uint64]timeline.AllocID{}
	for id := range x.d.Allocs.Len() {
		if x.d.Allocs.Start[id] < 0 {
			live[x.d.Allocs.Addr[id]] = timeline.AllocID(id)
		}
	}
	next := 0
	for m := 0; m <= n; m++ {
		if m%(1<<14) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for ; next < len(acc); next++ {
			a := &acc[next]
			// before its event is looked at: the events of other devices are numbered apart
			if a.Device != x.d.ID {
				continue
			}
			if int(a.Event) > base+m && m < n {
				break
			}
			id, ok := live[a.Addr]
			if !ok {
				id = timeline.LiveAtAddr(x.d, timeline.Moment(m-1), a.Addr)
			}
			x.ticks = append(x.ticks, tick{time: a.Time, alloc: id, row: int32(next), kind: tickAccess})
		}
		if m == n {
			break
		}
		id := x.d.AllocOf(timeline.Moment(m))
		if id == timeline.NoAlloc {
			continue
		}
		switch timeline.Moment(m) {
		case x.d.Allocs.Start[id]:
			live[x.d.Allocs.Addr[id]] = id
			x.ticks = append(x.ticks, tick{time: x.d.Time(timeline.Moment(m)), alloc: id,
				kind: tickAlloc})
		case x.d.Allocs.End[id]:
			delete(live, x.d.Allocs.Addr[id])
			x.ticks = append(x.ticks, tick{time: x.d.Time(timeline.Moment(m)), alloc: id,
				kind: tickFree})
		}
	}
	return nil
}

// errNothing says that there is nothing to plan.
var errNothing = errors.New("the recording holds no allocation to plan")

// cut lays the ticks [first, end) on the axis.
func (x *extractor) cut(ctx context.Context, first, end int, around idle) error {
	ticks := x.ticks[first:end]
	born, dies := map[timeline.AllocID]bool{}, map[timeline.AllocID]bool{}
	for _, t := range ticks {
		switch t.kind {
		case tickAlloc:
			born[t.alloc] = true
		case tickFree:
			dies[t.alloc] = true
		}
	}
	before := x.aliveBefore(first)
	x.streams(ticks, before)
	x.addBuffers(ticks, before, born, dies)
	if x.p.Kind == traces.Dataflow {
		x.dataflow(ticks)
	} else {
		x.events(first, end, around)
	}
	return ctx.Err()
}

// aliveBefore lists the allocations that are alive when tick first happens, oldest first.
func (x *extractor) aliveBefore(first int) []timeline.AllocID {
	alive := map[timeline.AllocID]bool{}
	for id := range x.d.Allocs.Len() {
		if x.d.Allocs.Start[id] < 0 {
			alive[timeline.AllocID(id)] = true
		}
	}
	for _, t := range x.ticks[:first] {
		switch t.kind {
		case tickAlloc:
			alive[t.alloc] = true
		case tickFree:
			delete(alive, t.alloc)
		}
	}
	list := make([]timeline.AllocID, 0, len(alive))
	for id := range alive {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// streams numbers the streams that allocations and ops of the iteration use, in order of first use.
func (x *extractor) streams(ticks []tick, before []timeline.AllocID) {
	use := func(s traces.StreamID) {
		if _, ok := x.stream[s]; !ok && len(x.stream) < 1<<10 {
			x.stream[s] = int16(len(x.stream))
		}
	}
	for _, t := range ticks {
		switch {
		case t.kind == tickAlloc:
			use(x.d.Allocs.Stream[t.alloc])
		case t.kind == tickAccess && x.tr.Accesses[t.row].Op != traces.NoOp:
			use(x.tr.Ops[x.tr.Accesses[t.row].Op].Stream)
		}
	}
	for _, id := range before {
		use(x.d.Allocs.Stream[id])
	}
	x.p.Streams = max(len(x.stream), 1)
}

// siteKey is what two allocations of one tensor in two iterations share.
type siteKey struct {
	size  int64
	stack traces.StackID
	name  traces.StringID
}

func (x *extractor) key(id timeline.AllocID) siteKey {
	return siteKey{x.d.Allocs.Size[id], x.d.Allocs.Stack[id], x.metadata(id)}
}

func (x *extractor) metadata(id timeline.AllocID) traces.StringID {
	if m := x.d.Allocs.Start[id]; m >= 0 {
		base, _ := x.tr.DeviceEvents(x.d.ID)
		return x.tr.DetailOf(base + int(m)).UserMetadata
	}
	return 0
}

// addBuffers makes the buffers of everything that is alive in the window, and pairs what is carried across
// its ends. Positions are filled in later.
func (x *extractor) addBuffers(ticks []tick, before []timeline.AllocID, born,
	dies map[timeline.AllocID]bool) {
	waiting := map[siteKey][]timeline.AllocID{} // dies within, was there before
	for _, id := range before {
		if dies[id] {
			waiting[x.key(id)] = append(waiting[x.key(id)], id)
		} else {
			x.add(id, Persistent)
		}
	}
	for _, t := range ticks {
		if t.kind != tickAlloc {
			continue
		}
		id := t.alloc
		if dies[id] {
			x.add(id, Inside)
			continue
		}
		if w := waiting[x.key(id)]; len(w) > 0 {
			waiting[x.key(id)] = w[1:]
			x.buffer[w[0]] = x.add(id, Carried)
			continue
		}
		x.add(id, Inside)
	}
	for _, id := range before {
		if _, ok := x.buffer[id]; !ok {
			x.add(id, Inside)
		}
	}
}

func (x *extractor) add(id timeline.AllocID, life Life) BufferID {
	b := BufferID(len(x.p.Buffers))
	name := x.tr.Text(x.metadata(id))
	if name == "" {
		name = x.d.UniqueName(id)
	}
	a := &x.d.Allocs
	x.p.Buffers = append(x.p.Buffers, Buffer{Name: name, Size: a.Size[id], Life: life,
		Category: a.Category[id], Inferred: a.Inferred[id],
		Stream: x.stream[a.Stream[id]], Alloc: id, Start: -1, End: -1})
	x.buffer[id] = b
	return b
}

// bound notes that a buffer begins or ends at a position.
func (x *extractor) bound(t tick, at OpID) {
	b := &x.p.Buffers[x.buffer[t.alloc]]
	if t.kind == tickAlloc {
		b.Start = at
	} else {
		b.End = at
	}
}

// settle gives the buffers without a recorded bound the window's, and splits those that are carried for
// longer than an iteration.
func (x *extractor) settle() {
	n := OpID(len(x.p.Ops))
	cutOff, long := 0, 0
	for i := range x.p.Buffers {
		b := &x.p.Buffers[i]
		switch {
		case b.Life == Inside && b.Start == 0 && b.End < 0 && (b.Category == timeline.Parameter ||
			b.Category == timeline.OptimizerState):
			b.Life = Persistent // a recording that begins by making the model
		case b.Life == Inside:
			if b.Start < 0 || b.End < 0 {
				cutOff++
			}
			b.Start = max(b.Start, 0)
			if b.End < 0 {
				b.End = n
			}
			if b.Start == b.End { // freed by the very first op
				b.End++
			}
		case b.Life == Carried && b.End > b.Start: // two are alive at once: one slot each, taken in turn
			long++
			x.doubled += b.Size
			second := *b
			second.Name += " (the iteration's before)"
			second.Life, b.Life = Persistent, Persistent
			if x.p.EagerOnly { // if there is only one, its allocator keeps no place free for the second
				second.Life = Inside
			}
			x.p.Buffers = append(x.p.Buffers, second)
		}
	}
	if cutOff > 0 && x.d.Info.Kind != traces.DeviceArena {
		x.p.Notes = append(x.p.Notes, count(cutOff,
			"buffer lives across a step boundary without a counterpart in the other step: it is planned "+
				"as if it began or ended there",
			"buffers live across a step boundary without a counterpart in the other step: they are planned "+
				"as if they began or ended there"))
	}
	if x.unattributed > 0 {
		x.p.Buffers = append(x.p.Buffers, Buffer{Name: "allocated before the recording", Size: x.unattributed,
			Life: Persistent, Alloc: timeline.NoAlloc})
	}
	switch {
	case long > 0 && x.p.EagerOnly:
		x.p.Notes = append(x.p.Notes, count(long,
			"buffer lives longer than an iteration, and is there twice for a part of it",
			"buffers live longer than an iteration, and are there twice for a part of it"))
	case long > 0:
		x.p.Notes = append(x.p.Notes, count(long,
			"buffer lives longer than an iteration, and has two places, taken in turn",
			"buffers live longer than an iteration, and have two places, taken in turn"))
	}
}
