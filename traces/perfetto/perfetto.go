// Package perfetto writes traces for Perfetto (ui.perfetto.dev) in its native protobuf format, as track
// events in one packet sequence. This format is smaller than Chrome's JSON, keeps nanoseconds, and gives byte
// counters their unit.
//
// For each device it holds counters of allocated and reserved bytes and of everything else that the trace
// samples; iterations, phases and annotations; out-of-memory events; ops by thread and kernels by stream; and
// the lifetime of every block as a slice, in a group for each size class, the largest first. Blocks that live
// at the same time are on lanes below each other, at most 256 for a class; the group's name says how many are
// left out.
package perfetto

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
)

// writer is the state of one call of Write.
type writer struct {
	*stream
	ctx        context.Context
	t          *traces.Trace
	zero, last int64 // first and last time in the trace
	process    track
	steps      int
	stacks     map[traces.StackID]stack
}

// stack is a call stack as the trace shows it.
type stack struct {
	id    uint64 // of its interned text
	inner string // its innermost frame
}

// Write writes t to w. Times count from the trace's first event; a trace without a clock has the problem's
// unit or the event's index instead. Errors are those of w and ctx.
func Write(ctx context.Context, w io.Writer, t *traces.Trace) error {
	p := &writer{stream: newStream(w), ctx: ctx, t: t, stacks: map[traces.StackID]stack{}}
	p.zero, p.last = bounds(t)
	name := "gmemtop: " + t.Source.Format
	if rank, known := t.Process.Rank.Value(); known {
		name = fmt.Sprintf("rank %d (%s)", rank, t.Source.Format)
	}
	p.process = p.newProcess(t.Process.PID.Or(0), name)
	for d := range t.Devices {
		p.device(traces.DeviceID(d))
	}
	p.ops()
	if p.err != nil {
		return fmt.Errorf("perfetto: %w", p.err)
	}
	return p.close()
}

// bounds returns the first and last time of t.
func bounds(t *traces.Trace) (first, last int64) {
	found := false
	see := func(at int64) {
		if at == traces.NoTime {
			return
		}
		if !found {
			first, last, found = at, at, true
		}
		first, last = min(first, at), max(last, at)
	}
	for _, at := range t.Events.Time {
		see(at)
	}
	for i := range t.Ops {
		see(t.Ops[i].Start)
		see(t.Ops[i].Start + t.Ops[i].Duration)
	}
	for _, m := range t.Marks {
		see(m.Start)
		see(m.End)
	}
	return first, last
}

// cancelled reports whether to stop. Every loop over rows calls it.
func (p *writer) cancelled() bool {
	p.steps++
	if p.steps%1024 == 0 && p.err == nil {
		p.err = p.ctx.Err()
	}
	return p.err != nil
}

func (p *writer) deviceName(d traces.DeviceID) string {
	dev := p.t.Devices[d]
	s := fmt.Sprintf("%v %d", dev.Kind, dev.Ordinal)
	if dev.Name != "" {
		s += " " + dev.Name
	}
	return s
}

func (p *writer) device(d traces.DeviceID) {
	group := p.newTrack(p.process, p.deviceName(d), groupTrack)
	lives := lifetimes(p.t, d, p.last)
	p.usage(group, d, lives)
	for _, c := range p.t.Counters {
		if c.Device != d {
			continue
		}
		on := p.newTrack(group, p.t.Text(c.Name), bytesTrack)
		for i := range c.Time {
			if p.cancelled() {
				return
			}
			p.count(on, c.Time[i]-p.zero, c.Value[i])
		}
	}
	p.marks(group, d)
	p.ooms(group, d)
	p.blocks(group, lives)
}

func (p *writer) marks(group track, d traces.DeviceID) {
	for _, k := range []struct {
		kind  traces.MarkKind
		title string
	}{{traces.MarkIteration, "iterations"}, {traces.MarkPhase, "phases"},
		{traces.MarkAnnotation, "annotations"}} {
		var list []slice
		for _, m := range p.t.Marks {
			if m.Kind != k.kind || m.Device != d {
				continue
			}
			s := slice{start: m.Start, end: m.End, name: p.t.Text(m.Name)}
			if s.start == traces.NoTime {
				s.start = p.zero
			}
			if s.end == traces.NoTime {
				s.end = p.last
			}
			list = append(list, s)
		}
		p.nested(group, k.title, list)
	}
}

func (p *writer) ooms(group track, d traces.DeviceID) {
	on := track(0)
	first, end := p.t.DeviceEvents(d)
	for i := first; i < end && !p.cancelled(); i++ {
		e := p.t.Events.At(i)
		if e.Action != traces.OOM {
			continue
		}
		if on == 0 {
			on = p.newTrack(group, "out of memory", plainTrack)
		}
		notes := []note{{key: "requested_bytes", number: e.Size}}
		if s := p.stack(e.Stack); s.id != 0 {
			notes = append(notes, note{key: "stack", id: s.id})
		}
		p.event(on, e.Time-p.zero, typeInstant, "out of memory", notes...)
	}
}

// ops shows ops by thread and kernels by stream.
func (p *writer) ops() {
	type place struct {
		thread int32
		device traces.DeviceID
		stream traces.StreamID
	}
	rows := map[place][]slice{}
	ends := make([]int64, len(p.t.Ops))
	var order []place
	for i := range p.t.Ops {
		if p.cancelled() {
			return
		}
		op := &p.t.Ops[i]
		at := place{thread: op.Thread}
		if op.Thread < 0 {
			at.device, at.stream = op.Device, op.Stream
		}
		if _, ok := rows[at]; !ok {
			order = append(order, at)
		}
		ends[i] = op.Start + op.Duration
		if op.Parent != traces.NoOp {
			ends[i] = min(ends[i], max(ends[op.Parent], op.Start)) // sources round
		}
		s := slice{start: op.Start, end: ends[i], name: p.t.Text(op.Name)}
		if op.Module != 0 {
			s.notes = append(s.notes, note{key: "module", text: p.t.Text(op.Module)})
		}
		if op.Phase != traces.PhaseUnknown {
			s.notes = append(s.notes, note{key: "phase", text: op.Phase.String()})
		}
		rows[at] = append(rows[at], s)
	}
	for _, at := range order {
		title := fmt.Sprintf("thread %d", at.thread)
		if at.thread < 0 {
			title = fmt.Sprintf("%s stream %d", p.deviceName(at.device), p.t.Streams[at.stream])
		}
		p.nested(p.process, title, rows[at])
	}
}

// slice is a named range on a track.
type slice struct {
	start, end int64
	name       string
	notes      []note
}

// maxNested is the most tracks over which ranges that overlap without nesting are spread.
const maxNested = 16

// nested writes ranges that mostly nest. One that overlaps another without nesting goes to a further track of
// the same name.
func (p *writer) nested(parent track, title string, list []slice) {
	slices.SortStableFunc(list, func(a, b slice) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	var lanes []lane
	for i := range list {
		if p.cancelled() {
			return
		}
		s := &list[i]
		k := slices.IndexFunc(lanes, func(l lane) bool { return l.takes(s) })
		if k < 0 {
			k = min(len(lanes), maxNested)
			if k < len(lanes) {
				continue // nested deeper than a screen can show
			}
			lanes = append(lanes, lane{on: p.newTrack(parent, title, plainTrack)})
		}
		lanes[k].put(p, s)
	}
	for k := range lanes {
		lanes[k].finish(p, p.last)
	}
}

// lane is a track with the ranges that are open on it.
type lane struct {
	on   track
	open []int64 // ends, outermost first
}

// takes reports whether s nests in what is open at its start.
func (l lane) takes(s *slice) bool {
	for k := len(l.open) - 1; k >= 0; k-- {
		if l.open[k] > s.start {
			return s.end <= l.open[k]
		}
	}
	return true
}

func (l *lane) put(p *writer, s *slice) {
	l.finish(p, s.start)
	p.event(l.on, s.start-p.zero, typeBegin, s.name, s.notes...)
	l.open = append(l.open, s.end)
}

// finish closes the ranges that end at or before a time.
func (l *lane) finish(p *writer, at int64) {
	for n := len(l.open); n > 0 && l.open[n-1] <= at; n-- {
		p.event(l.on, l.open[n-1]-p.zero, typeEnd, "")
		l.open = l.open[:n-1]
	}
}
