package traces

import (
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Action says what happened at an event. The names are PyTorch's (c10/core/CachingDeviceAllocator.h, struct
// TraceEntry). The values are those of the native file and never change meaning.
type Action uint8

// The actions of memory events.
const (
	// ActionUnknown is an action that this version does not know; its name is kept in the event's Detail.
	ActionUnknown Action = iota
	// Alloc hands out a block; Size is the requested size, or the block's if the source records only that.
	Alloc
	// FreeRequested is the user's free; the block may still be in use on another stream.
	FreeRequested
	// FreeCompleted is the block's return to its pool.
	FreeCompleted
	// Free is a free whose request and completion the source does not distinguish.
	Free
	// SegmentAlloc is a segment obtained from the driver; Size is its rounded size.
	SegmentAlloc
	// SegmentFree is a segment returned to the driver.
	SegmentFree
	// SegmentMap is a run of an expandable segment being mapped; Addr is the run's start.
	SegmentMap
	// SegmentUnmap is a run of an expandable segment being unmapped.
	SegmentUnmap
	// OOM is an allocation that failed after the allocator's retries; Size is the request, rounded, and Addr
	// holds the bytes that the driver still had free (PyTorch's device_free), see [Event.DeviceFree].
	OOM
	// Snapshot marks the moment at which a snapshot was taken.
	Snapshot
	// Annotate is a later note on a live block; its text is in the event's Detail.
	Annotate
	actionCount
)

var actionNames = [actionCount]string{
	"unknown", "alloc", "free_requested", "free_completed", "free", "segment_alloc", "segment_free",
	"segment_map", "segment_unmap", "oom", "snapshot", "annotate",
}

// String returns PyTorch's name of the action.
func (a Action) String() string {
	if a < actionCount {
		return actionNames[a]
	}
	return fmt.Sprintf("action(%d)", uint8(a))
}

// ParseAction returns the action of PyTorch's name s, and ActionUnknown for any other.
func ParseAction(s string) Action {
	for a := Alloc; a < actionCount; a++ {
		if actionNames[a] == s {
			return a
		}
	}
	return ActionUnknown
}

// IsFreeRequest reports whether allocated bytes fall at the action.
func (a Action) IsFreeRequest() bool { return a == FreeRequested || a == Free }

// IsFreeCompletion reports whether active bytes fall at the action.
func (a Action) IsFreeCompletion() bool { return a == FreeCompleted || a == Free }

// IDs are indices into the tables of a [Trace].
type (
	// StringID indexes [Trace.Strings]; 0 is the empty string.
	StringID int32
	// FrameID indexes [Trace.Frames].
	FrameID int32
	// StackID indexes the stacks of a Trace; [NoStack] is the absence of one.
	StackID int32
	// StreamID indexes [Trace.Streams].
	StreamID uint16
	// DeviceID indexes [Trace.Devices].
	DeviceID uint8
	// DetailID indexes [Trace.Details]; 0 is the empty detail, which most events have.
	DetailID int32
	// OpID indexes [Trace.Ops]; [NoOp] is the absence of one.
	OpID int32
)

// Absent ids.
const (
	// NoStack is the stack of an event recorded without one.
	NoStack StackID = -1
	// NoOp is the op of an access whose op is unknown.
	NoOp OpID = -1
)

// Event is one memory event as a row. Times are nanoseconds since the trace's [Clock] epoch, sizes are bytes.
type Event struct {
	Time   int64
	Addr   uint64
	Size   int64
	Stack  StackID
	Detail DetailID
	Stream StreamID
	Device DeviceID
	Action Action
}

// DeviceFree returns the bytes that the driver had free when an OOM event happened, unknown if the source
// does not say. It means nothing for other actions.
func (e Event) DeviceFree() maybe.Int { return maybe.NonNegative(int64(e.Addr)) }

// UnknownFree is the address of an OOM event whose DeviceFree is unknown.
const UnknownFree = math.MaxUint64

// Events holds memory events as parallel columns, one row an event. Rows of one device are contiguous and in
// the order in which they happened. Detail is nil if every event has the empty detail.
type Events struct {
	Time   []int64
	Addr   []uint64
	Size   []int64
	Stack  []StackID
	Detail []DetailID
	Stream []StreamID
	Device []DeviceID
	Action []Action
}

// Len returns the number of events.
func (e *Events) Len() int { return len(e.Time) }

// At returns event i as a row.
func (e *Events) At(i int) Event {
	ev := Event{
		Time: e.Time[i], Addr: e.Addr[i], Size: e.Size[i], Stack: e.Stack[i],
		Stream: e.Stream[i], Device: e.Device[i], Action: e.Action[i],
	}
	if e.Detail != nil {
		ev.Detail = e.Detail[i]
	}
	return ev
}

// Grow makes room for n more events, so that appending them does not copy.
func (e *Events) Grow(n int) {
	grow(&e.Time, n)
	grow(&e.Addr, n)
	grow(&e.Size, n)
	grow(&e.Stack, n)
	if e.Detail != nil {
		grow(&e.Detail, n)
	}
	grow(&e.Stream, n)
	grow(&e.Device, n)
	grow(&e.Action, n)
}

func grow[T any](s *[]T, n int) {
	if cap(*s)-len(*s) < n {
		t := make([]T, len(*s), len(*s)+n)
		copy(t, *s)
		*s = t
	}
}

// Append adds an event as the last row. The first event with a detail creates the detail column.
func (e *Events) Append(ev Event) {
	if e.Detail == nil && ev.Detail != 0 {
		e.Detail = make([]DetailID, len(e.Time), cap(e.Time))
	}
	e.Time = append(e.Time, ev.Time)
	e.Addr = append(e.Addr, ev.Addr)
	e.Size = append(e.Size, ev.Size)
	e.Stack = append(e.Stack, ev.Stack)
	if e.Detail != nil {
		e.Detail = append(e.Detail, ev.Detail)
	}
	e.Stream = append(e.Stream, ev.Stream)
	e.Device = append(e.Device, ev.Device)
	e.Action = append(e.Action, ev.Action)
}

// Pool names a private memory pool: First is set by graph capture, Second by a user's pool handle; {0, 0} is
// the default pool.
type Pool struct{ First, Second int64 }

// Detail holds what only few events have. It is interned: events with equal details share one.
type Detail struct {
	// Action is the source's own name of an action that is unknown to this version.
	Action StringID
	// CompileContext is torch.compile's region, UserMetadata the user's note (for a storage problem: the
	// buffer's name).
	CompileContext, UserMetadata StringID
	// Category is the name of a torch.profiler category, if the source gives one.
	Category StringID
	// Op is the name of the op that was running.
	Op StringID
	// Pool is valid only if HasPool is set.
	Pool    Pool
	HasPool bool
	// ForwardStack is the stack of the forward op whose backward op caused the event, NoStack if unknown.
	ForwardStack StackID
	// Extra is a JSON object of the source's keys that this version does not know, "" for none.
	Extra StringID
}
