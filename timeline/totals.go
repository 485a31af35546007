package timeline

import (
	"fmt"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// finalSums are the figures of a device in the trace's final state, summed over blocks and from the segments'
// own fields.
type finalSums struct {
	segments                            int
	reserved                            int64
	allocated, active                   int64 // rounded, by block
	allocatedRequested, activeRequested int64
	ownAllocated, ownActive             int64 // the segments' own
}

func sumFinal(state *traces.State, device traces.DeviceID) finalSums {
	var f finalSums
	for i := range state.Segments {
		seg := &state.Segments[i]
		if seg.Device != device {
			continue
		}
		f.segments++
		f.reserved += seg.TotalSize
		f.ownAllocated += seg.AllocatedSize
		f.ownActive += seg.ActiveSize
		for _, b := range state.Blocks[seg.FirstBlock:seg.EndBlock] {
			requested := b.Requested.Or(b.Size)
			if b.State == traces.BlockAllocated {
				f.allocated += b.Size
				f.allocatedRequested += requested
			}
			if b.State != traces.BlockInactive {
				f.active += b.Size
				f.activeRequested += requested
			}
		}
	}
	return f
}

// finalKnown reports whether the trace's final state covers the device: a GPU without segments is empty;
// another device without them was not recorded.
func (b *deviceBuilder) finalKnown(f *finalSums) bool {
	return b.tr.Final.Known && (f.segments > 0 || b.d.Info.Kind == traces.DeviceGPU)
}

// unattributed raises the start to the source's own counter if the final state is unknown and the counter
// shows more than the frees without an allocation do: bytes of allocations that the recording does not show
// otherwise.
func (b *deviceBuilder) unattributed() {
	t, f := &b.d.Totals, sumFinal(&b.tr.Final, b.d.ID)
	if b.finalKnown(&f) {
		return
	}
	c := b.counter(traces.CounterAllocated)
	if c == nil {
		return
	}
	b.counted = true
	start := c.Value[0] - b.deltaUpTo(c, 0) // a source's total is in the unit of its events' sizes
	rest := start - b.sums.allocatedRequested
	if rest < 0 {
		b.lose("counter_contradicts", traces.Fault, 1,
			"the source's own total is below the sum of blocks freed without an allocation; the sum is shown")
		return
	}
	t.Unattributed = rest
	t.StartAllocated += rest
	t.StartActive += rest
	b.sums.allocatedRequested += rest
	b.sums.activeRequested += rest
}

// counter returns the device's counter with a name, nil if it has no sample.
func (b *deviceBuilder) counter(name string) *traces.Counter {
	for i := range b.tr.Counters {
		c := &b.tr.Counters[i]
		if c.Device == b.d.ID && b.tr.Text(c.Name) == name && len(c.Value) > 0 {
			return c
		}
	}
	return nil
}

// momentOf returns the moment of sample i of a counter: its event, or else the last event at or before its
// time.
func (b *deviceBuilder) momentOf(c *traces.Counter, i int) Moment {
	if i < len(c.Event) {
		return Moment(int(c.Event[i]) - b.d.first)
	}
	return b.d.MomentAt(c.Time[i])
}

// deltaUpTo returns how much the device's events up to sample i have added to allocated bytes.
func (b *deviceBuilder) deltaUpTo(c *traces.Counter, i int) int64 {
	ev, sum := &b.tr.Events, int64(0)
	for at := Moment(0); at <= b.momentOf(c, i) && int(at) < b.d.n; at++ {
		row := b.d.first + int(at)
		switch a := ev.Action[row]; {
		case a == traces.Alloc:
			sum += ev.Size[row]
		case a.IsFreeRequest():
			sum -= ev.Size[row]
		}
	}
	return sum
}

// counterDiffers returns how many samples of the source's own total differ from the sum of lifetimes at their
// events.
func (b *deviceBuilder) counterDiffers() int64 {
	c, n := b.counter(traces.CounterAllocated), int64(0)
	if !b.counted || c == nil {
		return 0
	}
	total := b.d.RequestedSeries() // in the unit of the events' sizes
	for i := range c.Event {
		if total.At(b.momentOf(c, i)) != c.Value[i] {
			n++
		}
	}
	return n
}

// finishTotals computes the reserved series and the parts of Totals that the walks did not.
func (b *deviceBuilder) finishTotals() {
	d, t := b.d, &b.d.Totals
	f := sumFinal(&b.tr.Final, d.ID)
	t.FinalKnown = b.finalKnown(&f)
	t.Events, t.Allocations, t.OOMs = d.n, b.m.actions[traces.Alloc], b.m.actions[traces.OOM]
	t.Segments = f.segments
	if !t.FinalKnown {
		t.Segments = b.m.actions[traces.SegmentAlloc] + b.m.actions[traces.SegmentMap]
	}
	t.Streams = b.streams()
	b.reserve(&f)

	t.PeakAllocated, t.PeakAt = d.Allocated.max()
	t.PeakActive, t.PeakActiveAt = d.Active.max()
	s := &b.sums
	t.PeakAllocatedRequested = maybe.Known(s.peakAllocatedRequested)
	t.PeakActiveRequested = maybe.Known(s.peakActiveRequested)
	t.EndAllocatedRequested = maybe.Known(s.allocatedRequested)
	t.EndActiveRequested = maybe.Known(s.activeRequested)
	t.EndAllocated, t.EndActive = d.Allocated.Last(), d.Active.Last()
	if t.FinalKnown {
		t.LawAllocated, t.LawActive = t.EndAllocated-f.allocated, t.EndActive-f.active
		t.LawAllocatedRequested = t.StartAllocatedRequested.Or(0) + s.alloc - s.requested -
			f.allocatedRequested
		t.LawActiveRequested = t.StartActiveRequested.Or(0) + s.alloc - s.completed - f.activeRequested
		t.EndAllocated, t.EndActive = f.allocated, f.active
	}
	b.countLosses(&f)
	b.judge()
	if b.rule.given {
		t.StartAllocatedRequested, t.StartActiveRequested = maybe.Int{}, maybe.Int{}
		t.EndAllocatedRequested, t.EndActiveRequested = maybe.Int{}, maybe.Int{}
		t.PeakAllocatedRequested, t.PeakActiveRequested = maybe.Int{}, maybe.Int{}
	}
}

// streams counts the streams that the device's events and segments name.
func (b *deviceBuilder) streams() int {
	seen := make([]bool, len(b.tr.Streams))
	n := 0
	see := func(s traces.StreamID) {
		if int(s) < len(seen) && !seen[s] {
			seen[s] = true
			n++
		}
	}
	last := traces.StreamID(0)
	for i, s := range b.tr.Events.Stream[b.d.first : b.d.first+b.d.n] {
		if i == 0 || s != last {
			see(s)
			last = s
		}
	}
	for i := range b.tr.Final.Segments {
		if seg := &b.tr.Final.Segments[i]; seg.Device == b.d.ID {
			see(seg.Stream)
		}
	}
	return n
}

// reserve builds the reserved series: from segment events backed by the final state, else from the source's
// own counter, else from segment events alone.
func (b *deviceBuilder) reserve(f *finalSums) {
	d, t := b.d, &b.d.Totals
	at, steps, sum := b.segmentSteps()
	start := int64(0)
	c := b.counter(traces.CounterReserved)
	switch {
	case b.tr.Source.SyntheticAddresses && !b.tr.OfPyTorch(): // the reader made the segments up
		t.Segments = 0
		b.unreserved()
		return
	case t.FinalKnown:
		start = f.reserved - sum
	case c != nil:
		at, steps = b.counterSteps(c)
		start = c.Value[0]
	case len(at) == 0:
		b.unreserved()
		return
	default:
		lowest, level := int64(0), int64(0)
		for _, s := range steps {
			level += s
			lowest = min(lowest, level)
		}
		start = -lowest // memory that was returned must have been there
	}
	level := start
	for i, s := range steps {
		level += s
		steps[i] = level
	}
	d.Reserved = newSeries(start, at, steps)
	t.StartReserved, t.EndReserved = maybe.Known(start), maybe.Known(d.Reserved.Last())
	peak, peakAt := d.Reserved.max()
	t.PeakReserved, t.PeakReservedAt = maybe.NonNegative(peak), peakAt
	if low := d.Reserved.Range(0, Never).Min; t.FinalKnown && low < 0 {
		t.LawReserved = low
	}
}

// unreserved marks the memory that the allocator holds from the driver as unknown.
func (b *deviceBuilder) unreserved() {
	b.d.Reserved = newSeries(0, []Moment{}, nil)
	t := &b.d.Totals
	t.StartReserved, t.EndReserved, t.PeakReserved = maybe.Int{}, maybe.Int{}, maybe.Int{}
	t.PeakReservedAt = Start
}

// segmentSteps returns the moments of segment events, what each adds to reserved bytes, and the sum.
func (b *deviceBuilder) segmentSteps() (at []Moment, steps []int64, sum int64) {
	ev, n := &b.tr.Events, b.m.segmentEvents()
	if n == 0 {
		return []Moment{}, nil, 0
	}
	at, steps = make([]Moment, 0, n), make([]int64, 0, n)
	for i, a := range ev.Action[b.d.first : b.d.first+b.d.n] {
		step := ev.Size[b.d.first+i]
		switch a {
		case traces.SegmentAlloc, traces.SegmentMap:
		case traces.SegmentFree, traces.SegmentUnmap:
			step = -step
		default:
			continue
		}
		at, steps, sum = append(at, Moment(i)), append(steps, step), sum+step
	}
	return at, steps, sum
}

// counterSteps returns the moments at which a counter changes and by how much.
func (b *deviceBuilder) counterSteps(c *traces.Counter) (at []Moment, steps []int64) {
	at = []Moment{}
	last := c.Value[0]
	for i, v := range c.Value {
		if v == last {
			continue
		}
		m := b.momentOf(c, i)
		if n := len(at); n > 0 && at[n-1] >= m {
			steps[n-1] += v - last
		} else {
			at, steps = append(at, m), append(steps, v-last)
		}
		last = v
	}
	return at, steps
}

// countLosses counts contradictions and gaps in the device's events.
func (b *deviceBuilder) countLosses(f *finalSums) {
	m, t := b.m, &b.d.Totals
	b.lose("free_missing", traces.DataLoss, m.freeMissing,
		"a block was allocated at an address that still held one: the free in between is not in the "+
			"recording")
	b.lose("alloc_missing", traces.DataLoss, m.allocMissing,
		"a block was freed at an address whose last block had already been freed: the allocation in "+
			"between is "+
			"not in the recording")
	b.lose("free_request_missing", traces.Info, m.requestMissing,
		"a free completed that was never requested: it counts as requested at that moment")
	b.lose("free_size_differs", traces.Fault, b.sums.sizeDiffers,
		"a free gives another size than its allocation; the allocation's is used")
	if !t.FinalKnown {
		b.lose("counter_differs", traces.DataLoss, b.counterDiffers(),
			"samples of the source's own total that differ from the sum of the blocks: events are missing "+
				"or belong to another allocator")
		return
	}
	law := func(name string, diff int64, what string) {
		b.lose(name, traces.DataLoss, max(diff, -diff), "bytes by which start + allocations - frees "+
			"differs from the final state, "+what)
	}
	law("law_allocated", t.LawAllocated, "allocated")
	law("law_active", t.LawActive, "active")
	law("law_allocated_requested", t.LawAllocatedRequested, "allocated, in requested bytes")
	law("law_active_requested", t.LawActiveRequested, "active, in requested bytes")
	law("law_reserved", t.LawReserved, "reserved: more was released than was held")
	own := max(f.ownAllocated-f.allocated, f.allocated-f.ownAllocated) +
		max(f.ownActive-f.active, f.active-f.ownActive)
	b.lose("segment_sums_differ", traces.Fault, own, "bytes by which the segments' own sums differ from "+
		"those of their blocks")
}

// judge says how far the totals can be trusted, and why.
func (b *deviceBuilder) judge() {
	t := &b.d.Totals
	broken := int64(0)
	for _, l := range b.losses {
		if l.Severity != traces.Info {
			broken++
		}
	}
	closes := worst(t) == 0
	known := t.FinalKnown || b.counted || b.d.Info.Kind == traces.DeviceArena
	t.BeginsEmpty = known && t.StartAllocated == 0 && t.StartActive == 0 &&
		(t.StartReserved == maybe.Known(0) || !t.FinalKnown)
	switch {
	case t.FinalKnown && !closes:
		t.Exactness = Inferred
		t.Reason = fmt.Sprintf("start + allocations - frees misses the final state by %d bytes", worst(t))
	case broken > 0:
		t.Exactness = Inferred
		t.Reason = "events are missing in the middle of the recording, or contradict each other"
	case lost(b.tr.Losses):
		t.Exactness = Inferred
		t.Reason = "the source lost something or contradicts itself: " +
			strings.ReplaceAll(worstLoss(b.tr.Losses), "_", " ")
	case t.FinalKnown && t.BeginsEmpty:
		t.Reason = "the recording begins empty and its events lead to the final state"
	case t.FinalKnown && b.tr.OneMoment():
		t.Reason = "the file is the allocator's own state at one moment"
	case t.FinalKnown:
		t.Reason = "within the recorded window, which begins with memory in use: its events lead to the " +
			"final state; before it the process may have held more"
	case b.counted:
		t.Reason = "the source's own total says what was in use at the start"
	case b.d.Info.Kind == traces.DeviceArena && t.StartAllocated == 0:
		t.Reason = "the file has every lifetime"
	default:
		t.Exactness = LowerBound
		t.Reason = "blocks that were there before the recording and never freed are not in it"
	}
	t.Complete = t.BeginsEmpty && t.Exactness == Exact
	t.RequestedExactness = t.Exactness
	if why := b.sizes.doubt(b); t.Exactness == Exact && why != "" {
		t.Exactness, t.Reason = Inferred, why
	}
}

func worst(t *Totals) int64 {
	w := int64(0)
	for _, l := range [...]int64{t.LawAllocated, t.LawActive, t.LawReserved, t.LawAllocatedRequested,
		t.LawActiveRequested} {
		w = max(w, l, -l)
	}
	return w
}

// lost reports whether the source itself lost data or contradicts itself.
func lost(losses []traces.Loss) bool { return worstLoss(losses) != "" }

// worstLoss names the gravest loss that is more than information, "" for none.
func worstLoss(losses []traces.Loss) string {
	name, worst := "", traces.Info
	for _, l := range losses {
		if l.Severity > worst && l.Count > 0 {
			name, worst = l.Name, l.Severity
		}
	}
	return name
}
