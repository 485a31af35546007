package kineto

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// spanKind says what a range of the profile is used for.
type spanKind uint8

const (
	spanOp     spanKind = iota // an op and a frame
	spanPython                 // a frame
	spanRange                  // a range that the framework itself names after what it does: a frame
	spanMark                   // a range whose name changes from step to step: no frame
	spanDevice                 // a kernel, copy or set: an op on a stream
)

// span is one range. 72 bytes: a profile of a gigabyte has some four million.
type span struct {
	start, end int64
	sequence   int64 // links a backward op to its forward op, -1 for none
	name       traces.StringID
	frame      traces.FrameID
	callStack  traces.StackID // of the old schema
	thread     int32          // index into threads, -1 for device work
	order      int32          // place in the file, for stable sorting
	kind       spanKind
	backward   bool // has a forward thread: the op is a backward one
	device     traces.DeviceID
	stream     traces.StreamID
}

// memory is one [memory] event; stack, op and forward are filled in by nesting.
type memory struct {
	time, bytes         int64
	allocated, reserved int64 // -1 where the schema lacks them
	addr                uint64
	sequence            int64 // of the backward op around it, -1 for none
	stack               traces.StackID
	op                  traces.StringID
	thread              int32
	device              traces.DeviceID
	hasAddr, oom        bool
}

// profile collects the file's content; finish makes the trace from it.
type profile struct {
	s    *scanner
	b    *traces.Builder
	bare bool

	spans    []span
	mem      []memory
	threads  []thread
	threadID map[string]int32
	frames   map[string]traces.FrameID // python_function names, parsed
	calls    map[string]traces.StackID // Call stack texts, parsed
	kinds    map[traces.DeviceID]int64 // Device Type of each device
	cards    []deviceProperty

	baseTime   int64
	fractional bool
	keyBuf     []byte
	pid        int64
}

// thread is a (pid, tid) pair of the profile.
type thread struct {
	tid int32 // the system's number where it fits, else the thread's place in the profile
}

func newProfile(s *scanner) *profile {
	p := &profile{
		s: s, b: traces.NewBuilder(), threadID: map[string]int32{}, frames: map[string]traces.FrameID{},
		calls: map[string]traces.StackID{}, kinds: map[traces.DeviceID]int64{}, pid: -1,
	}
	p.b.T.Source.Format = formatName
	p.b.T.Source.Tool = "torch.profiler"
	return p
}

// deviceProperty is an element of deviceProperties.
type deviceProperty struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Total int64  `json:"totalGlobalMem"`
}

// maxKept bounds a top-level value that is kept unchanged.
const maxKept = 1 << 20

// readMember reads the value of one top-level member.
func (p *profile) readMember(key string) error {
	b, err := p.s.peek()
	if err != nil {
		return err
	}
	if key == "traceEvents" {
		if b != '[' {
			return p.s.fail("traceEvents is not an array")
		}
		p.s.take()
		return p.readEvents()
	}
	raw, err := p.s.keep(maxKept)
	if err != nil || raw == nil {
		return err
	}
	switch key {
	case "deviceProperties":
		if json.Unmarshal(raw, &p.cards) != nil {
			p.b.Lose("device_properties_unread", traces.Info, 1,
				"deviceProperties is damaged; devices have no names")
		}
		return nil
	case "distributedInfo":
		info := struct {
			Rank  int64 `json:"rank"`
			World int64 `json:"world_size"`
		}{-1, -1}
		if json.Unmarshal(raw, &info) != nil {
			p.b.Lose("distributed_info_unread", traces.Info, 1,
				"distributedInfo is damaged; the rank is unknown")
		}
		p.b.T.Process.Rank, p.b.T.Process.WorldSize = maybe.NonNegative(info.Rank),
			maybe.NonNegative(info.World)
		return nil
	case "baseTimeNanoseconds":
		p.baseTime, _ = integer(raw)
	}
	if !json.Valid(raw) {
		return nil
	}
	if raw[0] == '{' || raw[0] == '[' {
		p.b.T.Extra = append(p.b.T.Extra, traces.Setting{Key: key, Value: compact(raw)})
		return nil
	}
	p.b.T.Settings = append(p.b.T.Settings, traces.Setting{Key: key, Value: string(raw)})
	return nil
}

func compact(raw []byte) string {
	var out bytes.Buffer
	if json.Compact(&out, raw) != nil {
		return string(raw)
	}
	return out.String()
}

// keep consumes one value and returns its bytes, or nil if it is longer than limit; then it is skipped
// without being held in memory.
func (s *scanner) keep(limit int) ([]byte, error) {
	for {
		c := cursor{b: s.buf, i: s.pos}
		if _, err := c.peek(); err != nil && s.eof {
			return nil, s.fail("the file ends before a value")
		}
		start := c.i
		err := c.skip()
		switch {
		case err == nil:
			s.pos = c.i
			return s.buf[start:c.i], nil
		case !errors.Is(err, errShort):
			return nil, s.fail(err.Error())
		case len(s.buf)-start > limit:
			return nil, s.skip()
		}
		if err := s.more(); err != nil {
			return nil, err
		}
	}
}

// add takes one event of traceEvents.
func (p *profile) add(e *event) {
	switch e.phase {
	case 'i', 'I':
		switch string(e.name) {
		case "[memory]":
			p.addMemory(e, false)
		case "[OutOfMemory]":
			p.addMemory(e, true)
		}
	case 'X':
		p.addSpan(e)
	}
}

func (p *profile) malformed() {
	p.b.Lose("events_malformed", traces.DataLoss, 1, "events without a sound time, size or device")
}

func (p *profile) time(raw []byte) (int64, bool) {
	ns, fractional, ok := nanoseconds(raw)
	p.fractional = p.fractional || fractional
	return ns, ok
}

func (p *profile) addMemory(e *event, oom bool) {
	t, ok := p.time(e.ts)
	size, sized := integer(e.bytes)
	kind, kinded := integer(e.deviceType)
	if !ok || !sized || !kinded || size == math.MinInt64 {
		p.malformed()
		return
	}
	if size == 0 && !oom {
		p.b.Lose("events_empty", traces.Info, 1, "memory events of 0 bytes say nothing and are left out")
		return
	}
	m := memory{time: t, bytes: size, allocated: -1, reserved: -1, sequence: -1, stack: traces.NoStack,
		oom: oom}
	m.thread = p.thread(e.pid, e.tid)
	m.device = p.device(kind, e.deviceID)
	m.addr, m.hasAddr = address(e.addr)
	if v, ok := integer(e.allocated); ok && v >= 0 {
		m.allocated = v
	}
	if v, ok := integer(e.reserved); ok && v >= 0 {
		m.reserved = v
	}
	if p.pid < 0 {
		if v, ok := integer(e.pid); ok {
			p.pid = v
		}
	}
	p.mem = append(p.mem, m)
}

// device maps PyTorch's device type (c10/core/DeviceType.h: 0 is the CPU, all others have a memory of their
// own) and number.
func (p *profile) device(kind int64, rawID []byte) traces.DeviceID {
	id, _ := integer(rawID)
	ordinal := int(min(max(id, 0), 1<<20))
	k := traces.DeviceGPU
	if kind == 0 {
		k = traces.DeviceCPU
	}
	d := p.b.Device(k, ordinal)
	if was, ok := p.kinds[d]; ok && was != kind {
		p.b.Lose("device_types_merged", traces.DataLoss, 1,
			"two kinds of accelerator have the same device number; they are shown as one device")
	}
	p.kinds[d] = kind
	return d
}

// thread returns the index of a (pid, tid) pair. The old schema writes the same tid as a number and as a
// string.
func (p *profile) thread(pid, tid []byte) int32 {
	p.keyBuf = append(append(append(p.keyBuf[:0], pid...), 0), tid...)
	if id, ok := p.threadID[string(p.keyBuf)]; ok {
		return id
	}
	id := int32(len(p.threads))
	number := id
	if v, ok := integer(tid); ok && v >= 0 && v <= math.MaxInt32 {
		number = int32(v)
	}
	p.threads = append(p.threads, thread{tid: number})
	p.threadID[string(p.keyBuf)] = id
	return id
}

func (p *profile) addSpan(e *event) {
	kind, wanted := spanKindOf(e.cat, e.name)
	if !wanted {
		return
	}
	start, ok := p.time(e.ts)
	dur, hasDur := int64(0), true
	if len(e.dur) > 0 {
		dur, hasDur = p.time(e.dur)
	}
	if !ok || !hasDur || len(p.spans) >= math.MaxInt32 || start > math.MaxInt64-max(dur, 0) {
		p.malformed()
		return
	}
	sp := span{start: start, end: start + max(dur, 0), sequence: -1, callStack: traces.NoStack, thread: -1,
		order: int32(len(p.spans)), kind: kind}
	switch kind {
	case spanDevice:
		p.deviceSpan(&sp, e)
	case spanPython:
		sp.thread = p.thread(e.pid, e.tid)
		sp.frame = p.pythonFrame(e.name)
		if rest, ok := bytes.CutPrefix(e.name, []byte("nn.Module: ")); ok {
			sp.name = p.b.Bytes(text(rest))
		}
	default:
		sp.thread = p.thread(e.pid, e.tid)
		sp.name = p.b.Bytes(text(e.name))
		if kind != spanMark {
			sp.frame = p.b.Frame(traces.Frame{Func: sp.name})
		}
		if v, ok := integer(e.sequence); ok {
			sp.sequence = v
		}
		if v, ok := integer(e.forwardThread); ok && v > 0 {
			sp.backward = true
		}
		sp.callStack = p.callStack(e.callStack)
	}
	p.spans = append(p.spans, sp)
}

func (p *profile) deviceSpan(sp *span, e *event) {
	sp.name = p.b.Bytes(text(e.name))
	if v, ok := integer(e.stream); ok {
		sp.stream = p.b.Stream(uint64(v))
	}
	sp.device = unknownDevice
	if v, ok := integer(e.device); ok && v >= 0 && v < unknownDevice {
		sp.device = traces.DeviceID(v) // the ordinal, which finish turns into an id
	}
}

// unknownDevice stands for the device of a kernel that does not say it.
const unknownDevice = traces.MaxDevices - 1

// spanKindOf maps the categories of both schemas; wanted is false for those without a meaning for memory.
func spanKindOf(cat, name []byte) (kind spanKind, wanted bool) {
	switch string(cat) {
	case "cpu_op", "Operator", "operator":
		if k, is := annotation(name); is {
			return k, true
		}
		return spanOp, true
	case "user_annotation":
		if k, is := annotation(name); is {
			return k, true
		}
		return spanMark, true
	case "python_function", "PythonFunction":
		return spanPython, true
	case "kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "concurrent_kernel":
		return spanDevice, true
	}
	return 0, false
}

// annotation recognises the ranges that PyTorch itself records. Except for ProfilerStep, their names say what
// runs and not in which step, so they can be in stacks without splitting a site by step.
func annotation(name []byte) (spanKind, bool) {
	if bytes.HasPrefix(name, []byte(stepPrefix)) {
		return spanMark, true
	}
	for _, prefix := range []string{"Optimizer.", "DistributedDataParallel.", "FSDP::",
		"FullyShardedDataParallel.", "nccl:"} {
		if bytes.HasPrefix(name, []byte(prefix)) {
			return spanRange, true
		}
	}
	return 0, false
}

const (
	stepPrefix      = "ProfilerStep#"
	optimizerPrefix = "Optimizer.step"
)

// pythonFrame parses "file(line): function" and interns it under its text; other names become a function
// without a file.
func (p *profile) pythonFrame(name []byte) traces.FrameID {
	if id, ok := p.frames[string(name)]; ok {
		return id
	}
	id := p.b.Frame(p.parseFrame(string(text(name))))
	p.frames[string(name)] = id
	return id
}

func (p *profile) parseFrame(s string) traces.Frame {
	fn, file, line := traces.SplitFrameName(s)
	return traces.Frame{File: p.b.String(file), Func: p.b.String(fn), Line: int32(line)}
}

// callStack parses the old schema's "file(line): function;file(line): function", innermost frame first.
func (p *profile) callStack(raw []byte) traces.StackID {
	if len(raw) == 0 {
		return traces.NoStack
	}
	if id, ok := p.calls[string(raw)]; ok {
		return id
	}
	var ids []traces.FrameID
	for f := range strings.SplitSeq(string(text(raw)), ";") {
		if f = strings.TrimSpace(f); f != "" && len(ids) < maxStack {
			ids = append(ids, p.b.Frame(p.parseFrame(f)))
		}
	}
	id := p.b.Stack(ids)
	p.calls[string(raw)] = id
	return id
}

// errNoMemory is the error about a profile without [memory] events.
var errNoMemory = &traces.UnsupportedError{Reason: "this profile holds no memory events",
	Advice: "record it with torch.profiler.profile(profile_memory=True)"}
