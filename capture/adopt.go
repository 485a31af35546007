package capture

import "github.com/gmemtop/gmemtop/traces"

// Every window has its own tables. These methods translate its strings, frames, stacks and details to the ids
// of the joined rows, each once, when a row first refers to it.

// unset marks an id that is not translated yet: no table has that many.
const unset = -2

// adopt begins a window: its streams and devices are translated at once, since they are few.
func (j *joiner) adopt(t *traces.Trace) {
	j.t = t
	j.strings, j.frames = fill[traces.StringID](len(t.Strings)), fill[traces.FrameID](len(t.Frames))
	j.stacks, j.details = fill[traces.StackID](t.Stacks.Len()), fill[traces.DetailID](len(t.Details))
	j.streams, j.devices = j.streams[:0], j.devices[:0]
	for _, s := range t.Streams {
		j.streams = append(j.streams, j.out.Stream(s))
	}
	for _, d := range t.Devices {
		j.devices = append(j.devices, j.out.Device(d))
	}
	if len(j.devices) == 0 {
		j.devices = append(j.devices, 0) // ops of a window without memory events refer to device 0
	}
}

func fill[T ~int32](n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = unset
	}
	return out
}

func (j *joiner) string(id traces.StringID) traces.StringID {
	if id <= 0 || int(id) >= len(j.strings) {
		return 0
	}
	if j.strings[id] == unset {
		j.strings[id] = j.out.String(j.t.Strings[id])
	}
	return j.strings[id]
}

func (j *joiner) stack(id traces.StackID) traces.StackID {
	if id < 0 || int(id) >= len(j.stacks) {
		return traces.NoStack
	}
	if j.stacks[id] != unset {
		return j.stacks[id]
	}
	old := j.t.Stacks.At(id)
	ids := make([]traces.FrameID, len(old))
	for i, f := range old {
		if j.frames[f] == unset {
			x := j.t.Frames[f]
			x.File, x.Func, x.Extra = j.string(x.File), j.string(x.Func), j.string(x.Extra)
			j.frames[f] = j.out.Frame(x)
		}
		ids[i] = j.frames[f]
	}
	j.stacks[id] = j.out.Stack(ids)
	return j.stacks[id]
}

func (j *joiner) detail(id traces.DetailID) traces.DetailID {
	if id <= 0 || int(id) >= len(j.details) {
		return 0
	}
	if j.details[id] == unset {
		d := j.t.Details[id]
		d.Action, d.CompileContext, d.UserMetadata = j.string(d.Action), j.string(d.CompileContext),
			j.string(d.UserMetadata)
		d.Category, d.Op, d.Extra, d.ForwardStack = j.string(d.Category), j.string(d.Op), j.string(d.Extra),
			j.stack(d.ForwardStack)
		j.details[id] = j.out.Detail(d)
		j.known(j.details[id], d)
	}
	return j.details[id]
}

// known remembers a detail by its id in the joined rows, for later seams.
func (j *joiner) known(id traces.DetailID, d traces.Detail) {
	if j.all == nil {
		j.all = map[traces.DetailID]traces.Detail{}
	}
	j.all[id] = d
}

func (j *joiner) detailOf(id traces.DetailID) (traces.Detail, bool) {
	d, ok := j.all[id]
	return d, ok
}

// state translates an allocator's final state.
func (j *joiner) state(s *traces.State) traces.State {
	if !s.Known {
		return traces.State{}
	}
	out := traces.State{Known: true, Segments: append([]traces.Segment(nil), s.Segments...),
		Blocks: append([]traces.Block(nil), s.Blocks...)}
	for i := range out.Segments {
		x := &out.Segments[i]
		x.Stack, x.Extra, x.Stream, x.Device = j.stack(x.Stack), j.string(x.Extra), j.streams[x.Stream],
			j.devices[x.Device]
	}
	for i := range out.Blocks {
		x := &out.Blocks[i]
		x.Stack, x.Extra = j.stack(x.Stack), j.string(x.Extra)
	}
	return out
}
