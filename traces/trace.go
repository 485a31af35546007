package traces

import "github.com/gmemtop/gmemtop/traces/maybe"

// Trace is the recording of one process: see the package comment. It is frozen: readers share it without
// locks.
type Trace struct {
	Source  Source
	Process Process
	Clock   Clock

	Devices []Device
	Streams []uint64 // raw stream handles; Streams[0] is 0, the default stream
	Strings []string // Strings[0] is ""
	Frames  []Frame
	Stacks  Stacks
	Details []Detail // Details[0] is the empty detail

	Events   Events
	Ops      []Op
	Accesses []Access
	Marks    []Mark
	Counters []Counter

	// Final is the allocator's state at the end of the recording.
	Final State
	// Settings are the allocator's and the recorder's settings, in the source's order, values as JSON.
	Settings []Setting
	// Extra are top-level keys of the source that this version does not know, values as JSON.
	Extra  []Setting
	Losses []Loss

	// Code reads the recorded program's files; nil until somebody attaches them (load.AttachCode).
	Code Code

	deviceRange []span // rows of each device in Events
}

type span struct{ first, end int }

// Source says where a trace came from.
type Source struct {
	// Format is the reader's name, such as torch_snapshot, kineto, gmt.
	Format string
	// Path is as the user gave it; "-" for standard input.
	Path string
	// Bytes is the size of the source as stored, possibly compressed.
	Bytes int64
	// Tool is the producer and its version, if the source says so.
	Tool string
	// SyntheticAddresses says that the source has no addresses and the reader made them up to distinguish
	// blocks.
	SyntheticAddresses bool
}

// Process is the recorded process. Host is "" if unknown.
type Process struct {
	Host                 string
	PID, Rank, WorldSize maybe.Int
}

// Clock relates event times to the world. With HasTime false the source has no clock and an event's time is
// its index.
type Clock struct {
	// Epoch is the Unix time in nanoseconds of time 0; 0 if the source's clock has no known epoch.
	Epoch int64
	// Resolution is the source's tick in nanoseconds.
	Resolution int64
	HasTime    bool
}

// DeviceKind is the kind of memory that a device is.
type DeviceKind uint8

// The kinds of device.
const (
	// DeviceGPU is a GPU's own memory (CUDA, ROCm, MPS...).
	DeviceGPU DeviceKind = iota
	// DeviceCPU is pageable memory that a CPU allocator hands out.
	DeviceCPU
	// DeviceHost is pinned host memory.
	DeviceHost
	// DeviceArena is the address space of a storage-allocation problem.
	DeviceArena
	// DeviceTPU is a TPU's own memory.
	DeviceTPU
	// DeviceProgram is the memory of the unnamed device for which a program was compiled.
	DeviceProgram
)

// String returns the short name shown beside a device's ordinal.
func (k DeviceKind) String() string {
	switch k {
	case DeviceGPU:
		return "gpu"
	case DeviceCPU:
		return "cpu"
	case DeviceHost:
		return "host"
	case DeviceArena:
		return "arena"
	case DeviceTPU:
		return "tpu"
	case DeviceProgram:
		return "program"
	}
	return "device"
}

// Accelerator reports whether the memory is a GPU's or a TPU's own.
func (k DeviceKind) Accelerator() bool { return k == DeviceGPU || k == DeviceTPU }

// Device is one memory of the process.
type Device struct {
	Kind    DeviceKind
	Ordinal int
	Name    string
	// TotalBytes is the device's capacity, 0 if unknown.
	TotalBytes int64
}

// Frame is one stack frame. Extra is a JSON object of further keys, "" for none.
type Frame struct {
	File, Func StringID
	Line       int32
	Extra      StringID
}

// Stacks holds call stacks as runs of frames, innermost frame first, as PyTorch writes them.
type Stacks struct {
	// Offsets has one entry more than there are stacks; stack i is IDs[Offsets[i]:Offsets[i+1]].
	Offsets []int32
	IDs     []FrameID
}

// Len returns the number of stacks.
func (s *Stacks) Len() int { return max(len(s.Offsets)-1, 0) }

// At returns the frames of stack id, innermost first; nil for NoStack. The slice belongs to the trace.
func (s *Stacks) At(id StackID) []FrameID {
	if id < 0 || int(id) >= s.Len() {
		return nil
	}
	return s.IDs[s.Offsets[id]:s.Offsets[id+1]]
}

// Phase is a part of a training step.
type Phase uint8

// The phases of a training step.
const (
	PhaseUnknown Phase = iota
	PhaseForward
	PhaseBackward
	PhaseOptimizer
)

// String returns the phase's name on screen.
func (p Phase) String() string {
	return [...]string{"unknown", "forward", "backward", "optimizer"}[min(p, PhaseOptimizer)]
}

// Op is one operation of the framework or one kernel: an interval of work. Sources add ops in start order.
type Op struct {
	Start, Duration int64
	Name, Module    StringID
	Stack           StackID
	// Parent is the op that this one runs inside of on the same thread, NoOp for none.
	Parent OpID
	Thread int32
	Stream StreamID
	Device DeviceID
	Phase  Phase
	// Rerunnable says that running the op again yields the same bytes.
	Rerunnable bool
	// Again says that it is an op of a forward pass which a checkpoint runs again in the backward pass.
	Again bool
	// NoGrad says that it ran with gradients off, as in an evaluation.
	NoGrad bool
}

// AccessMode says how an op touches a block.
type AccessMode uint8

// The modes of access.
const (
	// Read leaves the block as it was.
	Read AccessMode = iota
	// Write gives the whole block a new value.
	Write
	// Mutate changes part of the block, or changes it in place.
	Mutate
	// Alias makes another view of the same bytes.
	Alias
	// Use is an access whose kind the source does not say.
	Use
)

// String returns the mode's name.
func (m AccessMode) String() string {
	return [...]string{"read", "write", "mutate", "alias", "use"}[min(m, Use)]
}

// Access is one touch of a block. Accesses are ordered by time; Event is the index in Events before which the
// access happened (so that accesses and events of equal time keep their order). Sources add accesses in
// nondecreasing Event.
type Access struct {
	Time   int64
	Addr   uint64
	Size   int64
	Op     OpID
	Event  int32
	Device DeviceID
	Mode   AccessMode
}

// MarkKind tells marks apart.
type MarkKind uint8

// The kinds of mark.
const (
	// MarkAnnotation is a range that the user or the framework named.
	MarkAnnotation MarkKind = iota
	// MarkIteration is one training step with the bounds that the source gives.
	MarkIteration
	// MarkPhase is a forward, backward or optimizer range.
	MarkPhase
)

// NoTime is a bound of a mark that the source lacks.
const NoTime = int64(-1 << 63)

// Mark is a named range of time [Start, End); a bound is NoTime if the source lacks it.
type Mark struct {
	Start, End int64
	Name       StringID
	Kind       MarkKind
	Phase      Phase
	Device     DeviceID
}

// Counter is a sampled figure of a device, such as PyTorch's own total of allocated bytes. Event has, for
// each sample, the index of its event; it is nil if the source does not tie samples to events.
type Counter struct {
	Name   StringID
	Device DeviceID
	Time   []int64
	Value  []int64
	Event  []int32
}

// Names of counters that the timeline understands.
const (
	CounterAllocated = "total_allocated"
	CounterReserved  = "total_reserved"
)

// BlockState is the state of a block in the allocator's final state.
type BlockState uint8

// The states of a block.
const (
	// BlockInactive is cached or stranded.
	BlockInactive BlockState = iota
	// BlockAllocated is in use by the program.
	BlockAllocated
	// BlockPendingFree is freed by the user and waits for a stream.
	BlockPendingFree
)

// String returns PyTorch's name of the state.
func (s BlockState) String() string {
	return [...]string{"inactive", "active_allocated", "active_pending_free"}[min(s, BlockPendingFree)]
}

// Block is a part of a segment in the allocator's final state. Size and Requested are bytes; Size is rounded.
type Block struct {
	Address   uint64
	Size      int64
	Requested maybe.Int
	Stack     StackID
	// Count is how many allocations of one site the row stands for: 1 except in profiles that only have sums.
	Count int32
	State BlockState
	Extra StringID
}

// Segment is memory obtained from the driver: the blocks [FirstBlock, EndBlock) of its State tile it in
// address order.
type Segment struct {
	Address                                      uint64
	TotalSize, AllocatedSize, ActiveSize, Wanted int64 // Wanted is the sum of requested sizes
	FirstBlock, EndBlock                         int32
	Pool                                         Pool
	HasPool                                      bool
	Expandable                                   bool
	Small                                        bool
	Stream                                       StreamID
	Device                                       DeviceID
	Stack                                        StackID
	Extra                                        StringID
}

// State is the allocator's state at one moment. Known is false if the source has none.
type State struct {
	Known    bool
	Segments []Segment
	Blocks   []Block
}

// Setting is one named value, kept as JSON.
type Setting struct{ Key, Value string }

// Severity grades a Loss.
type Severity uint8

// The severities of a Loss.
const (
	// Info is worth knowing and costs no data.
	Info Severity = iota
	// DataLoss means that something in the source is missing from the trace.
	DataLoss
	// Fault means that the source contradicts itself.
	Fault
)

// String returns the severity's name in reports.
func (s Severity) String() string { return [...]string{"info", "data_loss", "error"}[min(s, Fault)] }

// Loss is a counted fact about the recording's completeness.
type Loss struct {
	Name     string
	Severity Severity
	Count    int64
	Detail   string
}

// DeviceEvents returns the rows [first, end) of Events that belong to device d.
func (t *Trace) DeviceEvents(d DeviceID) (first, end int) {
	if int(d) >= len(t.deviceRange) {
		return 0, 0
	}
	r := t.deviceRange[d]
	return r.first, r.end
}

// Text returns string id.
func (t *Trace) Text(id StringID) string {
	if id < 0 || int(id) >= len(t.Strings) {
		return ""
	}
	return t.Strings[id]
}

// FrameText returns the function, file and line of frame id. If the source put all three into the name,
// FrameText splits it (see SplitFrameName).
func (t *Trace) FrameText(id FrameID) (fn, file string, line int) {
	if id < 0 || int(id) >= len(t.Frames) {
		return "", "", 0
	}
	f := t.Frames[id]
	fn, file, line = t.Text(f.Func), t.Text(f.File), int(f.Line)
	if file != "" && file != "none" {
		return fn, file, line
	}
	name, in, at := SplitFrameName(fn)
	if in == "" { // the name has no file and line
		return name, "", line
	}
	return name, in, at
}

// DetailOf returns the detail of event i.
func (t *Trace) DetailOf(i int) Detail {
	if t.Events.Detail == nil {
		return Detail{ForwardStack: NoStack}
	}
	return t.Details[t.Events.Detail[i]]
}

// Setting returns the JSON value of a setting, "" if the source has none of that name.
func (t *Trace) Setting(key string) string {
	for _, s := range t.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
