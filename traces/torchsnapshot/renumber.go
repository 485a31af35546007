package torchsnapshot

import "github.com/gmemtop/gmemtop/traces"

// renumber moves fold's tables into a trace in the order of first use.
type renumber struct {
	f       *fold
	t       *traces.Trace
	arena   string // all of fold's strings, which the trace's are parts of
	texts   []traces.StringID
	frames  []traces.FrameID
	stacks  []traces.StackID
	streams []traces.StreamID
	details []traces.DetailID
}

// unused marks a row that is not in the trace yet.
const unused = -1

func newRenumber(f *fold, t *traces.Trace) *renumber {
	r := &renumber{
		f: f, t: t, arena: string(f.texts.arena),
		texts:  filled[traces.StringID](len(f.texts.ends), unused),
		frames: filled[traces.FrameID](len(f.frames.list), unused),
		stacks: filled[traces.StackID](f.stacks.len(), unused),
		// 0 is both unused and the default stream, which is first
		streams: make([]traces.StreamID, len(f.streams.handles)),
		details: filled[traces.DetailID](len(f.details.list), unused),
	}
	r.texts[0], r.details[0] = 0, 0
	return r
}

func filled[T ~int32](n int, v T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = v
	}
	return s
}

func (r *renumber) text(i traces.StringID) traces.StringID {
	if r.texts[i] < 0 {
		r.texts[i] = traces.StringID(len(r.t.Strings))
		r.t.Strings = append(r.t.Strings, r.arena[r.f.texts.ends[i-1]:r.f.texts.ends[i]])
	}
	return r.texts[i]
}

func (r *renumber) frame(i traces.FrameID) traces.FrameID {
	if r.frames[i] < 0 {
		fr := r.f.frames.list[i]
		fr.File, fr.Func, fr.Extra = r.text(fr.File), r.text(fr.Func), r.text(fr.Extra)
		r.frames[i] = traces.FrameID(len(r.t.Frames))
		r.t.Frames = append(r.t.Frames, fr)
	}
	return r.frames[i]
}

func (r *renumber) stack(i int32) traces.StackID {
	if i < 0 {
		return traces.NoStack
	}
	if r.stacks[i] < 0 {
		s := &r.t.Stacks
		for _, id := range r.f.stacks.at(i) {
			s.IDs = append(s.IDs, r.frame(id))
		}
		r.stacks[i] = traces.StackID(s.Len())
		s.Offsets = append(s.Offsets, int32(len(s.IDs)))
	}
	return r.stacks[i]
}

func (r *renumber) stream(i uint16) traces.StreamID {
	if i != 0 && r.streams[i] == 0 {
		r.streams[i] = traces.StreamID(len(r.t.Streams))
		r.t.Streams = append(r.t.Streams, r.f.streams.handles[i])
	}
	return r.streams[i]
}

func (r *renumber) detail(i int32) traces.DetailID {
	if r.details[i] < 0 {
		d := r.f.details.list[i]
		for _, s := range []*traces.StringID{&d.Action, &d.CompileContext, &d.UserMetadata, &d.Category,
			&d.Op, &d.Extra} {
			*s = r.text(*s)
		}
		d.ForwardStack = r.stack(int32(d.ForwardStack))
		r.details[i] = traces.DetailID(len(r.t.Details))
		r.t.Details = append(r.t.Details, d)
	}
	return r.details[i]
}

// state gives the trace the final state, which layState has put in order.
func (r *renumber) state(ids map[traces.Device]traces.DeviceID) {
	st := &r.t.Final
	st.Segments, st.Blocks = r.f.segments, r.f.blocks
	for i := range st.Segments {
		s, meta := &st.Segments[i], r.f.segmentOf[i]
		s.Device = ids[device(uint32(meta.host), int(meta.device))]
		s.Stream, s.Stack, s.Extra = r.stream(uint16(s.Stream)), r.stack(int32(s.Stack)), r.text(s.Extra)
		for j := s.FirstBlock; j < s.EndBlock; j++ {
			b := &st.Blocks[j]
			b.Stack, b.Extra = r.stack(int32(b.Stack)), r.text(b.Extra)
		}
	}
}

// events fills the columns, each allocated once. It frees a chunk as soon as its rows are copied.
func (r *renumber) events(runs []run, ids map[traces.Device]traces.DeviceID, clock timing) {
	n := 0
	for _, run := range runs {
		n += int(run.end - run.first)
	}
	e := &r.t.Events
	e.Grow(n)
	if len(r.f.details.list) > 1 {
		e.Detail = make([]traces.DetailID, 0, n)
	}
	noTime, unknown, noAction := int64(0), int64(0), int64(0)
	for _, run := range runs {
		last, id := clock.epoch, ids[run.device]
		for i := run.first; i < run.end; i++ {
			row := r.f.events.at(i)
			switch {
			case !clock.hasTime:
				last = int64(len(e.Time))
			case row.time != traces.NoTime:
				last = row.time
			default:
				noTime++
			}
			if row.action == traces.ActionUnknown {
				if row.flags&rowAction != 0 {
					unknown++
				} else {
					noAction++
				}
			}
			time := last
			if clock.hasTime {
				time = clock.nanos(last)
			}
			ev := traces.Event{
				Time: time, Addr: row.addr, Size: row.size, Stack: r.stack(row.stack),
				Detail: r.detail(r.f.events.detail(i)), Stream: r.stream(row.stream), Device: id,
				Action: row.action,
			}
			if ev.Detail != 0 && e.Detail == nil {
				e.Detail = make([]traces.DetailID, len(e.Time), n)
			}
			e.Append(ev)
			if i&(chunkRows-1) == chunkRows-1 {
				r.f.events.chunks[i>>chunkBits], r.f.events.details[i>>chunkBits] = nil, nil
			}
		}
	}
	f := r.f
	if noTime > 0 {
		f.lose("events_without_time", traces.Info, noTime,
			"events without a time stand at the time of the event before them")
	}
	if unknown > 0 {
		f.lose("unknown_actions", traces.Info, unknown,
			"events of an action that this version does not know are kept under its name")
	}
	if noAction > 0 {
		f.lose("events_without_action", traces.Fault, noAction, "events that do not say what happened")
	}
}
