package gmt

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// recording is the JSON of a row of kind 220. Fields are only ever added.
type recording struct {
	Source struct {
		Format    string `json:"format"`
		Path      string `json:"path,omitempty"`
		Bytes     int64  `json:"bytes,omitempty"`
		Tool      string `json:"tool,omitempty"`
		Synthetic bool   `json:"synthetic_addresses,omitempty"`
	} `json:"source"`
	Process struct {
		Host      string `json:"host,omitempty"`
		PID       int64  `json:"pid"`
		Rank      int64  `json:"rank"`
		WorldSize int64  `json:"world_size"`
	} `json:"process"`
	Clock struct {
		Epoch      int64 `json:"epoch_ns"`
		Resolution int64 `json:"resolution_ns"`
		HasTime    bool  `json:"has_time"`
	} `json:"clock"`
}

// recordingText returns the text of a row of kind 220. Each string is escaped, since JSON can only hold
// UTF-8.
func recordingText(s traces.Source, p traces.Process, c traces.Clock) (string, error) {
	var r recording
	r.Source.Format, r.Source.Path, r.Source.Bytes = escape(s.Format), escape(s.Path), s.Bytes
	r.Source.Tool, r.Source.Synthetic = escape(s.Tool), s.SyntheticAddresses
	r.Process.Host, r.Process.PID = escape(p.Host), p.PID.Or(-1)
	r.Process.Rank, r.Process.WorldSize = p.Rank.Or(-1), p.WorldSize.Or(-1)
	r.Clock.Epoch, r.Clock.Resolution, r.Clock.HasTime = c.Epoch, c.Resolution, c.HasTime
	text, err := json.Marshal(r)
	return string(text), err
}

// parseRecording undoes recordingText.
func parseRecording(text []byte, t *traces.Trace) error {
	var r recording
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	t.Source = traces.Source{
		Format: unescape(r.Source.Format), Path: unescape(r.Source.Path), Bytes: r.Source.Bytes,
		Tool: unescape(r.Source.Tool), SyntheticAddresses: r.Source.Synthetic,
	}
	t.Process = traces.Process{
		Host: unescape(r.Process.Host), PID: maybe.NonNegative(r.Process.PID),
		Rank: maybe.NonNegative(r.Process.Rank), WorldSize: maybe.NonNegative(r.Process.WorldSize),
	}
	t.Clock = traces.Clock{Epoch: r.Clock.Epoch, Resolution: r.Clock.Resolution, HasTime: r.Clock.HasTime}
	return nil
}

func (e *encoder) defineRecording(s traces.Source, p traces.Process, c traces.Clock) error {
	text, err := recordingText(s, p, c)
	if err != nil {
		return fmt.Errorf("gmt: %w", err)
	}
	return e.define(row{kind: kindRecording, stack: -1}, text)
}

// defineSetting writes a setting or an extra key as key=value; size is the key's length in the text, since a
// key may hold a "=".
func (e *encoder) defineSetting(kind uint8, s traces.Setting) error {
	key := escape(s.Key)
	return e.define(row{kind: kind, size: int64(len(key)), stack: -1}, key+"="+escape(s.Value))
}

// defineLoss writes loss number i, replacing any earlier row for it; -1 adds one.
func (e *encoder) defineLoss(i int, l traces.Loss) error {
	name := escape(l.Name)
	return e.define(row{kind: kindLoss, size: int64(len(name)), value: l.Count, detail: int32(l.Severity),
		ref: int32(i), stack: -1},
		name+": "+escape(l.Detail))
}

// tables writes the rows of t's interned tables that are new since done, and updates done. Each definition
// comes after those it refers to.
func (e *encoder) tables(ctx context.Context, t *traces.Trace, done *counts) error {
	steps := []struct {
		table, n int
		write    func(i int) error
	}{
		{tabStrings, len(t.Strings), func(i int) error {
			return e.define(row{kind: kindString, stack: -1}, escape(t.Strings[i]))
		}},
		{tabFrames, len(t.Frames), func(i int) error {
			f := t.Frames[i]
			return e.define(row{kind: kindFrame, ref: int32(f.Func), detail: int32(f.File),
				size: int64(f.Line), value: int64(f.Extra), stack: -1}, "")
		}},
		{tabStacks, t.Stacks.Len(),
			func(i int) error { return e.defineStack(t.Stacks.At(traces.StackID(i))) }},
		{tabDetails, len(t.Details), func(i int) error { return e.defineDetail(t.Details[i]) }},
		{tabStreams, len(t.Streams), func(i int) error {
			return e.define(row{kind: kindStream,
				addr: t.Streams[i], stack: -1}, "")
		}},
		{tabDevices, len(t.Devices), func(i int) error {
			d := t.Devices[i]
			return e.define(row{kind: kindDevice, value: int64(d.Ordinal), size: d.TotalBytes,
				detail: int32(d.Kind), stack: -1},
				escape(d.Name))
		}},
	}
	for _, s := range steps {
		for ; int(done[s.table]) < s.n; done[s.table]++ {
			if done[s.table]%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := s.write(int(done[s.table])); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *encoder) defineStack(ids []traces.FrameID) error {
	e.defs.text = appendStack(e.defs.text, ids)
	e.defs.end(row{kind: kindStack, stack: -1})
	if e.defs.len() == maxRows || len(e.defs.text) > chunkText {
		return e.out.rows(&e.defs, classDefinitions)
	}
	return nil
}

// defineDetail writes the fields of a detail that are not empty as pairs; the forward stack is in the row's
// stack.
func (e *encoder) defineDetail(d traces.Detail) error {
	p := appendPair(nil, "action", int64(d.Action))
	p = appendPair(p, "compile_context", int64(d.CompileContext))
	p = appendPair(p, "user_metadata", int64(d.UserMetadata))
	p = appendPair(p, "category", int64(d.Category))
	p = appendPair(p, "op", int64(d.Op))
	p = appendPool(p, d.Pool, d.HasPool)
	p = appendPair(p, "extra", int64(d.Extra))
	return e.define(row{kind: kindDetail, stack: int32(d.ForwardStack)}, string(p))
}

func appendPool(p []byte, pool traces.Pool, has bool) []byte {
	p = appendPair(p, "has_pool", flag(has))
	p = appendPair(p, "pool_first", pool.First)
	return appendPair(p, "pool_second", pool.Second)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// defineCounter writes a counter; value 1 says that its samples are tied to events.
func (e *encoder) defineCounter(c traces.Counter) error {
	return e.define(row{kind: kindCounter, ref: int32(c.Name), device: uint8(c.Device),
		value: flag(c.Event != nil), stack: -1}, "")
}

func infoOf(o traces.Op) opInfo {
	return opInfo{o.Name, o.Module, o.Thread, o.Phase, o.Rerunnable, o.Again, o.NoGrad}
}

// opInfo returns the number of the description that ops of one site share, and writes it if it is new.
func (e *encoder) opInfo(o traces.Op) (int32, error) {
	info := infoOf(o)
	if id, ok := e.opInfos[info]; ok {
		return id, nil
	}
	id := int32(len(e.opInfos))
	e.opInfos[info] = id
	p := appendPair(nil, "name", int64(o.Name))
	p = appendPair(p, "module", int64(o.Module))
	p = appendPair(p, "thread", int64(o.Thread))
	p = appendPair(p, "phase", int64(o.Phase))
	p = appendPair(p, "rerunnable", flag(o.Rerunnable))
	if o.Again {
		p = appendPair(p, "again", 1)
	}
	if o.NoGrad {
		p = appendPair(p, "nograd", 1)
	}
	return id, e.define(row{kind: kindOpInfo, stack: -1}, string(p))
}

func (e *encoder) op(o traces.Op) error {
	info, err := e.opInfo(o)
	if err != nil {
		return err
	}
	return e.record(row{kind: kindOp, time: o.Start, value: o.Duration, stack: int32(o.Stack),
		ref: int32(o.Parent), detail: info, stream: uint16(o.Stream), device: uint8(o.Device)}, "")
}

func (e *encoder) access(a traces.Access) error {
	if a.Mode > 9 {
		return fmt.Errorf("gmt: access mode %d cannot be written: the file has room for 0 to 9", a.Mode)
	}
	return e.record(row{kind: kindAccess + uint8(a.Mode), time: a.Time, addr: a.Addr, size: a.Size,
		ref: int32(a.Op), detail: a.Event, device: uint8(a.Device), stack: -1}, "")
}

func (e *encoder) mark(m traces.Mark) error {
	if m.Kind > 9 {
		return fmt.Errorf("gmt: mark kind %d cannot be written: the file has room for 0 to 9", m.Kind)
	}
	return e.record(row{kind: kindMark + uint8(m.Kind), time: m.Start, value: m.End, ref: int32(m.Name),
		detail: int32(m.Phase), device: uint8(m.Device), stack: -1}, "")
}

func (e *encoder) sample(counter int, time, value int64, event int32) error {
	return e.record(row{kind: kindSample, time: time, value: value, ref: int32(counter), detail: event,
		stack: -1}, "")
}

// defineState announces the allocator's final state with its numbers of segments and blocks, so that a reader
// can tell if part of it was cut off.
func (e *encoder) defineState(s *traces.State) error {
	n := row{kind: kindFinal, size: int64(len(s.Segments)), value: int64(len(s.Blocks)),
		ref: int32(flag(s.Known)), stack: -1}
	return e.define(n, "")
}

// state writes the segments of a state that was announced, then its blocks.
func (e *encoder) state(ctx context.Context, s *traces.State) error {
	// 1 + the segment of each block, for the device and stream of the block's row
	owner := make([]int32, len(s.Blocks))
	for i, seg := range s.Segments {
		if err := e.segment(seg); err != nil {
			return err
		}
		for b := max(seg.FirstBlock, 0); b < min(seg.EndBlock, int32(min(len(owner), math.MaxInt32))); b++ {
			owner[b] = int32(i + 1)
		}
	}
	for i, b := range s.Blocks {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if b.State > 9 {
			return fmt.Errorf("gmt: block state %d cannot be written: the file has room for 0 to 9", b.State)
		}
		r := row{kind: kindBlock + uint8(b.State), addr: b.Address, size: b.Size, value: b.Requested.Or(-1),
			stack: int32(b.Stack), ref: b.Count, detail: int32(b.Extra)}
		if o := owner[i]; o > 0 {
			r.device, r.stream = uint8(s.Segments[o-1].Device), uint16(s.Segments[o-1].Stream)
		}
		if err := e.record(r, ""); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) segment(s traces.Segment) error {
	p := appendPair(nil, "active", s.ActiveSize)
	p = appendPair(p, "requested", s.Wanted)
	p = appendPair(p, "first_block", int64(s.FirstBlock))
	p = appendPair(p, "end_block", int64(s.EndBlock))
	p = appendPair(p, "expandable", flag(s.Expandable))
	p = appendPair(p, "small", flag(s.Small))
	p = appendPool(p, s.Pool, s.HasPool)
	p = appendPair(p, "extra", int64(s.Extra))
	return e.record(row{kind: kindSegment, addr: s.Address, size: s.TotalSize, value: s.AllocatedSize,
		stack: int32(s.Stack), stream: uint16(s.Stream), device: uint8(s.Device)}, string(p))
}
