package timeline

import (
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Timeline is a frozen trace with its lifetimes and series, one Device for each of the trace's devices.
type Timeline struct {
	Trace   *traces.Trace
	Devices []*Device
	// Losses are what matching allocations with frees found missing or contradictory, beside Trace.Losses.
	Losses []traces.Loss

	stacks  stackFacts
	origins origins
	places  *traces.Trace
}

// Main returns the device that a view opens with: the accelerator of the highest peak, else the device of the highest peak, else
// nil.
func (t *Timeline) Main() *Device {
	var best *Device
	rank := func(d *Device) (gpu bool, peak int64) {
		return d.Info.Kind == traces.DeviceGPU, d.Totals.PeakReservedOrAllocated()
	}
	for _, d := range t.Devices {
		if best == nil {
			best = d
			continue
		}
		gpu, peak := rank(d)
		bestGPU, bestPeak := rank(best)
		if gpu && !bestGPU || gpu == bestGPU && peak > bestPeak {
			best = d
		}
	}
	return best
}

// Moment is a position in a device's order of events: the state just after event Moment, counted from 0 within the device.
type Moment int32

const (
	// Start is the state before the device's first event.
	Start Moment = -1
	// Never is the end of what does not end within the recording.
	Never Moment = 1<<31 - 1
)

// AllocID indexes a device's Allocs.
type AllocID int32

// NoAlloc is the absence of an allocation.
const NoAlloc AllocID = -1

// Allocs holds the lifetimes of one device as columns, ordered by Start; those alive before the recording come first, earliest
// freed last (so that, stacked in this order, what goes first lies on top). An allocation is allocated during [Start, Requested)
// and active during [Start, End).
type Allocs struct {
	Start     []Moment // its alloc event; Start where it was alive before the recording
	Requested []Moment // its free_requested event, Never while allocated at the end
	End       []Moment // its free_completed event, Never while active at the end
	Addr      []uint64
	Size      []int64 // requested bytes
	Rounded   []int64 // bytes that the allocator gave; inferred by its rounding rule where the trace does not say
	Stack     []traces.StackID
	Stream    []traces.StreamID
	Version   []int32 // how many allocations the address had before: PyTorch's memory_viz prints b'<addr>_<version>
	Category  []Category
	// Inferred says of each allocation that its category was inferred, not recorded.
	Inferred []bool
	// Count is how many blocks of one site each row stands for, in profiles that only have sums; nil where each is one block.
	Count []int32

	maxRequested, maxEnd [][]Moment // levels of detail over Requested and End, see LiveAt
}

// Len returns the number of allocations.
func (a *Allocs) Len() int { return len(a.Start) }

// Category is a torch.profiler memory category.
type Category uint8

// The categories, in torch.profiler's order of colours.
const (
	Unknown Category = iota
	Parameter
	OptimizerState
	Gradient
	Activation
	Input
	Temporary
	AutogradDetail
	NumCategories
)

var categoryNames = [NumCategories]string{
	"unknown", "parameter", "optimizer_state", "gradient", "activation", "input", "temporary", "autograd_detail",
}

// String returns torch.profiler's name of the category, in lower case.
func (c Category) String() string { return categoryNames[min(c, NumCategories-1)] }

// ParseCategory returns the category of a name, in any case, and false where there is none.
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

	// Allocated and Active count requested bytes, Reserved rounded bytes, each after every event.
	Allocated, Active, Reserved *Series

	Totals Totals

	tl    *Timeline
	first int // row of the device's first event in Trace.Events
	n     int // number of events
	lazy  lazy

	time    []int64   // of each event, never falling
	allocOf []AllocID // the allocation of each event
	// roundChecked are the blocks of the final state on which the rounding rule was checked, roundWrong those that it misses.
	roundChecked, roundWrong int
	// closings are the allocations that end at an event which is another's, in order.
	closings []ending

	analysis lazyAnalysis
}

// Timeline returns the timeline that the device belongs to.
func (d *Device) Timeline() *Timeline { return d.tl }

// Len returns the number of the device's events.
func (d *Device) Len() int { return d.n }

// Totals are the figures of architecture's definitions. Requested and rounded bytes stand beside each other; -1 is unknown. Allocations
// counts alloc events, Segments the final state's (segment events where there is none), Streams those of events and segments. A
// rounded peak is the highest of the rounded bytes, which may be at another moment than the requested peak.
type Totals struct {
	Events, Allocations, OOMs, Streams, Segments int

	StartAllocated, StartActive, StartReserved int64 // requested, requested, rounded
	EndAllocated, EndActive, EndReserved       int64 // the final segments' own (rounded) figures where known, else the series' last
	EndAllocatedRequested, EndActiveRequested  int64 // the series' last value
	PeakAllocated, PeakActive, PeakReserved    int64 // requested, requested, rounded
	PeakAllocatedRounded, PeakActiveRounded    int64
	StartAllocatedRounded, StartActiveRounded  int64
	// Unattributed is the part of StartAllocated that only the source's own total shows: no allocation of Allocs holds it.
	Unattributed                         int64
	PeakAt, PeakActiveAt, PeakReservedAt Moment // Start where the start is the peak
	LawAllocated, LawActive, LawReserved int64  // start + sum - final: 0 where the law closes
	FinalKnown                           bool
	BeginsEmpty, Complete                bool
	Exactness                            Exactness
	Reason                               string // why the exactness is what it is, one clause
}

// PeakReservedOrAllocated returns the larger of the two peaks: what orders devices where one of them is unknown.
func (t *Totals) PeakReservedOrAllocated() int64 { return max(t.PeakReserved, t.PeakAllocated) }
