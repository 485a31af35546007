package nvml

import "github.com/gmemtop/gmemtop/traces/maybe"

// The books of a GPU
//
// NVML sees the bytes in use on a device and those that each process holds; PyTorch sees what its allocator
// holds and has handed out. Neither sees the CUDA context (page tables, the module's code, local memory, the
// printf buffer), nor what libraries take from the driver themselves (NCCL's buffers, cuBLAS handles made
// outside PyTorch's allocator). What is left after subtracting everything known is shown as unexplained, and
// never spread over the rest.
//
//	used (NVML, device)  = Σ processes + driver's remainder
//	process (NVML)       = reserved (PyTorch) + context + libraries
//	reserved (PyTorch)   = tensors + rounding + pending frees + stranded and cached + free in private pools
//
// The context is known only if it was measured: a process with a context and no segment shows it, and in a
// running process the smallest difference between its NVML figure and PyTorch's reserved bytes is an upper
// bound (ContextBound). With neither, context and libraries are one part.
//
// The two sources are read at different moments. A remainder may therefore be negative while an allocation is
// under way. It is reported unchanged, since clamping it to 0 would hide a bug in either source.
//
// Rejected: a table of "typical" context sizes by device and driver. The sums would then only seem to agree.

// AllocatorFigures are what the allocator of one process says about one device, in bytes. Unknown figures
// stay out of the split.
type AllocatorFigures struct {
	// PID is the process as NVML numbers it.
	PID int
	// Requested is what live tensors asked for, Allocated what the allocator gave them (rounding included),
	// Active Allocated and blocks freed that another stream still uses, Reserved what the allocator holds
	// from the driver.
	Requested, Allocated, Active, Reserved maybe.Int
	// PrivatePools is the part of Reserved − Active that belongs to pools of CUDA graphs and of users;
	// nothing else can use it.
	PrivatePools maybe.Int
	// Context is the process's CUDA context, if it was measured.
	Context maybe.Int
	// ContextBound is an upper bound of the context, see [ContextBound]; it is used where Context is unknown.
	ContextBound maybe.Int
}

// EntryName names an entry of a device's memory.
type EntryName string

// The entries of a device's memory, in the order in which [Reconcile] lists them.
const (
	Tensors        EntryName = "tensors"                  // what live tensors asked for
	Rounding       EntryName = "rounding"                 // what the allocator added to it
	PendingFree    EntryName = "pending free"             // freed, and another stream still uses it
	PrivatePool    EntryName = "private pools"            // free bytes of pools of CUDA graphs and of users
	Cached         EntryName = "cached"                   // held by the allocator and used by nothing
	AllReserved    EntryName = "reserved by PyTorch"      // if no finer figures are known
	Context        EntryName = "CUDA context"             // of the process
	ContextOrLess  EntryName = "CUDA context, at most"    // an upper bound of it
	Libraries      EntryName = "libraries"                // what the process holds besides: NCCL, cuBLAS, ...
	OutsidePyTorch EntryName = "context and libraries"    // if the two cannot be told apart
	OtherProcesses EntryName = "other processes"          // on the same device
	DriverReserve  EntryName = "reserved by the driver"   // not part of used memory
	Unexplained    EntryName = "unexplained"              // the rest
	Unaccounted    EntryName = "this process, unitemised" // if PyTorch's figures are unknown
)

// Entry is one line of the split.
type Entry struct {
	Name EntryName
	// Bytes may be negative for Unexplained, Libraries and OutsidePyTorch, since the two sources are read at
	// different moments.
	Bytes int64
	// Derived says that the entry is a difference between the two sources, not a figure of either.
	Derived bool
	// PID is the process of an OtherProcesses entry, 0 otherwise; Process names it.
	PID     int
	Process string
}

// Reconciliation is the split of a device's used memory.
type Reconciliation struct {
	// Used is NVML's figure. If it is known, the Entries add up to it; otherwise they are what is known.
	Used maybe.Int
	// Reserve is the driver's own, outside Used; unknown on drivers that count it in Used.
	Reserve maybe.Int
	Entries []Entry
	// Unknown says in sentences what is not known.
	Unknown []string
}

// Bytes returns the sum of the entries of a name, and whether there is one.
func (r *Reconciliation) Bytes(name EntryName) (bytes int64, ok bool) {
	for _, p := range r.Entries {
		if p.Name == name {
			bytes += p.Bytes
			ok = true
		}
	}
	return bytes, ok
}

// Reconcile splits the device's used memory among what b's process can account for, the process's context,
// other processes, and a remainder. If NVML reports the device's use, the entries add up to it exactly.
func Reconcile(r *Reading, b AllocatorFigures) Reconciliation {
	out := Reconciliation{Used: r.Memory.Used, Reserve: r.Memory.Reserved}
	add := func(name EntryName, bytes int64, derived bool) {
		if bytes != 0 {
			out.Entries = append(out.Entries, Entry{Name: name, Bytes: bytes, Derived: derived})
		}
	}
	own := out.itemise(b, add)

	process, listed := maybe.Int{}, false // the process's whole, by NVML
	var others []Entry
	for _, p := range r.Processes {
		v, known := p.Used.Value()
		switch {
		case p.PID == b.PID && known:
			process, listed = maybe.Known(process.Or(0)+v), true
		case p.PID == b.PID:
			listed = true
		case known:
			others = append(others, Entry{Name: OtherProcesses, Bytes: v, PID: p.PID, Process: p.Name})
		default:
			out.Unknown = append(out.Unknown, "NVML does not report the memory of process "+name(p)+
				": it is in the unexplained part")
		}
	}
	// A process that holds memory but is not listed under its pid has another pid in the list. Any listed
	// process may be it, and counting both would count its memory twice.
	hidden := b.PID != 0 && !listed && r.ProcessesKnown && b.Reserved.Or(0) > 0
	if hidden {
		others = nil
	}
	switch {
	case !r.ProcessesKnown:
		out.Unknown = append(out.Unknown, "NVML does not list the processes of this device: theirs and the "+
			"context are in the unexplained part")
	case hidden:
		out.Unknown = append(out.Unknown, "NVML does not list this process under its number, as inside a "+
			"container: its context and other processes are in the "+
			"unexplained part")
	case listed && !process.IsKnown():
		out.Unknown = append(out.Unknown, "NVML does not tell this process's memory: its context is in the "+
			"unexplained part")
	}
	explained := own
	if total, ok := process.Value(); ok {
		out.outside(total-own, b, add)
		explained = total
	} else if context, ok := b.Context.Value(); ok {
		add(Context, context, false)
		explained += context
	}
	for _, p := range others {
		out.Entries = append(out.Entries, p)
		explained += p.Bytes
	}
	if used, ok := r.Memory.Used.Value(); ok {
		add(Unexplained, used-explained, true)
	} else {
		out.Unknown = append(out.Unknown, "NVML does not report the memory used on this device: there is "+
			"no remainder to show")
	}
	return out
}

func name(p Process) string {
	if p.Name != "" {
		return p.Name
	}
	return maybe.Known(int64(p.PID)).String()
}

// itemise adds the entries of the allocator and returns their sum, which is Reserved if that is known. The
// bytes of a finer figure that is unknown, or larger than the coarser one around it, stay in the coarser
// entry.
func (out *Reconciliation) itemise(b AllocatorFigures, add func(EntryName, int64, bool)) int64 {
	reserved, ok := b.Reserved.Value()
	if !ok {
		if b.PID != 0 {
			out.Unknown = append(out.Unknown, "PyTorch's books are unknown: this process is shown as a whole")
		}
		return 0
	}
	if !maybe.First(b.Active, b.Allocated, b.Requested).IsKnown() {
		add(AllReserved, reserved, false)
		return reserved
	}
	within := func(f maybe.Int, limit int64) int64 { return min(max(f.Or(limit), 0), limit) }
	active := within(maybe.First(b.Active, b.Allocated, b.Requested), reserved)
	allocated := within(b.Allocated, active)
	requested := within(b.Requested, allocated)
	pools := within(maybe.First(b.PrivatePools, maybe.Known(0)), reserved-active)
	add(Tensors, requested, false)
	add(Rounding, allocated-requested, false)
	add(PendingFree, active-allocated, false)
	add(PrivatePool, pools, false)
	add(Cached, reserved-active-pools, false)
	return reserved
}

// outside splits what the process holds outside its allocator.
func (out *Reconciliation) outside(rest int64, b AllocatorFigures, add func(EntryName, int64, bool)) {
	context, known := b.Context.Value()
	bound, bounded := b.ContextBound.Value()
	switch {
	case !b.Reserved.IsKnown():
		add(Unaccounted, rest, false)
	case known:
		add(Context, context, false)
		add(Libraries, rest-context, true)
	case bounded:
		add(ContextOrLess, bound, true)
		add(Libraries, rest-bound, true)
	default:
		add(OutsidePyTorch, rest, true)
	}
}

// ContextBound is the smallest difference seen between what a process holds by NVML and what its allocator
// holds: an upper bound of its CUDA context, exact if the process was ever seen before a library took memory.
// The zero value has seen nothing.
type ContextBound struct{ bound maybe.Int }

// Observe takes one pair of figures read as closely together as can be, and returns the bound. A difference
// that is not positive means that the two were read at different moments, and is ignored.
func (c *ContextBound) Observe(process, reserved maybe.Int) maybe.Int {
	if v, ok := process.Minus(reserved).Value(); ok && v > 0 {
		c.bound = maybe.Known(min(v, c.bound.Or(v)))
	}
	return c.bound
}
