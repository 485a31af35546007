package allocator

import (
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/traces"
)

// Stream numbers a CUDA stream; 0 is the default stream. Sets of blocks are ordered by stream first, as
// PyTorch orders them by the stream's handle, so numbers should follow the order of handles if that is known.
type Stream = int32

// Block is memory handed out: Size bytes (rounded by the policy) at Addr. It is a value; the zero Block is
// none.
type Block struct {
	Addr      uint64
	Size      int64 // bytes given, at least Requested
	Requested int64 // bytes asked for
	Stream    Stream

	ref        ref
	generation uint32
	small      bool // from GMLake's caching allocator
}

// Allocator is an emulated online allocator. Sizes are bytes. After ErrOutOfMemory the allocator remains
// usable, and whatever it released on the way stays released; any other error is the driver's, or says that a
// call was wrong.
type Allocator interface {
	// Malloc hands out a block of at least size bytes for work on stream.
	Malloc(size int64, stream Stream) (Block, error)
	// Free takes a block back. If RecordStream noted other streams, the block stays active until their events
	// are done.
	Free(b Block) error
	// RecordStream notes that a block is used by work on stream other than its own
	// (torch.Tensor.record_stream).
	RecordStream(b Block, stream Stream) error
	// ProcessEvents takes back the freed blocks whose events are done. Malloc does so first, too.
	ProcessEvents()
	// EmptyCache waits for outstanding events and returns all wholly unused memory to the driver
	// (torch.cuda.empty_cache).
	EmptyCache() error
	// Stats returns the figures so far.
	Stats() Stats
	// Segments returns the segments held from the driver with their blocks, by address; for inspection, not
	// for inner loops.
	Segments() []Segment
}

// Stats are an allocator's figures. Allocated, Active and Reserved have PyTorch's meanings: allocated falls
// when a block is freed, active when it can be used again, reserved is what the driver gave.
type Stats struct {
	Requested, Allocated, Active, Reserved                 int64
	PeakRequested, PeakAllocated, PeakActive, PeakReserved int64

	// Mallocs and Frees count the user's calls that succeeded, OOMs the requests that failed.
	Mallocs, Frees, OOMs int64
	// DriverMallocs and DriverFrees count whole segments obtained from and returned to the driver.
	DriverMallocs, DriverFrees int64
	// Maps and Unmaps count mappings made and removed, one for each physical handle.
	Maps, Unmaps int64
	// Retries counts requests that were retried after emptying the cache (num_alloc_retries).
	Retries int64
	// Synchronisations counts waits for the device: one for each driver Free, for each run unmapped, and for
	// each wait for all events.
	Synchronisations int64
	// Stitches counts blocks stitched of others (GMLake).
	Stitches int64
}

func (s *Stats) gave(requested, size int64) {
	s.Mallocs++
	s.Requested += requested
	s.Allocated += size
	s.Active += size
	s.PeakRequested = max(s.PeakRequested, s.Requested)
	s.PeakAllocated = max(s.PeakAllocated, s.Allocated)
	s.PeakActive = max(s.PeakActive, s.Active)
}

func (s *Stats) reserve(bytes int64) {
	s.Reserved += bytes
	s.PeakReserved = max(s.PeakReserved, s.Reserved)
}

// SegmentAction is what happens to a segment, in PyTorch's words.
type SegmentAction uint8

// The segment actions.
const (
	SegmentAlloc SegmentAction = iota // memory obtained as a whole
	SegmentFree                       // memory given back as a whole
	SegmentMap                        // a run of reserved addresses backed by memory
	SegmentUnmap                      // a run of reserved addresses no longer backed
)

// String returns PyTorch's name of the action.
func (a SegmentAction) String() string {
	return [...]string{"segment_alloc", "segment_free", "segment_map", "segment_unmap"}[a]
}

// SegmentEvent is one change to the memory held from the driver.
type SegmentEvent struct {
	Action SegmentAction
	Addr   uint64
	Size   int64
	Stream Stream
	Pool   traces.Pool
	Small  bool // of the pool of small blocks
}

// BlockState is the state of a block within a segment.
type BlockState uint8

// The states of a block.
const (
	Inactive    BlockState = iota // free to be handed out
	Allocated                     // in the user's hands
	PendingFree                   // freed by the user, still in use on another stream
)

// String returns PyTorch's name of the state.
func (s BlockState) String() string {
	return [...]string{"inactive", "active_allocated", "active_pending_free"}[s]
}

// Segment is a run of memory held from the driver; its blocks tile it in address order.
type Segment struct {
	Addr       uint64
	Size       int64
	Stream     Stream
	Pool       traces.Pool
	Small      bool
	Expandable bool
	// Base is the beginning of the range of addresses that holds this run of an expandable segment, 0 if
	// unknown.
	Base   uint64
	Blocks []SegmentBlock
}

// SegmentBlock is a block or a hole of a segment.
type SegmentBlock struct {
	Addr      uint64
	Size      int64
	Requested int64
	State     BlockState
}

// Config configures an allocator. Driver is required; the rest may be zero.
type Config struct {
	Driver Driver
	// Events tells when work on other streams is done; with nil it is done as soon as it is recorded.
	Events Events
	// OnSegment is called with every segment event, in order, before the call that caused it returns.
	OnSegment func(SegmentEvent)
	// Settings are the caching allocator's. The zero Settings are PyTorch's defaults.
	Settings Settings
	// Cap is the most bytes that the caching allocator may hold, 0 for the driver's own limit
	// (torch.cuda.set_per_process_memory_fraction).
	Cap int64
	// ArenaSize is the size of the arena; 0 lets it grow.
	ArenaSize int64
	// StitchFrom is the smallest block that GMLake stitches, 0 for its chunk of 2 MiB.
	StitchFrom int64
	// StitchedBytes is how many bytes of stitched addresses GMLake keeps before it forgets the least recently
	// used, 0 for no limit.
	StitchedBytes int64
}

func (c *Config) fill() error {
	if c.Driver == nil {
		return errors.New("allocator: no driver: set Config.Driver, for instance to NewDriver(capacity)")
	}
	if c.Events == nil {
		c.Events = instantly{}
	}
	return nil
}

func (c *Config) emit(e SegmentEvent) {
	if c.OnSegment != nil {
		c.OnSegment(e)
	}
}

// ErrOutOfMemory is wrapped by the errors of requests that the driver, or the cap, could not satisfy.
var ErrOutOfMemory = errors.New("out of memory")

// errBlock is wrapped by the errors of calls with a block that is not in use: never allocated, or already
// freed.
var errBlock = errors.New("not a block in use")

// maxRequest bounds a request so that no rounding can overflow; no device has as much.
const maxRequest = 1 << 50

func checkSize(size int64) error {
	if size < 0 {
		return fmt.Errorf("allocator: a request of %d bytes: sizes are never negative", size)
	}
	if size > maxRequest {
		return fmt.Errorf("allocator: a request of %d bytes: %w", size, ErrOutOfMemory)
	}
	return nil
}
