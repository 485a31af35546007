package traces

import "slices"

// Kind is what a trace can answer. Each kind can answer all that the poorer ones can.
type Kind uint8

// The kinds of trace, poorest first.
const (
	// Point is one moment: breakdowns.
	Point Kind = iota
	// Lifetimes adds when each block lived: timelines and pooling.
	Lifetimes
	// Accesses adds when each block was used: swapping.
	Accesses
	// Dataflow adds which op reads and writes which block: recompute, and everything else.
	Dataflow
)

// String returns the kind's name in reports.
func (k Kind) String() string {
	return [...]string{"point", "lifetimes", "accesses", "dataflow"}[min(k, Dataflow)]
}

// Kind returns the richest kind that the trace's tables support.
func (t *Trace) Kind() Kind {
	lives := false
	for _, a := range t.Events.Action {
		if a == Alloc || a.IsFreeRequest() || a.IsFreeCompletion() {
			lives = true
			break
		}
	}
	switch {
	case !lives:
		return Point
	case len(t.Accesses) == 0:
		return Lifetimes
	}
	reads, writes := false, false
	for _, a := range t.Accesses {
		if a.Op == NoOp {
			continue
		}
		reads = reads || a.Mode == Read
		writes = writes || a.Mode == Write || a.Mode == Mutate
		if reads && writes {
			return Dataflow
		}
	}
	return Accesses
}

// OneMoment reports whether the trace was recorded as one moment: it has blocks and nothing that happens to
// them. A file that was cut before its first event may have had more.
func (t *Trace) OneMoment() bool { return t.Kind() == Point && !t.Cut() }

// Missing is Kind.Missing for the trace. A file that was cut before its first event may have had more.
func (t *Trace) Missing() string {
	switch {
	case t.Kind() == Point && t.Cut():
		return ""
	case len(t.Devices) > 0 && t.Devices[0].Kind == DeviceArena:
		return PackingOnly
	case t.Source.Format == FormatCapture && t.Kind() == Point:
		return totalsOnly
	case t.Source.Format == FormatJAX:
		return profileOnly
	case t.Source.Format == FormatXLA:
		return assignmentOnly
	case t.Source.Format == FormatNsys && t.Kind() != Point:
		return driverOnly
	}
	return t.Kind().Missing()
}

// Formats that more than their reader must know, as [Source] names them.
const (
	FormatCapture   = "capture"               // recordings of watched jobs
	FormatDescribed = "described"             // steps that the agent captured op by op
	FormatJAX       = "jax_memory_profile"    // JAX's device memory profiles
	FormatXLA       = "xla_buffer_assignment" // XLA's buffer assignments
	FormatNsys      = "nsight_systems"        // exports of Nsight Systems
	FormatPipeDream = "pipedream"             // PipeDream's profiles of layers
)

// OfPyTorch reports whether PyTorch's allocators handed out the recorded memory. Only then do figures about
// reserved memory, and advice about allocator settings, apply.
func (t *Trace) OfPyTorch() bool {
	return t.Source.Format != FormatJAX && t.Source.Format != FormatXLA && t.Source.Format != FormatNsys
}

// driverOnly says what an export of Nsight Systems cannot answer.
const driverOnly = "Nsight Systems records what a process asks the driver for: of a caching allocator such " +
	"as PyTorch's that is its segments, not the tensors in them, which gmemtop record and PyTorch's memory " +
	"snapshots hold"

// assignmentOnly says what a buffer assignment cannot answer.
const assignmentOnly = "a buffer assignment says what one run of a compiled program needs, and not when"

// profileOnly says what a profile of JAX cannot answer and what can.
const profileOnly = "JAX records no events in a device memory profile: " +
	"XLA_FLAGS=--xla_dump_to=FOLDER writes what each compiled step allocates"

// totalsOnly says what a recording of a watched job lacks if no step in it was captured.
const totalsOnly = "this recording has the totals of its steps, but no captured step: record without " +
	"--trigger, or with --every 10"

// Cut reports whether the file ended before its format does.
func (t *Trace) Cut() bool {
	return slices.ContainsFunc(t.Losses, func(l Loss) bool { return l.Name == LossTruncated })
}

// Names of losses that more than their reader must know.
const (
	// LossTruncated is the loss of a file that ends early.
	LossTruncated = "truncated"
	// LossOutOfMemory is the note in a recording that its process died of a failed allocation.
	LossOutOfMemory = "out_of_memory"
	// LossBetweenWindows counts what a recording of several windows cannot know: what happened between them.
	LossBetweenWindows = "between_windows"
)

// DiedOutOfMemory reports whether the recorded process died of a failed allocation, which the trace may or
// may not hold.
func (t *Trace) DiedOutOfMemory() bool {
	return slices.ContainsFunc(t.Losses, func(l Loss) bool { return l.Name == LossOutOfMemory })
}

// PackingOnly says what a storage-allocation problem cannot answer and which command takes it: there is no
// training to record.
const PackingOnly = "nothing to swap or recompute: a storage-allocation problem has sizes and lifetimes " +
	"only; pooling managers and gmemtop pack place its buffers"

// Missing says in one sentence what the kind lacks and which command records that; "" for Dataflow.
func (k Kind) Missing() string {
	switch k {
	case Point:
		return "this file is one moment without events; for events, call " +
			"torch.cuda.memory._record_memory_history(max_entries=1_000_000) before training"
	case Lifetimes:
		return "this trace says when blocks lived, not who used them: gmemtop describe -o describe.py " +
			"writes a recorder of whole steps for your script"
	case Accesses:
		return "this trace says when blocks were used, not which op made which: gmemtop describe -o " +
			"describe.py writes a recorder of whole steps for your script"
	}
	return ""
}
