package gmt

import (
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// define reads a chunk of definitions.
func (r *reader) define() error {
	rs := &r.rows
	for i := 0; i < rs.len(); i++ {
		if rs.kind[i] == kindString {
			i = r.defineStrings(i)
			continue
		}
		if rs.kind[i] < kindDefinitions {
			return fmt.Errorf("a row of kind %d among definitions", rs.kind[i])
		}
		if err := r.defineRow(rs.at(i), rs.textAt(i)); err != nil {
			return fmt.Errorf("row %d, kind %d: %w", i, rs.kind[i], err)
		}
		if r.ids.bad != "" {
			return fmt.Errorf("row %d, kind %d: %w", i, rs.kind[i], unknownID(r.ids.bad))
		}
	}
	return nil
}

// defineStrings reads the run of strings that begins at row i, which share one allocation, and returns its
// last row.
func (r *reader) defineStrings(i int) int {
	rs := &r.rows
	end := i
	for end < rs.len() && rs.kind[end] == kindString {
		end++
	}
	base := rs.offsets[i]
	all := string(rs.text[base:rs.offsets[end]])
	r.t.Strings = slices.Grow(r.t.Strings, end-i)
	for ; i < end; i++ {
		r.t.Strings = append(r.t.Strings, unescape(all[rs.offsets[i]-base:rs.offsets[i+1]-base]))
	}
	return end - 1
}

// ids checks the ids that rows refer to.
type ids struct {
	t   *traces.Trace
	bad string // the unknown thing that the row being read refers to
}

// str, stack and device check an id; one that is not defined sets bad.
func (x *ids) str(id int64) traces.StringID {
	if id < 0 || id >= int64(len(x.t.Strings)) {
		if id != 0 {
			x.bad = "string"
		}
		return 0
	}
	return traces.StringID(id)
}

func (x *ids) stack(id int32) traces.StackID {
	if id < -1 || int(id) >= x.t.Stacks.Len() {
		x.bad = "stack"
		return traces.NoStack
	}
	return traces.StackID(id)
}

func (x *ids) device(id uint8) traces.DeviceID {
	if int(id) >= len(x.t.Devices) {
		x.bad = "device"
		return 0
	}
	return traces.DeviceID(id)
}

// narrow returns v as an int32; one that does not fit sets bad.
func (x *ids) narrow(v int64, what string) int32 {
	if v < math.MinInt32 || v > math.MaxInt32 {
		x.bad = what
		return 0
	}
	return int32(v)
}

func (r *reader) defineRow(x row, text []byte) error {
	t := r.t
	switch x.kind {
	case kindStack:
		ids, ok := parseStack(t.Stacks.IDs, text, len(t.Frames))
		if !ok || len(ids) > math.MaxInt32 {
			return fmt.Errorf("a stack that is not a list of defined frames")
		}
		t.Stacks.IDs = ids
		t.Stacks.Offsets = append(t.Stacks.Offsets, int32(len(ids)))
	case kindFrame:
		t.Frames = append(t.Frames, traces.Frame{Func: r.ids.str(int64(x.ref)),
			File: r.ids.str(int64(x.detail)), Line: r.ids.narrow(x.size, "line"), Extra: r.ids.str(x.value)})
	case kindDetail:
		return r.defineDetail(x, text)
	case kindStream:
		if len(t.Streams) == traces.MaxStreams {
			return fmt.Errorf("more than %d streams", traces.MaxStreams)
		}
		t.Streams = append(t.Streams, x.addr)
	case kindDevice:
		if len(t.Devices) == traces.MaxDevices {
			return fmt.Errorf("more than %d devices", traces.MaxDevices)
		}
		if x.detail < 0 || x.detail > math.MaxUint8 {
			return fmt.Errorf("device kind %d", x.detail)
		}
		t.Devices = append(t.Devices, traces.Device{Kind: traces.DeviceKind(x.detail), Ordinal: int(x.value),
			TotalBytes: x.size, Name: unescape(string(text))})
	case kindCounter:
		t.Counters = append(t.Counters, traces.Counter{Name: r.ids.str(int64(x.ref)),
			Device: r.ids.device(x.device)})
		r.tied = append(r.tied, x.value == 1)
	case kindOpInfo:
		return r.defineOpInfo(text)
	case kindRecording:
		return parseRecording(text, t)
	case kindSetting, kindExtra:
		key, value, ok := cutAt(text, x.size, "=")
		if !ok {
			return fmt.Errorf("a setting without a key")
		}
		if s := (traces.Setting{Key: key, Value: value}); x.kind == kindSetting {
			t.Settings = append(t.Settings, s)
		} else {
			t.Extra = append(t.Extra, s)
		}
	case kindLoss:
		return r.defineLoss(x, text)
	case kindFinal:
		r.final, r.hasFinal = x, true
	default:
		r.unknown++
	}
	return nil
}

// cutAt splits a text whose first part is n bytes long, before unescaping both.
func cutAt(text []byte, n int64, sep string) (a, b string, ok bool) {
	if n < 0 || n > int64(len(text)-len(sep)) || string(text[n:int(n)+len(sep)]) != sep {
		return "", "", false
	}
	return unescape(string(text[:n])), unescape(string(text[int(n)+len(sep):])), true
}

func (r *reader) defineDetail(x row, text []byte) error {
	d := traces.Detail{ForwardStack: r.ids.stack(x.stack)}
	ok := pairs(text, func(key string, v int64) {
		switch key {
		case "action":
			d.Action = r.ids.str(v)
		case "compile_context":
			d.CompileContext = r.ids.str(v)
		case "user_metadata":
			d.UserMetadata = r.ids.str(v)
		case "category":
			d.Category = r.ids.str(v)
		case "op":
			d.Op = r.ids.str(v)
		case "extra":
			d.Extra = r.ids.str(v)
		default:
			poolPair(key, v, &d.Pool, &d.HasPool)
		}
	})
	r.t.Details = append(r.t.Details, d)
	return malformed(ok)
}

func poolPair(key string, v int64, p *traces.Pool, has *bool) {
	switch key {
	case "has_pool":
		*has = v == 1
	case "pool_first":
		p.First = v
	case "pool_second":
		p.Second = v
	}
}

func malformed(ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("a text that is not key=number pairs")
}

func (r *reader) defineOpInfo(text []byte) error {
	var o opInfo
	ok := pairs(text, func(key string, v int64) {
		switch key {
		case "name":
			o.name = r.ids.str(v)
		case "module":
			o.module = r.ids.str(v)
		case "thread":
			o.thread = r.ids.narrow(v, "thread")
		case "phase":
			o.phase = traces.Phase(v)
		case "rerunnable":
			o.rerunnable = v == 1
		case "again":
			o.again = v == 1
		case "nograd":
			o.noGrad = v == 1
		}
	})
	r.opInfos = append(r.opInfos, o)
	return malformed(ok)
}

// defineLoss replaces loss ref, or adds it if it is new.
func (r *reader) defineLoss(x row, text []byte) error {
	name, detail, ok := cutAt(text, x.size, ": ")
	if !ok || x.detail < 0 || x.detail > math.MaxUint8 {
		return fmt.Errorf("a loss without a name")
	}
	l := traces.Loss{Name: name, Severity: traces.Severity(x.detail), Count: x.value, Detail: detail}
	if x.ref >= 0 && int(x.ref) < len(r.t.Losses) {
		r.t.Losses[x.ref] = l
	} else {
		r.t.Losses = append(r.t.Losses, l)
	}
	return nil
}

// record reads a chunk of records.
func (r *reader) record() error {
	rs := &r.rows
	for i := range rs.len() {
		k := rs.kind[i]
		if k < kindOp || k >= kindDefinitions {
			return fmt.Errorf("a row of kind %d among records", k)
		}
		if err := r.recordRow(rs.at(i), rs.textAt(i)); err != nil {
			return fmt.Errorf("row %d, kind %d: %w", i, k, err)
		}
		if r.ids.bad != "" {
			return fmt.Errorf("row %d, kind %d: %w", i, k, unknownID(r.ids.bad))
		}
	}
	return nil
}

func (r *reader) recordRow(x row, text []byte) error {
	t := r.t
	switch x.kind - x.kind%10 {
	case kindOp:
		if x.detail < 0 || int(x.detail) >= len(r.opInfos) || int(x.stream) >= len(t.Streams) {
			return unknownID("op's name or stream")
		}
		o := r.opInfos[x.detail]
		t.Ops = append(t.Ops, traces.Op{Start: x.time, Duration: x.value, Name: o.name, Module: o.module,
			Thread: o.thread, Phase: o.phase, Rerunnable: o.rerunnable, Again: o.again, NoGrad: o.noGrad,
			Stack: r.ids.stack(x.stack), Parent: traces.OpID(x.ref), Stream: traces.StreamID(x.stream),
			Device: r.ids.device(x.device)})
	case kindAccess:
		if x.detail < 0 {
			return unknownID("event")
		}
		t.Accesses = append(t.Accesses, traces.Access{Time: x.time, Addr: x.addr, Size: x.size,
			Op: traces.OpID(x.ref), Event: x.detail, Device: r.ids.device(x.device),
			Mode: traces.AccessMode(x.kind - kindAccess)})
	case kindMark:
		t.Marks = append(t.Marks, traces.Mark{Start: x.time, End: x.value, Name: r.ids.str(int64(x.ref)),
			Phase: traces.Phase(x.detail), Device: traces.DeviceID(x.device),
			Kind: traces.MarkKind(x.kind - kindMark)})
	case kindSample:
		if x.ref < 0 || int(x.ref) >= len(t.Counters) || x.detail < 0 {
			return unknownID("counter")
		}
		c := &t.Counters[x.ref]
		c.Time, c.Value = append(c.Time, x.time), append(c.Value, x.value)
		if r.tied[x.ref] {
			c.Event = append(c.Event, x.detail)
		}
	case kindSegment:
		return r.segment(x, text)
	case kindBlock:
		t.Final.Blocks = append(t.Final.Blocks,
			traces.Block{Address: x.addr, Size: x.size, Requested: maybe.NonNegative(x.value),
				Stack: r.ids.stack(x.stack), Count: x.ref, State: traces.BlockState(x.kind - kindBlock),
				Extra: r.ids.str(int64(x.detail))})
	default:
		r.unknown++
	}
	return nil
}

func (r *reader) segment(x row, text []byte) error {
	if int(x.stream) >= len(r.t.Streams) {
		return unknownID("stream")
	}
	s := traces.Segment{Address: x.addr, TotalSize: x.size, AllocatedSize: x.value,
		Stream: traces.StreamID(x.stream), Device: r.ids.device(x.device), Stack: r.ids.stack(x.stack)}
	ok := pairs(text, func(key string, v int64) {
		switch key {
		case "active":
			s.ActiveSize = v
		case "requested":
			s.Wanted = v
		case "first_block":
			s.FirstBlock = r.ids.narrow(v, "block")
		case "end_block":
			s.EndBlock = r.ids.narrow(v, "block")
		case "expandable":
			s.Expandable = v == 1
		case "small":
			s.Small = v == 1
		case "extra":
			s.Extra = r.ids.str(v)
		default:
			poolPair(key, v, &s.Pool, &s.HasPool)
		}
	})
	r.t.Final.Segments = append(r.t.Final.Segments, s)
	return malformed(ok)
}
