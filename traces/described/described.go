// Package described reads training steps that were recorded op by op: the files that describe.py, in this
// folder, writes.
//
// They consist of JSON lines. The first is the head:
//
//	{"gmemtop":"described","version":1,"torch":"2.11.0","device":"cuda:0","pid":1,"rank":-1,"world_size":-1,
//	 "epoch_ns":1,"steps":[[begin,end]]}
//
// Every other line is one of these, in the order in which they happened, with times in nanoseconds since the
// recording's start:
//
//	{"k":"alloc","id":7,"size":4096,"t":10,"category":"activation","on":"cuda:0"}
//	{"k":"op","t":10,"d":900,"name":"aten::mm","phase":"forward","module":"layers.0",
//	 "r":[1,2],"w":[7],"m":[],"rerun":true,"stream":0}
//	{"k":"free","id":7,"t":2000}
//
// They say that a storage is allocated (t is 0 if it was there before), that an op runs, and that a storage is
// freed. The two lines that are broken here are not broken in a file.
//
// An alloc may carry "label", what the program calls the storage (layers.0.weight), with "says" beside it if
// its sentence has a code (see [Options]); and "addr", an address that stays the same from
// one recording of a process to the next; without it the reader makes addresses up.
// An op may carry "again":true: a checkpoint runs it again in the backward pass, for what it had made in the
// forward pass and did not keep. With "nograd":true it ran with gradients off, as in an evaluation. Readers
// skip unknown keys.
//
// Ops named gmemtop::save and gmemtop::load are autograd's own accesses: it saves a tensor for the backward
// pass, and needs it there. Until gmemtop::held the program itself referred to what was saved, as a function
// does to its variables until it returns.
//
// A head may carry "rules", the settings of the GPU's allocator:
// {"gmemtop_torch":[2,15],"gmemtop_allocator":"native",
// "gmemtop_devices":{"0":{"total_bytes":1,"memory_fraction":1.0}}}.
//
// A head may say by "evaluates":true or false whether the recording shows a forward pass without gradients.
//
// A head with "empty":true says that the recording begins with nothing and holds every storage. Without it,
// storages that were there before and that no op touched may be missing.
//
// r, w and m are the storages that the op reads, overwrites and changes in place; views touch nothing and are
// not ops. The trace is of the kind Dataflow: everything can be planned on it. The storages of each device go
// to a device of the trace; an op belongs to the device of the storages that it touches.
package described

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

const (
	formatName = traces.FormatDescribed
	version    = 1
	maxLine    = 16 << 20
	maxSize    = 1 << 50
	maxID      = 1 << 40
	maxAddress = 1 << 62
)

// Sniff reports whether head begins with the head of a described recording.
func Sniff(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(head, " \r\n\t"), []byte("\n"))
	return bytes.HasPrefix(line, []byte("{")) && bytes.Contains(line, []byte(`"gmemtop":"described"`))
}

type head struct {
	Gmemtop   string     `json:"gmemtop"`
	Version   int        `json:"version"`
	Torch     string     `json:"torch"`
	PID       int64      `json:"pid"`
	Rank      int64      `json:"rank"`
	WorldSize int64      `json:"world_size"`
	Epoch     int64      `json:"epoch_ns"`
	Empty     bool       `json:"empty"`
	Steps     [][2]int64 `json:"steps"`
	// Costs are the measured costs of carrying plans out there, in the form of [CostsSetting].
	Costs json.RawMessage `json:"costs"`
	// Evaluates tells whether the recording shows a forward pass without gradients, in the words of
	// [EvaluatesSetting].
	Evaluates json.RawMessage `json:"evaluates"`
	// Rules become settings of the trace: those of the GPU's allocator, under the keys that an allocator's
	// history has in our recordings.
	Rules map[string]json.RawMessage `json:"rules"`
}

// CostsSetting is the name of the trace's setting that holds the costs of the recording's head, as JSON.
const CostsSetting = "carrying_costs"

// EvaluatesSetting is the name of the trace's setting that says, by true or false, whether the recording
// shows a forward pass without gradients. Only recordings that plans are made from say so.
const EvaluatesSetting = "evaluates"

type row struct {
	K        string          `json:"k"`
	T        int64           `json:"t"`
	ID       int64           `json:"id"`
	Size     int64           `json:"size"`
	Category string          `json:"category"`
	Label    string          `json:"label"`
	Says     json.RawMessage `json:"says"`
	Addr     uint64          `json:"addr"`
	On       string          `json:"on"`
	D        int64           `json:"d"`
	Name     string          `json:"name"`
	Phase    string          `json:"phase"`
	Module   string          `json:"module"`
	R        []int64         `json:"r"`
	W        []int64         `json:"w"`
	M        []int64         `json:"m"`
	Rerun    bool            `json:"rerun"`
	Again    bool            `json:"again"`
	NoGrad   bool            `json:"nograd"`
	Stream   uint64          `json:"stream"`
}

// storage is a live storage.
type storage struct {
	addr   uint64
	size   int64
	device traces.DeviceID
}

type reader struct {
	b    *traces.Builder
	live map[int64]storage
	next uint64 // addresses only grow, so none is used twice
	last int64
	// empty says that the recording begins with nothing; each device then gets the total that follows at its
	// first event.
	empty bool
	begun map[traces.DeviceID]bool
	o     Options
}

// Options says how a recording is read.
type Options struct {
	// Progress, if not nil, is called with the number of bytes read so far.
	Progress func(done int64)
	// Sentence, if not nil, returns the sentence of the code in "says" beside a label, or that label if it
	// does not know the code. Without it labels stay as they are.
	Sentence func(says json.RawMessage, label string) string
}

// Read reads a recording. progress, if not nil, is called with the number of bytes read so far. Errors name
// the line; the lines before a damaged one make the trace that comes with the error.
func Read(ctx context.Context, in io.Reader, progress func(done int64)) (*traces.Trace, error) {
	return ReadWith(ctx, in, Options{Progress: progress})
}

// ReadWith is Read with more options.
func ReadWith(ctx context.Context, in io.Reader, o Options) (*traces.Trace, error) {
	r := &reader{o: o, b: traces.NewBuilder(), next: 1 << 20,
		live: map[int64]storage{}, begun: map[traces.DeviceID]bool{}}
	err := r.lines(ctx, in)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if r.b.T.Source.Format == "" {
		return nil, err
	}
	if err != nil {
		r.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	return r.b.Finish(), err
}

func (r *reader) lines(ctx context.Context, in io.Reader) error {
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 0, 1<<16), maxLine)
	done := int64(0)
	for n := 1; scan.Scan(); n++ {
		line := scan.Bytes()
		done += int64(len(line)) + 1
		if n%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.o.Progress != nil {
				r.o.Progress(done)
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var err error
		if r.b.T.Source.Format == "" {
			err = r.head(line)
		} else {
			err = r.row(line)
		}
		if err != nil {
			return &traces.FormatError{Format: formatName, Line: n, Reason: err.Error(),
				Advice: "record the step again with describe.py"}
		}
	}
	if errors.Is(scan.Err(), bufio.ErrTooLong) {
		return &traces.FormatError{Format: formatName, Offset: done, Reason: "a line is longer than 16 MiB"}
	}
	if err := scan.Err(); err != nil {
		return err
	}
	if r.b.T.Source.Format == "" {
		return &traces.FormatError{Format: formatName, Line: 1, Reason: "the recording has no head"}
	}
	return nil
}

func (r *reader) head(line []byte) error {
	var h head
	if err := json.Unmarshal(line, &h); err != nil {
		return fmt.Errorf("the head is damaged: %w", err)
	}
	switch {
	case h.Gmemtop != formatName:
		return errors.New("the head does not say that this is a described recording")
	case h.Version != version:
		return fmt.Errorf("version %d is not known to this program, which reads %d", h.Version, version)
	}
	r.empty = h.Empty
	t := &r.b.T
	for _, s := range []traces.Setting{{Key: CostsSetting, Value: string(h.Costs)},
		{Key: EvaluatesSetting, Value: string(h.Evaluates)}} {
		if s.Value != "" {
			t.Settings = append(t.Settings, s)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.Rules)) {
		t.Settings = append(t.Settings, traces.Setting{Key: key, Value: string(h.Rules[key])})
	}
	t.Source.Format, t.Source.Tool = formatName, "torch "+h.Torch
	t.Source.SyntheticAddresses = true
	t.Process = traces.Process{PID: maybe.NonNegative(h.PID), Rank: maybe.NonNegative(h.Rank),
		WorldSize: maybe.NonNegative(h.WorldSize)}
	t.Clock = traces.Clock{HasTime: true, Resolution: 1, Epoch: h.Epoch}
	for i, s := range h.Steps {
		if s[1] < s[0] {
			return fmt.Errorf("step %d ends before it begins", i)
		}
		t.Marks = append(t.Marks, traces.Mark{Start: s[0], End: s[1],
			Name: r.b.String("step " + strconv.Itoa(i+1)), Kind: traces.MarkIteration})
	}
	return nil
}

func (r *reader) row(line []byte) error {
	var x row
	if err := json.Unmarshal(line, &x); err != nil {
		return fmt.Errorf("the line is damaged: %w", err)
	}
	if x.T < 0 || x.D < 0 || x.T > 1<<62 || x.D > 1<<62 {
		return errors.New("a time is negative or out of range")
	}
	switch x.K {
	case "alloc":
		return r.alloc(&x)
	case "free":
		s, ok := r.live[x.ID]
		if !ok {
			return fmt.Errorf("storage %d is freed and was never allocated", x.ID)
		}
		delete(r.live, x.ID)
		if s.size > 0 {
			r.event(&x, s, traces.Free)
		}
		return nil
	case "op":
		return r.op(&x)
	}
	return fmt.Errorf("%.30q is not alloc, free or op", x.K)
}

func (r *reader) alloc(x *row) error {
	switch {
	case x.ID < 0 || x.ID > maxID:
		return fmt.Errorf("%d is not the number of a storage", x.ID)
	case x.Size < 0 || x.Size > maxSize:
		return fmt.Errorf("storage %d has %d bytes", x.ID, x.Size)
	case x.Addr > maxAddress:
		return fmt.Errorf("storage %d has an address that is out of range", x.ID)
	case r.next > maxAddress:
		return errors.New("the storages together are out of range")
	}
	if _, ok := r.live[x.ID]; ok {
		return fmt.Errorf("storage %d is allocated twice", x.ID)
	}
	s := storage{addr: r.next, size: x.Size, device: r.device(x.On)}
	if x.Addr != 0 {
		s.addr = x.Addr
	} else {
		r.next += uint64(torchalloc.Rounded(x.Size))
	}
	r.live[x.ID] = s
	if x.Size > 0 {
		r.event(x, s, traces.Alloc)
	}
	return nil
}

// device returns the device of a name such as cuda:1 or cpu.
func (r *reader) device(name string) traces.DeviceID {
	kind, ordinal, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(ordinal)
	if err != nil || n < 0 || n > 1<<10 {
		n = 0
	}
	if kind == "cpu" {
		return r.b.Device(traces.DeviceCPU, n)
	}
	return r.b.Device(traces.DeviceGPU, n)
}

func (r *reader) event(x *row, s storage, a traces.Action) {
	e := traces.Event{Time: x.T, Addr: s.addr, Size: s.size, Stack: traces.NoStack, Device: s.device,
		Action: a}
	if len(x.Says) > 0 && r.o.Sentence != nil {
		x.Label = r.o.Sentence(x.Says, x.Label)
	}
	if a == traces.Alloc && (x.Category != "" || x.Label != "") {
		e.Detail = r.b.Detail(traces.Detail{Category: r.b.String(x.Category),
			UserMetadata: r.b.String(x.Label), ForwardStack: traces.NoStack})
	}
	if t := &r.b.T; r.empty && !r.begun[s.device] {
		r.begun[s.device] = true
		t.Counters = append(t.Counters, traces.Counter{Name: r.b.String(traces.CounterAllocated),
			Device: s.device, Time: []int64{x.T}, Value: []int64{s.size},
			Event: []int32{int32(t.Events.Len())}})
	}
	r.b.Event(e)
}

var phases = map[string]traces.Phase{"forward": traces.PhaseForward, "backward": traces.PhaseBackward,
	"optimizer": traces.PhaseOptimizer}

func (r *reader) op(x *row) error {
	t := &r.b.T
	id := traces.OpID(len(t.Ops))
	op := traces.Op{Start: max(x.T, r.last), Duration: x.D, Name: r.b.String(x.Name),
		Module: r.b.String(x.Module), Stack: traces.NoStack, Parent: traces.NoOp,
		Stream: r.b.Stream(x.Stream), Phase: phases[x.Phase], Rerunnable: x.Rerun, Again: x.Again,
		NoGrad: x.NoGrad}
	r.last = op.Start
	first := len(t.Accesses)
	for _, touched := range []struct {
		ids  []int64
		mode traces.AccessMode
	}{{x.R, traces.Read}, {x.W, traces.Write}, {x.M, traces.Mutate}} {
		for _, k := range touched.ids {
			s, ok := r.live[k]
			if !ok {
				// the trace returned with the error has no access by a missing op
				t.Accesses = t.Accesses[:first]
				return fmt.Errorf("op %.60q touches storage %d, which is not there", x.Name, k)
			}
			if s.size > 0 {
				t.Accesses = append(t.Accesses, traces.Access{Time: op.Start, Addr: s.addr, Size: s.size,
					Op: id, Event: int32(t.Events.Len()), Device: s.device, Mode: touched.mode})
				op.Device = s.device
			}
		}
	}
	// Ops that write only empty tensors stay, so that the numbers of ops agree.
	if len(t.Accesses) > first || strings.HasPrefix(x.Name, "gmemtop::") || len(x.W)+len(x.M) > 0 {
		t.Ops = append(t.Ops, op)
	}
	return nil
}
