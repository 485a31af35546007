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
// value in force at the column's left edge. MaxAt is a moment at which Max is reached (the one before First
// where the left edge has it).
type Column struct {
	Min, Max, Last int64
	First, End     Moment
	MaxAt          Moment
}

// Band is a piece of a column of the stacked timeline: bytes [Bottom, Top) belong to Alloc, or to Count
// allocations too small to be drawn apart, the largest of which is Alloc.
type Band struct {
	Bottom, Top int64
	Alloc       AllocID
	Count       int32
}

// By says what a breakdown groups by.
type By uint8

// The groupings.
const (
	// BySite groups by call site as a person reads it, see Site: the same code called from different places
	// is one row.
	BySite By = iota
	ByCategory
	// ByStack tells every two stacks apart, those that differ in frames below their site, too.
	ByStack
	ByModule
	BySize
	ByStream
	BySegment
	ByAge
	NumBy
)

// String returns the grouping's name on screen.
func (b By) String() string {
	return [...]string{"call site", "category", "stack", "module", "size", "stream", "segment", "age"}[min(b, ByAge)]
}

// Group is one row of a breakdown: allocated blocks that share a key.
type Group struct {
	Name      string
	Stack     traces.StackID // of ByStack; of BySite that of Largest; NoStack otherwise
	Category  Category       // of ByCategory
	Bytes     int64          // rounded: the groups of a moment add up to its allocated bytes
	Requested int64          // requested bytes
	Blocks    int
	Largest   AllocID
	Inferred  bool
}

// Node is a node of an icicle: bytes allocated below a prefix of stacks (outermost frame first) or of module
// paths.
type Node struct {
	Name     string
	Bytes    int64
	Blocks   int
	Largest  AllocID
	Children []*Node // descending bytes
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
	UnplacedBytes int64 // their requested bytes
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

// SortKey orders the rows of a search.
type SortKey uint8

// The orders.
const (
	SortStart SortKey = iota
	SortSize
	SortLifetime
	SortEnd
	SortCategory
	SortAddress
)

// Query selects allocations. Zero values select everything.
type Query struct {
	Text             string // found in a frame's function or file, the module, the category or the block's printed name; case-insensitive
	MinSize, MaxSize int64  // rounded bytes; MaxSize 0 is no limit
	MinLife, MaxLife int64  // nanoseconds; MaxLife 0 is no limit
	Categories       uint16 // bit set of Category; 0 is all
	Live             bool   // allocated at LiveAt
	LiveAt           Moment
	Stack            traces.StackID // when ByStack or BySite is set
	ByStack, BySite  bool           // only that stack, or every stack of its call site
	Leaked           bool           // never freed within the recording
	HasAddress       bool           // only what holds Address, at whatever time
	Address          uint64
	Sort             SortKey
	Descending       bool
}
