package plan

import "github.com/gmemtop/gmemtop/traces"

// Hardware is the cost of a target's memory, links and driver. A preset's figures come from data sheets or
// publications (its Origin says which); calibration on a device replaces them.
type Hardware struct {
	Name string `json:"name"`
	// Origin says where the figures come from: a data sheet, a paper, a calibration, the user.
	Origin string `json:"origin"`
	// Measured says that a calibration took them from the device itself.
	Measured bool `json:"measured,omitempty"`
	// MemoryBytes is the device's memory; 0 if unknown.
	MemoryBytes int64 `json:"memory_bytes"`
	// D2H and H2D are copies device to host and host to device, each alone.
	D2H Link `json:"d2h"`
	H2D Link `json:"h2d"`
	// NoEngines says that there are no copy engines: whatever computes also copies, as the training thread
	// does on a CPU. Copies then run on the first compute stream, in program order, and nothing runs beside
	// them; D2H and H2D are their costs there.
	NoEngines bool `json:"no_engines,omitempty"`
	// Together is the share of its own speed that each direction keeps while both are busy: 1 for a
	// full-duplex link.
	Together float64 `json:"together"`
	// SaveTime is the time of the hooks on a tensor that autograd saves, if a plan is carried out in eager
	// PyTorch. NoteTime is the time to look at an op of a forward pass if ops are to be rerun. AgainTime is
	// the time of a rerun op beyond its own. In nanoseconds, 0 if nobody measured them.
	SaveTime  int64 `json:"save_ns,omitempty"`
	NoteTime  int64 `json:"note_ns,omitempty"`
	AgainTime int64 `json:"again_ns,omitempty"`
	// PinnedBytes is the most pinned host memory that swapping may hold; 0 for no limit.
	PinnedBytes int64 `json:"pinned_bytes"`
	// LaunchGap is the host's time to issue one op, in nanoseconds. Ops whose recorded durations include it
	// have none.
	LaunchGap int64 `json:"launch_ns"`
	// MallocTime and FreeTime are one driver allocation and one driver free (which waits for the device),
	// MapTime one mapping of virtual memory, in nanoseconds.
	MallocTime int64 `json:"malloc_ns"`
	FreeTime   int64 `json:"free_ns"`
	MapTime    int64 `json:"map_ns"`
	// FlopsPerSecond is the sustained rate of dense arithmetic in FlopsType, BytesPerSecond the sustained
	// bandwidth of the device's memory.
	FlopsPerSecond float64 `json:"flops_per_s"`
	FlopsType      string  `json:"flops_type"`
	BytesPerSecond float64 `json:"bytes_per_s"`
}

// Link is what copies one way, such as a copy engine with pinned host memory at the other end.
type Link struct {
	// BytesPerSecond is its sustained rate, Latency the fixed cost of one copy in nanoseconds.
	BytesPerSecond float64 `json:"bytes_per_s"`
	Latency        int64   `json:"latency_ns"`
}

// Time returns how long a copy of n bytes takes alone, in nanoseconds, rounded up.
func (l Link) Time(n int64) int64 {
	if n <= 0 {
		return 0
	}
	if l.BytesPerSecond <= 0 {
		return l.Latency
	}
	t := float64(n) / l.BytesPerSecond * 1e9
	whole := int64(t)
	if float64(whole) < t {
		whole++
	}
	return l.Latency + whole
}

// HookTime returns the time of hooks at an op, in nanoseconds, if tensors leave memory and return: at each
// tensor that autograd saves and, if ops are rerun (noted), at each op of the forward pass.
func (h *Hardware) HookTime(op *Op, noted bool) int64 {
	switch {
	case h.SaveTime == 0 && h.NoteTime == 0, op.Name == LoadOp:
		return 0
	case op.Name == SaveOp:
		return h.SaveTime
	case noted && op.Phase == traces.PhaseForward && op.Module != "":
		return h.NoteTime
	}
	return 0
}
