package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Ids are indices into the tables of a [Problem].
type (
	// OpID indexes [Problem.Ops]; it is also a position of the iteration: the moment before the op begins.
	// len(Ops) is its end.
	OpID int32
	// BufferID indexes [Problem.Buffers]; [NoBuffer] is the absence of one.
	BufferID int32
)

// NoBuffer is the absence of a buffer.
const NoBuffer BufferID = -1

// MaxSize is the largest size of a buffer, in bytes: beyond it a recording is damaged, and sums of sizes stay
// far from overflow.
const MaxSize = int64(1) << 48

// Problem is one iteration of steady state, which repeats: what runs, in issue order, on which stream; which
// buffers it reads and writes; how long each buffer lives. Budget, seed and work limit are arguments of
// planning and no part of it. A Problem is frozen once [Problem.Finish] has accepted it; goroutines share it
// without locks.
type Problem struct {
	// Name is a name for a headline: a file's name, or a network with its batch size.
	Name string
	// Kind is how much the recording tells: Lifetimes suffices for pooling, Accesses also for swapping,
	// Dataflow for everything.
	Kind traces.Kind
	Ops  []Op
	// Accesses are the touches of all ops: those of op i are Accesses[Ops[i].First:Ops[i].End].
	Accesses []Access
	Buffers  []Buffer
	// Align is what offsets and sizes are rounded up to, in bytes; 1 for storage-allocation problems, 512 on
	// a GPU.
	Align int64
	// Streams is the number of compute streams; ops name them 0 to Streams-1.
	Streams int
	// Iterations is how many iterations Ops hold: 1, or 2 where buffers live longer than one; 0 counts as 1.
	// Measurements are for one.
	Iterations int
	// Hardware is what copies, allocations and launches cost.
	Hardware Hardware
	// Outside is device memory that no buffer accounts for (context, libraries' workspaces, collectives), in
	// bytes; 0 if unknown.
	Outside int64
	// HasTimes says that durations were recorded or derived from a hardware model; without it step times mean
	// nothing.
	HasTimes bool
	// TimesInferred says that durations come from a model or from host timestamps, not from device
	// measurements.
	TimesInferred bool
	// SavesKnown says that the recording tells what autograd saves for backward: [Buffer.Saved]. Saves and
	// loads are then ops of their own, [SaveOp] and [LoadOp].
	SavesKnown bool
	// EagerOnly says that the plan is for a training in eager PyTorch: [Problem.Gaps] leaves out what that
	// cannot use.
	EagerOnly bool
	// Scattered says that the executor leaves addresses to its own allocator, as a running training does: a
	// plan takes what is alive at its peak, wherever that lies.
	Scattered bool
	// Varied has further steps of the same program, if its steps run different ops: a plan for this one, the
	// largest, is carried out in all of them. It is nil for other programs.
	Varied []*Problem
	// Notes are facts about how the problem was made that a person should know, one sentence each.
	Notes []string
	// Source is the device that the problem was taken from, nil if it was computed.
	Source *timeline.Device

	touched []Touch // by buffer, then by op
	firstOf []int32 // of each buffer in touched, one entry more than buffers
	rounded []int64
}

// Op is one operation of the iteration. Issue order is the order of Problem.Ops.
type Op struct {
	Name, Module string
	// Duration is its time on its stream, in nanoseconds.
	Duration int64
	// Gap is the host's time before it can issue the op, in nanoseconds, on top of the hardware's launch gap.
	Gap        int64
	First, End int32 // its accesses
	// Variants are other ways of computing it, such as convolution algorithms; nil if there is only one.
	// Variant 0 is the recorded one.
	Variants []Variant
	// Workspace is the transient buffer whose size depends on the variant, NoBuffer if the op has none.
	Workspace BufferID
	Stream    int16
	Phase     traces.Phase
	Class     Class
	// Rerunnable says that running the op again on the same inputs yields the same bytes.
	Rerunnable bool
	// Again says that a checkpoint of the program's own reruns it in the backward pass.
	Again bool
	// Recorded is the number of the recording's op, counted from 1; 0 if there is none.
	Recorded int32
}

// Names of the ops that stand for autograd's own touches, in recordings that have them: a tensor is saved for
// backward, and needed.
const (
	SaveOp = "gmemtop::save"
	LoadOp = "gmemtop::load"
	// HeldOp is not an op of a problem. Up to it the program holds what was saved, whoever else needs it.
	HeldOp = "gmemtop::held"
	// HostOp is the time between two ops of a CPU that is its own host.
	HostOp = "host"
)

// Variant is one way of computing an op.
type Variant struct {
	Name      string
	Duration  int64 // nanoseconds
	Workspace int64 // bytes
}

// Mode says how an op touches a buffer. The values are those of [traces.AccessMode] without Alias: a view's
// bytes are its buffer's.
type Mode uint8

// The modes of access.
const (
	// Read leaves the buffer as it was.
	Read Mode = iota
	// Write gives the whole buffer a new value, whatever it held.
	Write
	// Mutate changes it in place: its earlier contents matter.
	Mutate
	// Use is a touch of a kind that the recording does not tell, and counts as Mutate.
	Use
)

// Reads reports whether the access needs the buffer's earlier contents.
func (m Mode) Reads() bool { return m != Write }

// Writes reports whether the buffer holds something else afterwards.
func (m Mode) Writes() bool { return m != Read }

// Access is one touch of a buffer by the op whose range holds it.
type Access struct {
	Buffer BufferID
	Mode   Mode
}

// Touch is an access seen from its buffer.
type Touch struct {
	Op   OpID
	Mode Mode
}

// Life says how a buffer's lifetime lies in the iteration.
type Life uint8

// The kinds of lifetime.
const (
	// Inside begins and ends within the iteration: [Start, End).
	Inside Life = iota
	// Persistent is alive throughout and keeps its value from one iteration to the next: parameters,
	// optimizer state.
	Persistent
	// Carried begins in one iteration and ends in the next: alive during [Start, n) and [0, End), with End <=
	// Start.
	Carried
)

// RoomName is the name of the buffer that stands for what steps hold that are larger than the described ones.
const RoomName = "larger steps"

// Buffer is a piece of memory: a tensor's storage, or a workspace.
type Buffer struct {
	Name       string
	Size       int64 // requested bytes
	Start, End OpID  // see Life
	Life       Life
	Category   timeline.Category
	// Inferred says that the category was inferred, not recorded.
	Inferred bool
	// Saved says that autograd saves it for backward, as far as [Problem.SavesKnown].
	Saved bool
	// Held is the position before which the program itself holds it, so that it cannot leave memory: a
	// function holds whatever it has named until it returns, and a call its arguments. 0 if unknown.
	Held   OpID
	Stream int16
	// Alloc is the allocation of the recording, [timeline.NoAlloc] if there is none.
	Alloc timeline.AllocID
}

// Class is the kind of layer that an op belongs to, as far as managers distinguish layers.
type Class uint8

// The classes of op.
const (
	ClassOther Class = iota
	ClassConv
	ClassLinear
	ClassActivation
	ClassPool
	ClassNorm
	ClassDropout
	ClassSoftmax
	ClassLoss
	ClassOptimizer
)

// String returns the class's name.
func (c Class) String() string {
	return [...]string{"other", "conv", "linear", "activation", "pool", "norm", "dropout", "softmax", "loss",
		"optimizer"}[min(c, ClassOptimizer)]
}

// ErrInvalid is wrapped by every error of a problem or a plan that contradicts itself.
var ErrInvalid = errors.New("invalid")

// Finish checks the problem, indexes it and freezes it. Its error names the first op or buffer that
// contradicts another.
func (p *Problem) Finish() error {
	if p.Align < 1 {
		p.Align = 1
	}
	if p.Align&(p.Align-1) != 0 || p.Align > 1<<30 {
		return fmt.Errorf("%w problem: alignment %d is not a power of two up to 2^30", ErrInvalid, p.Align)
	}
	p.Streams, p.Iterations = max(p.Streams, 1), max(p.Iterations, 1)
	n := OpID(len(p.Ops))
	p.rounded = make([]int64, len(p.Buffers))
	var total int64
	for i := range p.Buffers {
		b := &p.Buffers[i]
		switch {
		case b.Life == Persistent:
			b.Start, b.End = 0, n
		case b.Life == Carried && b.End == 0: // nothing of it is left when the next iteration begins
			b.Life, b.End = Inside, n
		}
		switch {
		case b.Size < 0 || b.Size > MaxSize:
			return fmt.Errorf("%w problem: buffer %d (%s) has %d bytes, not 0 to 2^48", ErrInvalid, i, b.Name,
				b.Size)
		case b.Start < 0 || b.End < 0 || b.Start > n || b.End > n:
			return fmt.Errorf("%w problem: buffer %d (%s) lives [%d, %d), outside of the iteration's %d ops",
				ErrInvalid, i, b.Name, b.Start, b.End, n)
		case b.Life == Inside && b.Start >= b.End:
			return fmt.Errorf("%w problem: buffer %d (%s) lives [%d, %d), which is empty or negative",
				ErrInvalid, i, b.Name, b.Start, b.End)
		case b.Life == Carried && b.End > b.Start:
			return fmt.Errorf("%w problem: buffer %d (%s) lives longer than an "+
				"iteration and is not persistent", ErrInvalid, i, b.Name)
		case int(b.Stream) < 0 || int(b.Stream) >= p.Streams:
			return fmt.Errorf("%w problem: buffer %d (%s) is on stream %d of %d", ErrInvalid, i, b.Name,
				b.Stream, p.Streams)
		}
		p.rounded[i] = (b.Size + p.Align - 1) &^ (p.Align - 1)
		if total += p.rounded[i]; total > 1<<62 {
			return fmt.Errorf("%w problem: its buffers together pass 2^62 bytes", ErrInvalid)
		}
	}
	return p.index()
}

// index makes the table of touches by buffer, and checks accesses against lifetimes.
func (p *Problem) index() error {
	p.firstOf = make([]int32, len(p.Buffers)+1)
	for i := range p.Ops {
		op := &p.Ops[i]
		if op.First < 0 || op.First > op.End || int(op.End) > len(p.Accesses) || int(op.Stream) < 0 ||
			int(op.Stream) >= p.Streams || op.Duration < 0 || op.Gap < 0 {
			return fmt.Errorf("%w problem: op %d (%s) has a range, stream or duration out of bounds",
				ErrInvalid, i, op.Name)
		}
		if w := op.Workspace; w != NoBuffer && (int(w) < 0 || int(w) >= len(p.Buffers) ||
			p.Buffers[w].Life != Inside || p.Buffers[w].Start != OpID(i) || p.Buffers[w].End != OpID(i)+1) {
			return fmt.Errorf("%w problem: the workspace of op %d (%s) does not live with it", ErrInvalid, i,
				op.Name)
		}
		for _, a := range p.Accesses[op.First:op.End] {
			if int(a.Buffer) < 0 || int(a.Buffer) >= len(p.Buffers) {
				return fmt.Errorf("%w problem: op %d (%s) touches buffer %d of %d", ErrInvalid, i, op.Name,
					a.Buffer, len(p.Buffers))
			}
			if b := &p.Buffers[a.Buffer]; !b.AliveAt(OpID(i)) {
				return fmt.Errorf("%w problem: op %d (%s) touches buffer %d (%s), which lives [%d, %d)",
					ErrInvalid, i, op.Name, a.Buffer, b.Name, b.Start, b.End)
			}
			p.firstOf[a.Buffer+1]++
		}
	}
	for i := range p.Buffers {
		p.firstOf[i+1] += p.firstOf[i]
	}
	p.touched = make([]Touch, p.firstOf[len(p.Buffers)])
	next := slices.Clone(p.firstOf)
	for i := range p.Ops {
		for _, a := range p.AccessesOf(OpID(i)) {
			p.touched[next[a.Buffer]] = Touch{Op: OpID(i), Mode: a.Mode}
			next[a.Buffer]++
		}
	}
	return nil
}

// AliveAt reports whether the buffer is alive while op i runs.
func (b *Buffer) AliveAt(i OpID) bool {
	switch b.Life {
	case Persistent:
		return true
	case Carried:
		return i >= b.Start || i < b.End
	}
	return b.Start <= i && i < b.End
}

// AccessesOf returns what op i touches. The slice belongs to the problem.
func (p *Problem) AccessesOf(i OpID) []Access { return p.Accesses[p.Ops[i].First:p.Ops[i].End] }

// TouchesOf returns the touches of buffer b, in issue order. An op that touches it twice appears twice. The
// slice belongs to the problem.
func (p *Problem) TouchesOf(b BufferID) []Touch { return p.touched[p.firstOf[b]:p.firstOf[b+1]] }

// FirstTouch returns the index of the first of a buffer's touches that op at makes, or a later op;
// len(touches) if there is none.
func FirstTouch(touches []Touch, at OpID) int {
	k, _ := slices.BinarySearchFunc(touches, at, func(t Touch, at OpID) int { return cmp.Compare(t.Op, at) })
	return k
}

// Rounded returns the bytes that buffer b takes: its size rounded up to the alignment.
func (p *Problem) Rounded(b BufferID) int64 { return p.rounded[b] }

// Producer returns the ops that made the value of buffer b just before op at: the last whole write and the
// changes in place after it, in order. ok is false if the value came from before the iteration or its
// producers are unknown.
func (p *Problem) Producer(b BufferID, at OpID) (ops []OpID, ok bool) {
	touches := p.TouchesOf(b)
	for k := FirstTouch(touches, at) - 1; k >= 0; k-- {
		if buf := &p.Buffers[b]; buf.Life == Carried && at >= buf.Start && touches[k].Op < buf.Start {
			break // that instance was the previous iteration's
		}
		switch touches[k].Mode {
		case Use:
			return nil, false
		case Mutate, Write:
			if len(ops) == 0 || ops[len(ops)-1] != touches[k].Op {
				ops = append(ops, touches[k].Op)
			}
			if touches[k].Mode == Write {
				slices.Reverse(ops)
				return ops, true
			}
		}
	}
	return nil, false
}
