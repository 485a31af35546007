package autopsy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// driverBytes returns what the allocator requests from the driver in order to serve a request.
func driverBytes(asked int64) int64 {
	size, _ := torchalloc.Segment(asked, torchalloc.LargeBuffer)
	return size
}

// facts are the figures of one moment on which causes and levers are based, in bytes. Holes are those that
// the failed request could use (its stream, pool and size class); if no request failed, those of the default
// pool.
type facts struct {
	units        timeline.Units
	known        bool
	oom          bool
	full         bool  // it looks like after an out-of-memory
	asked        int64 // 0 where no request failed
	driverFree   maybe.Int
	reserved     int64
	capacity     int64 // 0 unknown
	largestHole  int64
	stranded     int64 // holes beside active blocks
	cached       int64 // wholly inactive segments
	otherPools   int64 // inactive bytes in private pools that the request cannot use
	defaultPool  int64 // inactive bytes in the default pool, if the request was for a private pool
	defaultIdle  int64 // of these, wholly inactive segments
	poolKnown    bool  // the recording says which pool the request was for
	guessedPool  bool  // it does not, and a hole shows that it was for a private one
	otherStreams int64 // inactive bytes of the same pool held for other streams
	otherClass   int64 // inactive bytes of the other size class
	pending      int64
	internal     int64
	unmappable   int64 // whole pages inside the holes that expandable segments could release
	expandable   bool
}

// factsOf sorts the state's inactive bytes by who could use them: a hole serves only requests of its own
// stream, private pool and size class.
func factsOf(d *timeline.Device, a *Result, u timeline.Units) *facts {
	f := &facts{units: u, oom: a.OOM, full: a.Inferred, asked: a.Asked.Or(0), driverFree: a.Free,
		capacity: d.Info.TotalBytes}
	s := a.State
	if s == nil || !s.Known {
		return f
	}
	f.known, f.reserved, f.pending, f.internal = true, s.Reserved, s.PendingFree, s.Internal
	var pool traces.Pool
	stream, small, anyStream := traces.StreamID(0), false, true
	if a.OOM {
		e := d.Event(a.At)
		stream, anyStream = e.Stream, false
		small = f.asked <= torchalloc.SmallSize
		first, _ := d.Timeline().Trace.DeviceEvents(d.ID)
		det := d.Timeline().Trace.DetailOf(first + int(a.At))
		if det.HasPool {
			pool, f.poolKnown = det.Pool, true
		}
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		f.expandable = f.expandable || g.Expandable
		idle := g.Size - g.Active
		switch {
		case g.Pool != pool && g.Pool == traces.Pool{}:
			f.defaultPool += idle
			if g.Active == 0 {
				f.defaultIdle += g.Size
			}
		case g.Pool != pool:
			f.otherPools += idle
		case !anyStream && g.Stream != stream:
			f.otherStreams += idle
		case a.OOM && g.Small != small:
			f.otherClass += idle
		default:
			f.addHoles(g)
		}
	}
	private := func(g timeline.SegmentState) bool { return g.Pool != traces.Pool{} }
	f.guessedPool = !f.poolKnown && f.served() && slices.ContainsFunc(s.Segments, private)
	if f.guessedPool {
		f.defaultPool, f.defaultIdle = f.stranded+f.cached, f.cached
		f.stranded, f.cached, f.largestHole, f.unmappable = 0, 0, 0, 0
	}
	return f
}

// served reports whether a hole that the request could use would have served it, as far as the recording
// shows. PyTorch takes such a hole, so something that is not recorded was different: most likely the pool
// that the request was for, which PyTorch did not always record.
func (f *facts) served() bool { return f.oom && f.largestHole >= torchalloc.Rounded(f.asked) }

// addHoles counts the holes of a usable segment.
func (f *facts) addHoles(g *timeline.SegmentState) {
	if g.Active == 0 {
		f.cached += g.Size
	} else {
		f.stranded += g.Size - g.Active
	}
	page := uint64(torchalloc.LargeBuffer)
	if g.Small {
		page = torchalloc.SmallBuffer
	}
	for _, p := range g.Pieces {
		if p.State != traces.BlockInactive {
			continue
		}
		f.largestHole = max(f.largestHole, p.Size)
		from := (p.Addr - g.Addr + page - 1) / page
		to := (p.Addr - g.Addr + uint64(p.Size)) / page
		if to > from {
			f.unmappable += int64((to - from) * page)
		}
	}
}

// free returns the bytes that are not in use and could serve the request if they were contiguous: the
// driver's and the usable holes.
func (f *facts) free() int64 { return f.driverFree.Or(0) + f.stranded + f.cached }

// largestPiece returns the largest contiguous piece: a hole, or what the driver still has.
func (f *facts) largestPiece() int64 { return max(f.driverFree.Or(0), f.largestHole) }

// liesTogether reports whether some contiguous free memory serves the request: a hole, or what the driver has
// for the segment that it takes.
func (f *facts) liesTogether() bool {
	return f.largestHole >= f.asked || f.driverFree.Or(0) >= driverBytes(f.asked)
}

// short returns how many bytes a request would still lack if everything free were contiguous; negative if it
// would fit.
func (f *facts) short() int64 { return f.asked - f.free() }

// causeWords name a cause at the end of a sentence.
var causeWords = map[string]string{
	"capacity":        "the device is full",
	"too_large":       "the training needs more than the device has, and no fault was found",
	"limit":           "a limit below what the device has",
	"fragmentation":   "fragmentation",
	"stranded_pool":   "the free memory is in other pools or belongs to other streams",
	"pending_frees":   "freed blocks wait for another stream",
	"outside_pytorch": "memory outside of PyTorch",
	"rounding":        "rounding",
	"unknown":         "no known cause",
	"other_process":   "something else uses most of the GPU",
}

// causes lists what the figures show, the main ones first.
func (f *facts) causes() []Cause {
	if !f.known && !f.oom && !f.full { // nothing failed, and nothing shows how memory was laid out
		return nil
	}
	if !f.known {
		return []Cause{{Kind: "capacity",
			Text: "the trace has no segments: record with torch.cuda.memory._record_memory_history() to " +
				"see the allocator's state"}}
	}
	var all []Cause
	add := func(c Cause, ok bool) {
		if ok {
			all = append(all, c)
		}
	}
	add(f.capacityCause())
	add(f.fragmentationCause())
	add(f.poolCause())
	add(f.pendingCause())
	add(f.outsideCause())
	add(f.roundingCause())
	sortCauses(all)
	return all
}

// sortCauses puts main causes first and keeps the order otherwise.
func sortCauses(all []Cause) {
	at := 0
	for i := range all {
		if all[i].Main {
			c := all[i]
			copy(all[at+1:i+1], all[at:i])
			all[at] = c
			at++
		}
	}
}

// enough reports whether extra free bytes, all in one place, would have served the request; false without a
// failed request.
func (f *facts) enough(extra int64) bool { return f.oom && f.short() <= extra }

func (f *facts) capacityCause() (Cause, bool) {
	if f.full {
		idle := f.stranded + f.cached + f.otherPools + f.otherStreams
		return Cause{Kind: "capacity", Main: true, Text: fmt.Sprintf(
			"only %s of the reserved memory is idle, so neither fragmentation nor the cache is the cause; "+
				"the trace does not show the request, nor what the driver had left",
			f.units.Bytes(idle))}, true
	}
	if !f.oom {
		return Cause{}, false
	}
	if free, ok := f.driverFree.Value(); ok && free >= driverBytes(f.asked) {
		return Cause{Kind: "limit", Main: true, Text: fmt.Sprintf(
			"the driver still had %s free, more than the request needs: a limit set by "+
				"set_per_process_memory_fraction, or memory that "+
				"another process held at that instant",
			f.units.Bytes(free))}, true
	}
	short := f.short()
	if short <= 0 {
		return Cause{}, false
	}
	others := f.otherPools + f.defaultPool + f.otherStreams + f.otherClass + f.pending
	return Cause{Kind: "capacity", Bytes: maybe.Known(short), Main: short > others, Text: fmt.Sprintf(
		"all free memory together is %s short of the request: tensors that were alive need to shrink",
		f.units.Bytes(short))}, true
}

// idleShare is the share of reserved bytes that must be idle for fragmentation to be the cause: an allocator
// that is nearly full has holes, too.
const idleShare = 0.10

// raiseLimit is the name of the lever that lets PyTorch use what the GPU has.
const raiseLimit = "raise_limit"

// isLimit reports whether a cause is the main one and says that the GPU had enough for the request.
func isLimit(x Cause) bool { return x.Main && x.Kind == "limit" }

// limitSentence is the answer if the GPU had enough for the request.
func (f *facts) limitSentence() string {
	return fmt.Sprintf("The GPU still has %s free, but a limit keeps PyTorch from using it. Raise the limit "+
		"or drop it (torch.cuda.set_per_process_memory_fraction); if the program sets none, another process "+
		"had that memory for a moment.", f.units.Bytes(f.driverFree.Or(0)))
}

func (f *facts) fragmentationCause() (Cause, bool) {
	holes := f.stranded + f.cached
	if f.oom {
		main := f.short() <= 0 && !f.liesTogether() &&
			float64(holes) >= idleShare*float64(f.reserved)
		if holes == 0 || !main && holes*100 < f.reserved {
			return Cause{}, false
		}
		return Cause{Kind: "fragmentation", Bytes: maybe.Known(holes), Main: main, Text: fmt.Sprintf(
			"%s sits idle in holes of segments that the request could use; the largest is %s",
			f.units.Bytes(holes), f.units.Bytes(f.largestHole))}, true
	}
	if f.stranded*50 < f.reserved || f.stranded == 0 {
		return Cause{}, false
	}
	return Cause{Kind: "fragmentation", Bytes: maybe.Known(f.stranded), Text: fmt.Sprintf(
		"%s sits idle in segments that still hold live blocks; the largest hole is %s",
		f.units.Bytes(f.stranded), f.units.Bytes(f.largestHole))}, true
}

func (f *facts) poolCause() (Cause, bool) {
	n := f.otherPools + f.defaultPool + f.otherStreams
	if n == 0 || n*100 < f.reserved {
		return Cause{}, false
	}
	var places []string
	idle := func(bytes int64, where string) {
		if bytes > 0 {
			places = append(places, f.units.Bytes(bytes)+where)
		}
	}
	idle(f.defaultPool, " sits idle in the default pool, which a request for a private pool (CUDA graphs, "+
		"user pools) cannot use")
	idle(f.otherPools, " sits idle in private pools (CUDA graphs, user pools), which nothing else can use")
	if len(places) == 0 {
		idle(f.otherStreams, " sits idle in segments of other streams")
	} else {
		idle(f.otherStreams, " in segments of other streams")
	}
	c := Cause{Kind: "stranded_pool", Bytes: maybe.Known(n), Main: f.outOfReach(n),
		Text: strings.Join(places, ", and ")}
	if f.guessedPool {
		c.sure(Likely, "the recording does not say which pool the request was for; a hole of the default "+
			"pool would have served it")
	}
	return c, true
}

// outOfReach reports whether the request failed because idle bytes are where it cannot use them: they would
// have served it, they are a real share of what is reserved, and nothing else that is free is contiguous or
// as much.
func (f *facts) outOfReach(n int64) bool {
	return f.oom && f.asked <= f.free()+n && !f.liesTogether() && n >= f.asked &&
		float64(n) >= idleShare*float64(f.reserved) && (f.short() > 0 || n > f.stranded+f.cached)
}

func (f *facts) pendingCause() (Cause, bool) {
	if f.pending == 0 || f.pending*100 < f.reserved && !f.enough(f.pending) {
		return Cause{}, false
	}
	return Cause{Kind: "pending_frees", Bytes: maybe.Known(f.pending),
		Main: f.short() > 0 && f.enough(f.pending),
		Text: fmt.Sprintf(
			"%s is freed but waits for another stream (record_stream)", f.units.Bytes(f.pending))}, true
}

func (f *facts) outsideCause() (Cause, bool) {
	free, ok := f.driverFree.Value()
	if f.capacity == 0 || !ok {
		return Cause{Kind: "outside_pytorch",
				Text: "the trace does not show what other processes, NCCL and the CUDA context hold; " +
					"nvidia-smi does, while the job runs"},
			f.oom || f.full
	}
	n := f.capacity - f.reserved - free
	if n <= 0 {
		return Cause{}, false
	}
	return Cause{Kind: "outside_pytorch", Bytes: maybe.Known(n),
		Main: f.short() > 0 && f.enough(n) && n*10 > f.capacity,
		Text: fmt.Sprintf(
			"%s of the device's %s is neither reserved by this process nor free: CUDA context, NCCL, "+
				"other processes",
			f.units.Bytes(n), f.units.Bytes(f.capacity))}, true
}

func (f *facts) roundingCause() (Cause, bool) {
	if f.internal == 0 || f.internal*100 < f.reserved {
		return Cause{}, false
	}
	return Cause{Kind: "rounding", Bytes: maybe.Known(f.internal),
			Main: f.short() > 0 && f.enough(f.internal) &&
				float64(f.internal) >= idleShare*float64(f.reserved),
			Text: fmt.Sprintf(
				"rounding block sizes up takes %s",
				f.units.Bytes(f.internal))},
		true
}
