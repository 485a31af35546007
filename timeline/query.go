package timeline

import "github.com/gmemtop/gmemtop/traces"

// Axis says what a Window counts along x.
type Axis uint8

// The axes.
const (
	// AxisTime counts nanoseconds of the trace's clock.
	AxisTime Axis = iota
	// AxisEvents counts the device's events.
	AxisEvents
)

// Window is a half-open stretch [From, To) of an axis.
type Window struct {
	Axis     Axis
	From, To int64
}

// Column is what a chart draws in one column: the extremes of a series over the events [First, End) and the
// value at the column's left edge. MaxAt is a moment at which Max is reached (the one before First if the
// left edge has the maximum).
type Column struct {
	Min, Max, Last int64
	First, End     Moment
	MaxAt          Moment
}

// Band is a piece of a column of the stacked timeline: bytes [Bottom, Top) belong to Alloc, or to Count
// allocations too small to draw separately, of which Alloc is the largest.
type Band struct {
	Bottom, Top int64
	Alloc       AllocID
	Count       int32
}

// AllocatorState is the allocator's segments at one moment. The parts of reserved obey ActiveRequested +
// Internal + Stranded + Cached = Reserved where Known.
type AllocatorState struct {
	At        Moment
	Known     bool // false where the trace has no segments at all
	Exactness Exactness
	Reason    string
	Segments  []SegmentState // by address

	ActiveRequested int64 // requested bytes of active blocks, pending frees included
	Internal        int64 // rounded minus requested of active blocks
	Stranded        int64 // inactive bytes in segments that hold an active block
	Cached          int64 // bytes of segments that are wholly inactive
	PendingFree     int64 // rounded bytes of pending frees (part of active)
	LargestFree     int64 // the largest hole
	Reserved        int64

	Unplaced      int   // active blocks that lie in no known segment; no sum counts them
	UnplacedBytes int64 // their rounded bytes
}

// SegmentState is one segment, or one mapped run of an expandable one, at a moment; its pieces tile it in
// address order.
type SegmentState struct {
	Addr       uint64
	Size       int64
	Active     int64 // rounded bytes
	Stream     traces.StreamID
	Pool       traces.Pool
	Small      bool
	Expandable bool
	Stack      traces.StackID
	Pieces     []Piece
}

// Piece is a block or a hole of a segment.
type Piece struct {
	Addr  uint64
	Size  int64
	Alloc AllocID // NoAlloc for a hole, and for a block that no lifetime explains
	State traces.BlockState
}
