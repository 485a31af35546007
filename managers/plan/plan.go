package plan

import (
	"fmt"
	"slices"
	"time"
)

// Executor says who can carry a plan out.
type Executor uint8

// The executors.
const (
	// Ideal can move or drop any buffer at any moment.
	Ideal Executor = iota
	// TorchEager can do what PyTorch can do today without a compiler: tensors saved for backward only, whole
	// regions re-run at the first use.
	TorchEager
	// Reordering can do what Ideal can, and run ops in another order than the program's.
	Reordering
)

// String returns the executor's name.
func (e Executor) String() string {
	return [...]string{"ideal", "torch-eager", "reordering"}[min(e, Reordering)]
}

// Plan is what a manager decided. Absences, Reruns and Variants are the decisions, each tied to positions of
// the iteration; Steps are the program that follows from them, for a target to carry out in order; Instances
// are the stays of buffers in device memory, each at one place. Make one with [Assemble], place it, then call
// [Plan.Order].
type Plan struct {
	Manager  string
	Executor Executor
	// Budget is what the plan was made for, in bytes; 0 for none.
	Budget int64
	// SectionBytes, if not 0, says that the plan is about the problem's buffers cut into sections of that
	// size: about [Problem.Sectioned], not the problem itself.
	SectionBytes int64
	// Parks says that the plan is about [Problem.Parked]: optimizer state waits on the host while no
	// optimizer steps.
	Parks bool
	// Sequence, where not nil, has the problem's ops in the order in which they run: the plan speaks of that
	// problem, see [Reordered], and its executor is [Reordering].
	Sequence []OpID

	Absences []Absence
	Reruns   []Rerun
	// Varied, if not nil, has for each of [Problem.Varied] what is done in addition where a step saves what
	// this plan's own step does not: absences and reruns alone, of [Plan.Of] that step; nil for nothing.
	// Plans in files do without.
	Varied []*Plan
	// Variants has the variant of each op; nil if all are variant 0.
	Variants []uint8

	Steps     []Step
	Instances []Instance
	// Resident are the instances that are in memory when the iteration begins, before Steps.
	Resident []InstanceID

	// Policy names the online allocator that serves Alloc and Free steps; nil if every instance has an
	// offset.
	Policy *Policy
	// Footprint is the top of the arena: the largest offset plus size over all instances. It is what is alive
	// at the peak if the problem is Scattered, and 0 with a Policy, where only a target knows it.
	Footprint int64

	// LowerBound is a proven lower bound on the footprint, in bytes, of all plans of the kind that the
	// manager makes; 0 if none was proven.
	LowerBound int64
	// StepBound is a proven lower bound on the step time within the budget, in nanoseconds; 0 if none was
	// proven.
	StepBound int64
	// Work is what planning counted, Planning the time it took.
	Work     int64
	Planning time.Duration
	// Notes are what a reader should know about this plan, one sentence each.
	Notes []string
}

// Policy is an online allocator with its settings, for a target to emulate or to use.
type Policy struct {
	// Name is direct, caching, arena, gmlake, or [PolicyAsync].
	Name string
	// Settings are in the syntax of PYTORCH_CUDA_ALLOC_CONF if the allocator is PyTorch's; "" for its
	// defaults.
	Settings string
}

// PolicyAsync is the driver's own pool, in the order of streams (cuMemAllocAsync), which PyTorch calls the
// backend cudaMallocAsync. Its rules are not public: a device has it, and no simulator.
const PolicyAsync = "async"

// How says what happens to an absent buffer.
type How uint8

// The ways of being absent.
const (
	// Swap copies the buffer to the host and back.
	Swap How = iota
	// Recompute drops it and runs ops again to get it back.
	Recompute
	// Discard drops it because the next access overwrites it.
	Discard
)

// String returns the word used on screen.
func (h How) String() string { return [...]string{"swap", "recompute", "discard"}[min(h, Discard)] }

// Absence is one idle interval that a buffer spends outside of device memory.
type Absence struct {
	Buffer BufferID
	// After is the op after which it leaves, Before the op that needs it again.
	After, Before OpID
	// Release is the position at which its memory is released, After < Release. If the copy is not done by
	// then, the next user of the memory waits for it and, if Blocking, so does all compute. Fetch is the
	// position at which it takes memory again, Release <= Fetch <= Before: where a swap's copy back is
	// issued, or a recompute's rerun happens.
	Release, Fetch OpID
	How            How
	// Blocking makes compute wait at Release until the copy is done, whether or not anyone takes the memory.
	Blocking bool
	// Paced makes the copy back wait until compute has reached Fetch, even if memory is available earlier.
	Paced bool
	// Joined makes compute wait for the copy back at this position, Fetch <= Joined <= Before, instead of at
	// the access; 0 for none.
	Joined OpID
	// Why says in a few words why the manager chose it.
	Why string
}

// Rerun is a chain of ops that are rerun just before op Before, in order.
type Rerun struct {
	Before OpID
	Ops    []OpID
	// Loads are what comes back from the host for this chain alone.
	Loads []Load
}

// Load is the return of a swapped buffer for one chain of reruns. The buffer is dropped after the chain's
// last op that touches it. The copy on the host remains for the end of the buffer's own absence.
type Load struct {
	Buffer BufferID
	// Fetch is the position at which it takes memory and its copy back is issued, at most the chain's Before.
	Fetch OpID
}

// InstanceID indexes [Plan.Instances].
type InstanceID int32

// Instance is one stay of a buffer in device memory.
type Instance struct {
	Buffer BufferID
	// Size is in bytes, rounded; a workspace's depends on its op's variant.
	Size int64
	// Offset is its place in the arena, -1 if an online policy places it.
	Offset int64
	// From and To are the steps [From, To) during which it holds its memory. A resident instance has From -1;
	// one that stays after the last step has To len(Steps).
	From, To int32
}

// StepKind says what a step does.
type StepKind uint8

// The kinds of step.
const (
	// Run is an op of the iteration.
	Run StepKind = iota
	// Again is an op that runs another time.
	Again
	// Alloc takes memory for an instance.
	Alloc
	// Free gives an instance's memory back.
	Free
	// Out copies an instance to the host.
	Out
	// In copies a buffer from the host into an instance.
	In
	// Wait makes a queue wait for an earlier step of another queue.
	Wait
)

// String returns the kind's name.
func (k StepKind) String() string {
	return [...]string{"run", "again", "alloc", "free", "out", "in", "wait"}[min(k, Wait)]
}

// Step is one instruction of a program. Steps are issued in order. Each queue carries its own out in order,
// and queues run side by side. Queues 0 to Streams-1 are the compute streams, Streams is the copy engine to
// the host, and Streams+1 the one from it; without engines ([Hardware.NoEngines]) copies run on queue 0.
type Step struct {
	Kind  StepKind
	Queue int16 // of Run, Again, Out, In and Wait; of Alloc and Free the stream that the memory belongs to
	// Op is the op of Run and Again; for the others, the step's position.
	Op       OpID
	Instance InstanceID // of Alloc, Free, Out, In
	// On is, for Wait, the step that is waited for.
	On int32
}

// OutQueue returns the queue of copies to the host.
func (p *Problem) OutQueue() int16 {
	if p.Hardware.NoEngines {
		return 0
	}
	return int16(p.Streams)
}

// InQueue returns the queue of copies from the host.
func (p *Problem) InQueue() int16 {
	if p.Hardware.NoEngines {
		return 0
	}
	return int16(p.Streams) + 1
}

// Queues returns the number of queues.
func (p *Problem) Queues() int {
	if p.Hardware.NoEngines {
		return p.Streams
	}
	return p.Streams + 2
}

// VariantOf returns the variant of op i.
func (pl *Plan) VariantOf(i OpID) int {
	if pl.Variants == nil {
		return 0
	}
	return int(pl.Variants[i])
}

// DurationOf returns how long op i takes under the plan, in nanoseconds.
func (p *Problem) DurationOf(pl *Plan, i OpID) int64 {
	if v := p.Ops[i].Variants; v != nil {
		return v[pl.VariantOf(i)].Duration
	}
	return p.Ops[i].Duration
}

// sizeOf returns the rounded size of buffer b under the variants.
func sizeOf(p *Problem, b BufferID, variants []uint8) int64 {
	buf := &p.Buffers[b]
	if buf.Life != Inside || int(buf.Start) >= len(p.Ops) || p.Ops[buf.Start].Workspace != b ||
		p.Ops[buf.Start].Variants == nil {
		return p.rounded[b]
	}
	k := 0
	if variants != nil {
		k = int(variants[buf.Start])
	}
	return (p.Ops[buf.Start].Variants[k].Workspace + p.Align - 1) &^ (p.Align - 1)
}

// PeakLive returns the most bytes that instances hold at one step of the program, and that step.
func (pl *Plan) PeakLive() (bytes int64, at int) {
	var live int64
	for _, i := range pl.Resident {
		live += pl.Instances[i].Size
	}
	bytes, at = live, -1
	for s := range pl.Steps {
		switch st := &pl.Steps[s]; st.Kind {
		case Alloc:
			if live += pl.Instances[st.Instance].Size; live > bytes {
				bytes, at = live, s
			}
		case Free:
			live -= pl.Instances[st.Instance].Size
		}
	}
	return bytes, at
}

// Moved returns the bytes copied to the host and from it in one iteration.
func (pl *Plan) Moved() (out, in int64) {
	for i := range pl.Steps {
		switch st := &pl.Steps[i]; st.Kind {
		case Out:
			out += pl.Instances[st.Instance].Size
		case In:
			in += pl.Instances[st.Instance].Size
		}
	}
	return out, in
}

// Place gives every instance its offset in an arena, and computes the footprint. offsets has one entry an
// instance.
func (pl *Plan) Place(offsets []int64) {
	pl.Footprint = 0
	for i := range pl.Instances {
		pl.Instances[i].Offset = offsets[i]
		if pl.Instances[i].Size > 0 {
			pl.Footprint = max(pl.Footprint, offsets[i]+pl.Instances[i].Size)
		}
	}
}

// Settle sets the footprint to what is alive at the peak, for executors that ignore the addresses of Place.
func (pl *Plan) Settle(p *Problem) {
	if p.Scattered && pl.Policy == nil {
		pl.Footprint, _ = pl.PeakLive()
	}
}

// ResidentOf returns, for each buffer, its instance that is in memory when the iteration begins; -1 where
// there is none.
func (pl *Plan) ResidentOf(p *Problem) []InstanceID {
	at := make([]InstanceID, len(p.Buffers))
	for b := range at {
		at[b] = none
	}
	for _, i := range pl.Resident {
		at[pl.Instances[i].Buffer] = i
	}
	return at
}

// Note adds a sentence to the plan's notes, once.
func (pl *Plan) Note(format string, args ...any) {
	if s := fmt.Sprintf(format, args...); !slices.Contains(pl.Notes, s) {
		pl.Notes = append(pl.Notes, s)
	}
}
