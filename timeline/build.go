package timeline

import (
	"context"
	"runtime"
	"sync"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// manyEvents is the size of a trace from which Build collects garbage first. Garbage that the reader left
// then makes room for Build's columns, a third of the peak of the whole process; the collection costs a few
// milliseconds, since neither has pointers.
const manyEvents = 2 << 20

// Build computes lifetimes, series and totals of every device of a frozen trace: two walks over the events,
// O(n) time, devices in parallel. progress, if not nil, is called from one goroutine at a time with the
// events visited so far and in total (each event counts once per walk). It returns the context's error as
// soon as that is cancelled.
func Build(ctx context.Context, tr *traces.Trace, progress func(done, total int64)) (*Timeline, error) {
	if tr.Events.Len() >= manyEvents {
		runtime.GC()
	}
	t := &Timeline{Trace: tr, Devices: make([]*Device, len(tr.Devices))}
	t.place()
	visit := counter(2*int64(tr.Events.Len()), progress)
	losses := make([][]traces.Loss, len(tr.Devices))
	errs := make([]error, len(tr.Devices))
	var wg sync.WaitGroup
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range tr.Devices {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			b := deviceBuilder{ctx: ctx, tr: tr, visit: visit}
			t.Devices[i], errs[i] = b.build(t, traces.DeviceID(i))
			losses[i] = b.losses
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, err
		}
		t.addLosses(losses[i])
	}
	return t, nil
}

// counter returns a tick that adds up over goroutines and reports to progress.
func counter(total int64, progress func(done, total int64)) tick {
	if progress == nil {
		return func(int) {}
	}
	var mu sync.Mutex
	var done int64
	return func(n int) {
		mu.Lock()
		defer mu.Unlock()
		done += int64(n)
		progress(done, total)
	}
}

// addLosses adds a device's losses, one row for each name.
func (t *Timeline) addLosses(losses []traces.Loss) {
	for _, l := range losses {
		found := false
		for i := range t.Losses {
			if t.Losses[i].Name == l.Name {
				t.Losses[i].Count += l.Count
				found = true
			}
		}
		if !found {
			t.Losses = append(t.Losses, l)
		}
	}
}

// deviceBuilder builds one Device.
type deviceBuilder struct {
	ctx    context.Context
	tr     *traces.Trace
	visit  tick
	d      *Device
	m      *matching
	losses []traces.Loss
	rule   rounding
	rest   *remainders
	sums   sums
	sizes  sizeProof
	// counted says that the source's own counter gave the start.
	counted bool

	allocated, active []int64
}

// sums are the totals of the second walk.
type sums struct {
	alloc, requested, completed                 int64 // sizes of events
	allocatedRequested, activeRequested         int64 // running, requested bytes
	peakAllocatedRequested, peakActiveRequested int64
	sizeDiffers                                 int64
	freeStackDiffers                            int64 // frees whose stack is not their allocation's
	freesMatched                                int64
}

func (b *deviceBuilder) lose(name string, s traces.Severity, n int64, detail string) {
	if n > 0 {
		b.losses = append(b.losses, traces.Loss{Name: name, Severity: s, Count: n, Detail: detail})
	}
}

func (b *deviceBuilder) build(t *Timeline, id traces.DeviceID) (*Device, error) {
	first, end := b.tr.DeviceEvents(id)
	d := &Device{ID: id, Info: b.tr.Devices[id], tl: t, first: first, n: end - first}
	d.time = monotone(b.tr.Events.Time[first:end])
	b.d = d
	var err error
	if b.m, err = matchEvents(b.ctx, &b.tr.Events, first, end, b.visit); err != nil {
		return nil, err
	}
	if b.tr.Final.Known {
		b.m.join(&b.tr.Final, id)
	}
	b.layOut()
	if err := b.walk(); err != nil {
		return nil, err
	}
	b.dropFreeStacks()
	b.m.table = nil
	d.roundChecked, d.roundWrong = b.sizes.checked, b.sizes.wrong
	var wg sync.WaitGroup
	wg.Go(func() { d.Allocs.maxRequested = pyramid(d.Allocs.Requested) })
	wg.Go(func() { d.Allocs.maxEnd = pyramid(d.Allocs.End) })
	wg.Wait()
	b.finishTotals()
	categorise(d)
	return d, b.ctx.Err()
}

// layOut gives the allocations their final ids and fills the columns that need no walk: allocations from
// before the recording come first, in reverse order of discovery, so that the earliest freed is the last of
// them.
func (b *deviceBuilder) layOut() {
	a, rule := &b.d.Allocs, newRounding(b.tr, b.d.Info.Kind)
	p := len(b.m.earlier)
	n := p + len(b.m.versions)
	a.make(n)
	counted := false
	for j, e := range b.m.earlier {
		i := p - 1 - j
		a.Start[i], a.Addr[i], a.Size[i], a.Rounded[i] = Start, e.addr, e.size, e.rounded
		a.Stack[i], a.Stream[i], a.Version[i] = e.stack, e.stream, e.version
		a.Requested[i], a.End[i] = Never, Never
		if e.pending {
			a.Requested[i] = Start
		}
		if e.rounded == 0 {
			a.Rounded[i] = rule.round(e.size)
			b.sizes.byRule++
		}
		counted = counted || e.count > 1
	}
	if counted {
		a.Count = make([]int32, n)
		for i := range a.Count {
			a.Count[i] = 1
		}
		for j, e := range b.m.earlier {
			a.Count[p-1-j] = e.count
		}
	}
	copy(a.Version[p:], b.m.versions)
	for _, j := range b.m.joined {
		a.Rounded[b.final(j.id)] = j.size
	}
	b.rule = rule
}

// final returns the final id of a provisional one.
func (b *deviceBuilder) final(id int32) AllocID {
	if j, ok := isEarlier(id); ok {
		return AllocID(len(b.m.earlier) - 1 - j)
	}
	if id < 0 {
		return NoAlloc
	}
	return AllocID(len(b.m.earlier) + int(id))
}

// make allocates the columns for n allocations.
func (a *Allocs) make(n int) {
	a.Start, a.Requested, a.End = make([]Moment, n), make([]Moment, n), make([]Moment, n)
	a.Addr, a.Size, a.Rounded = make([]uint64, n), make([]int64, n), make([]int64, n)
	a.Stack, a.Stream, a.Version = make([]traces.StackID, n), make([]traces.StreamID, n), make([]int32, n)
	a.Category, a.Inferred = make([]Category, n), make([]bool, n)
}

// walk is the second walk: it fills the columns of new allocations, ends lifetimes and adds up the series.
func (b *deviceBuilder) walk() error {
	d, t := b.d, &b.d.Totals
	d.allocOf = b.m.of // provisional ids, each made final as the walk passes it
	b.allocated, b.active = make([]int64, d.n), make([]int64, d.n)
	b.rest = b.newRemainders()
	for i := range b.m.earlier {
		b.startWith(AllocID(i))
	}
	b.unattributed()
	s := &b.sums
	t.StartAllocatedRequested = maybe.Known(s.allocatedRequested)
	t.StartActiveRequested = maybe.Known(s.activeRequested)
	s.peakAllocatedRequested, s.peakActiveRequested = s.allocatedRequested, s.activeRequested
	for _, c := range b.m.closings {
		d.closings = append(d.closings, ending{c.at, b.final(c.id)})
	}
	r := runner{b: b, allocated: t.StartAllocated, active: t.StartActive, closings: d.closings}
	for at := 0; at < d.n; {
		stop := min(at+tickEvents, d.n)
		r.run(Moment(at), Moment(stop))
		if err := b.ctx.Err(); err != nil {
			return err
		}
		b.visit(stop - at)
		at = stop
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.Allocated = newSeries(t.StartAllocated, nil, b.allocated) })
	wg.Go(func() { d.Active = newSeries(t.StartActive, nil, b.active) })
	wg.Wait()
	return nil
}

// startWith counts an allocation from before the recording into the start.
func (b *deviceBuilder) startWith(i AllocID) {
	a, t := &b.d.Allocs, &b.d.Totals
	if a.Requested[i] != Start {
		t.StartAllocated += a.Rounded[i]
		b.sums.allocatedRequested += a.Size[i]
	}
	t.StartActive += a.Rounded[i]
	b.sums.activeRequested += a.Size[i]
}

// runner is the state of the second walk.
type runner struct {
	b                 *deviceBuilder
	allocated, active int64
	closings          []ending
}

func (r *runner) run(from, to Moment) {
	b, a, ev := r.b, &r.b.d.Allocs, &r.b.tr.Events
	for at := from; at < to; at++ {
		id := b.final(int32(b.d.allocOf[at]))
		b.d.allocOf[at] = id
		for len(r.closings) > 0 && r.closings[0].at == at {
			r.end(r.closings[0].id, at)
			r.closings = r.closings[1:]
		}
		row := b.d.first + int(at)
		if id == NoAlloc {
			if b.rest != nil {
				b.rest.segment(ev.Action[row], ev.Addr[row], ev.Size[row])
			}
		} else {
			switch ev.Action[row] {
			case traces.Alloc:
				r.begin(id, at, row)
			case traces.FreeRequested:
				r.request(id, at, row)
				b.sums.requested += ev.Size[row]
			case traces.FreeCompleted:
				if a.Requested[id] == Never {
					b.sums.requested += ev.Size[row]
				}
				b.sums.completed += ev.Size[row]
				r.end(id, at)
			case traces.Free:
				r.request(id, at, row)
				b.sums.requested += ev.Size[row]
				b.sums.completed += ev.Size[row]
				r.end(id, at)
			}
		}
		b.allocated[at], b.active[at] = r.allocated, r.active
	}
}

func (r *runner) begin(id AllocID, at Moment, row int) {
	b, a, ev := r.b, &r.b.d.Allocs, &r.b.tr.Events
	size := ev.Size[row]
	a.Start[id], a.Requested[id], a.End[id] = at, Never, Never
	a.Addr[id], a.Size[id], a.Stack[id], a.Stream[id] = ev.Addr[row], size, ev.Stack[row], ev.Stream[row]
	b.roundNew(id)
	s := &b.sums
	s.alloc += size
	r.allocated += a.Rounded[id]
	r.active += a.Rounded[id]
	s.allocatedRequested += size
	s.activeRequested += size
	s.peakAllocatedRequested = max(s.peakAllocatedRequested, s.allocatedRequested)
	s.peakActiveRequested = max(s.peakActiveRequested, s.activeRequested)
}

// request ends the allocated part of an allocation's life; its bytes stay active.
func (r *runner) request(id AllocID, at Moment, row int) {
	a, ev, s := &r.b.d.Allocs, &r.b.tr.Events, &r.b.sums
	if a.Requested[id] != Never {
		return
	}
	if ev.Size[row] != a.Size[id] {
		s.sizeDiffers++
	}
	if a.Start[id] != Start {
		s.freesMatched++
		if ev.Stack[row] != a.Stack[id] {
			s.freeStackDiffers++
		}
	}
	a.Requested[id] = at
	r.allocated -= a.Rounded[id]
	s.allocatedRequested -= a.Size[id]
}

// end ends an allocation, and requests the free first if nothing did.
func (r *runner) end(id AllocID, at Moment) {
	a, s := &r.b.d.Allocs, &r.b.sums
	if a.Requested[id] == Never {
		a.Requested[id] = at
		r.allocated -= a.Rounded[id]
		s.allocatedRequested -= a.Size[id]
	}
	if a.End[id] == Never {
		a.End[id] = at
		r.active -= a.Rounded[id]
		s.activeRequested -= a.Size[id]
		if r.b.rest != nil {
			r.b.rest.freed(a.Addr[id], a.Rounded[id])
		}
	}
}

// roundNew sets a new allocation's rounded size. If the final state has the size, the rule is checked against
// it instead.
func (b *deviceBuilder) roundNew(id AllocID) {
	a := &b.d.Allocs
	rounded := b.rule.round(a.Size[id])
	if b.rest != nil {
		rounded = b.rest.allocated(a.Addr[id], rounded)
	}
	if a.Rounded[id] == 0 {
		a.Rounded[id] = rounded
		b.sizes.byRule++
		return
	}
	b.sizes.checked++
	if a.Rounded[id] != rounded {
		b.sizes.wrong++
	}
}

// dropFreeStacks takes the stacks that came from frees off the earlier allocations, unless the recording
// gives frees the stack of their allocation (context="alloc"), which every matched pair then shows.
func (b *deviceBuilder) dropFreeStacks() {
	if b.sums.freesMatched > 0 && b.sums.freeStackDiffers == 0 {
		return
	}
	p := len(b.m.earlier)
	for j, e := range b.m.earlier {
		if e.freeStack {
			b.d.Allocs.Stack[p-1-j] = traces.NoStack
		}
	}
}

// monotone returns times that never fall, so that moments can be searched by time: the times themselves if
// they never do, else a copy in which each is at least the one before.
func monotone(t []int64) []int64 {
	for i := 1; i < len(t); i++ {
		if t[i] < t[i-1] {
			c := append([]int64(nil), t...)
			for ; i < len(c); i++ {
				c[i] = max(c[i], c[i-1])
			}
			return c
		}
	}
	return t
}
