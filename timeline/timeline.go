package timeline

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Timeline is a frozen trace with its lifetimes and series, one Device for each of the trace's devices.
type Timeline struct {
	Trace   *traces.Trace
	Devices []*Device
	// Losses are gaps and contradictions found when matching allocations with frees, in addition to
	// Trace.Losses.
	Losses []traces.Loss

	origins origins
	places  *traces.Trace
	memos   sync.Map // answers of each Memo
}

// Kinds returns the kinds of the frames and stacks of Places.
func (t *Timeline) Kinds() *frames.Kinds { return kinds.Of(t) }

var kinds = NewMemo(func(t *Timeline) *frames.Kinds { return frames.KindsOf(t.Places()) })

// Main returns the device that a view opens with: the accelerator with the highest peak, else the device with
// the highest peak, else nil.
func (t *Timeline) Main() *Device {
	var best *Device
	rank := func(d *Device) (accelerator bool, peak int64) {
		return d.Info.Kind.Accelerator(), d.Totals.PeakReservedOrAllocated()
	}
	for _, d := range t.Devices {
		if best == nil {
			best = d
			continue
		}
		accelerator, peak := rank(d)
		bestAccelerator, bestPeak := rank(best)
		if accelerator && !bestAccelerator || accelerator == bestAccelerator && peak > bestPeak {
			best = d
		}
	}
	return best
}

// Zero returns the origin of all times in every view and report, for every device: the time of the first
// event of any device.
func (t *Timeline) Zero() int64 {
	zero, found := int64(0), false
	for _, d := range t.Devices {
		if d.n > 0 && (!found || d.time[0] < zero) {
			zero, found = d.time[0], true
		}
	}
	return zero
}

// Moment is a position in a device's order of events: the state just after event Moment, counted from 0
// within the device.
type Moment int32

const (
	// Start is the state before the device's first event.
	Start Moment = -1
	// Never is the end of anything that does not end within the recording.
	Never Moment = 1<<31 - 1
)

// AllocID indexes a device's Allocs.
type AllocID int32

// NoAlloc is the absence of an allocation.
const NoAlloc AllocID = -1

// Allocs holds the lifetimes of one device as columns, ordered by Start; those alive before the recording
// come first, earliest freed last (so that, stacked in this order, the first to be freed lies on top). An
// allocation is allocated during [Start, Requested) and active during [Start, End).
type Allocs struct {
	Start     []Moment // its alloc event; Start if it was alive before the recording
	Requested []Moment // its free_requested event, Never while allocated at the end
	End       []Moment // its free_completed event, Never while active at the end
	Addr      []uint64
	Size      []int64 // requested bytes, or what the allocator gave if the source records nothing else
	// bytes that the allocator gave, as allocated bytes count them; see rounding.go for traces that lack them
	Rounded []int64
	Stack   []traces.StackID
	Stream  []traces.StreamID
	// how many allocations the address had before: PyTorch's memory_viz prints b'<addr>_<version>
	Version  []int32
	Category []Category
	// Inferred marks the allocations whose category was inferred, not recorded.
	Inferred []bool
	// Count is how many blocks of one site each row stands for, in profiles that only have sums; nil if each
	// row is one block.
	Count []int32

	maxRequested, maxEnd [][]Moment // levels of detail over Requested and End, see LiveAt
}

// Len returns the number of allocations.
func (a *Allocs) Len() int { return len(a.Start) }

// Category is what memory is for: a category of torch.profiler, or Cache.
type Category uint8

// The categories: torch.profiler's, in its order of colours, then the one that it lacks, of programs that
// generate text.
const (
	Unknown Category = iota
	Parameter
	OptimizerState
	Gradient
	Activation
	Input
	Temporary
	AutogradDetail
	Cache // keys and values of earlier tokens
	NumCategories
)

// StackOrder is the order of stacked areas from the bottom up: long-lived categories lie below short-lived
// ones.
var StackOrder = [NumCategories]Category{
	Parameter,
	OptimizerState,
	Cache,
	Gradient,
	Input,
	Activation,
	AutogradDetail,
	Temporary,
	Unknown,
}

var categoryNames = [NumCategories]string{
	"unknown", "parameter", "optimizer_state", "gradient", "activation", "input", "temporary",
	"autograd_detail", "kv_cache",
}

// String returns the name of the category as torch.profiler has it, in lower case.
func (c Category) String() string { return categoryNames[min(c, NumCategories-1)] }

var categoryWords = [NumCategories]string{
	"of unknown category", "parameters", "optimizer state", "gradients", "activations", "inputs",
	"temporaries",
	"autograd's own", "KV cache",
}

// Words returns the name of the category's blocks in a sentence.
func (c Category) Words() string { return categoryWords[min(c, NumCategories-1)] }

// ParseCategory returns the category with a name, in any case, and false if there is none.
func ParseCategory(s string) (Category, bool) {
	for i, n := range categoryNames {
		if strings.EqualFold(n, s) {
			return Category(i), true
		}
	}
	return Unknown, false
}

// Exactness says how far a figure can be trusted.
type Exactness uint8

// The degrees of exactness.
const (
	// Exact figures follow from the recording alone, which lost nothing.
	Exact Exactness = iota
	// LowerBound figures cannot be smaller; what was lost may make them larger.
	LowerBound
	// Inferred figures rest on a rule that the recording does not prove.
	Inferred
)

// String returns the name used in reports.
func (e Exactness) String() string {
	return [...]string{"exact", "lower_bound", "inferred"}[min(e, Inferred)]
}

// Device is one memory of the process with all its lifetimes and series.
type Device struct {
	ID     traces.DeviceID
	Info   traces.Device
	Allocs Allocs

	// Allocated, Active and Reserved are PyTorch's figures of these names, in rounded bytes, after every
	// event. RequestedSeries and RequestedActiveSeries have the first two in requested bytes.
	Allocated, Active, Reserved *Series

	Totals Totals

	tl    *Timeline
	first int      // row of the device's first event in Trace.Events
	n     int      // number of events
	memos sync.Map // answers of every Memo

	time    []int64   // of each event, never falling
	allocOf []AllocID // the allocation of each event
	// roundChecked are the blocks of the final state on which the rounding rule was checked, roundWrong those
	// that it misses.
	roundChecked, roundWrong int
	// closings are the allocations that end at another allocation's event, in order.
	closings []ending
}

// Timeline returns the timeline that the device belongs to.
func (d *Device) Timeline() *Timeline { return d.tl }

// Len returns the number of the device's events.
func (d *Device) Len() int { return d.n }

// Totals are the figures of one device over the whole recording, in bytes. Allocated, active and reserved are
// rounded bytes, as PyTorch's memory_stats reports them; reserved is unknown if the source shows no segments.
// Fields that end in Requested are the same series in requested bytes, unknown if the source records only
// what the allocator gave. Each peak is the maximum of its own series, so two peaks may be at different
// moments. Allocations counts alloc events. Segments counts those of the final state, or segment events if
// there is none. Streams counts the streams that events and segments name.
type Totals struct {
	Events, Allocations, OOMs, Streams, Segments int

	StartAllocated, StartActive int64
	EndAllocated, EndActive     int64 // of the final segments where known, else the series' last values
	PeakAllocated, PeakActive   int64
	// EndReserved is of the final segments where they are known, else the series' last value.
	StartReserved, EndReserved, PeakReserved      maybe.Int
	StartAllocatedRequested, StartActiveRequested maybe.Int
	EndAllocatedRequested, EndActiveRequested     maybe.Int
	PeakAllocatedRequested, PeakActiveRequested   maybe.Int
	// Unattributed is the part of StartAllocated that only the source's own total shows: no allocation of
	// Allocs holds it.
	Unattributed                         int64
	PeakAt, PeakActiveAt, PeakReservedAt Moment // Start where the start is the peak
	LawAllocated, LawActive, LawReserved int64  // start + sum - final: 0 where the law closes
	// LawAllocatedRequested and LawActiveRequested are the same in requested bytes, from the sizes that the
	// events themselves give.
	LawAllocatedRequested, LawActiveRequested int64

	FinalKnown            bool
	BeginsEmpty, Complete bool
	Exactness             Exactness
	Reason                string // why the exactness is what it is, one clause
	// RequestedExactness is the exactness of the figures in requested bytes, which need no rule about block
	// sizes.
	RequestedExactness Exactness
}

// PeakReservedOrAllocated returns the larger of the two peaks, by which devices are ordered when one peak is
// unknown.
func (t *Totals) PeakReservedOrAllocated() int64 {
	return max(t.PeakReserved.Or(t.PeakAllocated), t.PeakAllocated)
}

// Label names the device in a sentence: "cuda:0" style ordinals for accelerators, words for the rest.
func (d *Device) Label() string {
	switch d.Info.Kind {
	case traces.DeviceCPU:
		return "the CPU"
	case traces.DeviceHost:
		return "pinned host memory"
	case traces.DeviceArena:
		return "the arena"
	case traces.DeviceTPU:
		return fmt.Sprintf("TPU %d", d.Info.Ordinal)
	case traces.DeviceProgram:
		return "the program's device"
	}
	return fmt.Sprintf("GPU %d", d.Info.Ordinal)
}

// BlockName names the allocation for people, by its address: "block 0x7f5fa8000000". Blocks that have the
// address at different times share the name; [Device.UniqueName] tells them apart. A sum of several has no
// address.
func (d *Device) BlockName(a AllocID) string {
	if n := d.Allocs.Blocks(a); n > 1 {
		return "sum of " + Counted(n, "block")
	}
	return "block 0x" + strconv.FormatUint(d.Allocs.Addr[a], 16)
}

// UniqueName names the allocation for people, as [Device.BlockName] does. From the second allocation at
// an address on it has a number, which makes it unique: "block 0x7f5fa8000000 #2".
func (d *Device) UniqueName(a AllocID) string {
	label := d.BlockName(a)
	if n := d.Allocs.Version[a]; n > 0 {
		label += " #" + strconv.Itoa(int(n)+1)
	}
	return label
}

// Name returns the allocation's name as PyTorch's memory_viz prints it: b'<address in hex>_<version>.
func (d *Device) Name(a AllocID) string {
	return "b'" + strconv.FormatUint(d.Allocs.Addr[a], 16) + "_" + strconv.Itoa(int(d.Allocs.Version[a]))
}

// Blocks returns how many blocks allocation id stands for: 1 except in profiles that only have sums.
func (a *Allocs) Blocks(id AllocID) int {
	if a.Count == nil {
		return 1
	}
	return int(a.Count[id])
}
