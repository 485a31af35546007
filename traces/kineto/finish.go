package kineto

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// finish makes the trace. readErr is the error that ended the reading early, nil at a sound end.
func (p *profile) finish(readErr error) (*traces.Trace, error) {
	if len(p.mem) == 0 {
		if readErr != nil {
			return nil, readErr
		}
		return nil, errNoMemory
	}
	if readErr != nil {
		p.b.Lose("torn_tail", traces.DataLoss, 1,
			"the file is cut or damaged; everything after that place is missing")
	}
	p.orderMemory()
	zero := p.mem[0].time
	for i := range p.spans {
		zero = min(zero, p.spans[i].start)
	}
	w := p.nest()
	primary := p.primaryDevice()
	p.addOps(w, zero, primary)
	p.addMarks(zero, primary)
	p.addEvents(w, zero)
	p.nameDevices()
	p.b.T.Process.PID = maybe.NonNegative(p.pid)
	p.b.T.Clock = traces.Clock{HasTime: true, Resolution: 1000, Epoch: p.epoch(zero)}
	if p.fractional {
		p.b.T.Clock.Resolution = 1
	}
	return p.b.Finish(), readErr
}

// epoch returns the Unix time of zero: new profiles count from baseTimeNanoseconds, old ones from 1970.
// Others are unknown.
func (p *profile) epoch(zero int64) int64 {
	const year2001 = 1e18
	switch {
	case p.baseTime > 0 && zero < math.MaxInt64-p.baseTime:
		return p.baseTime + zero
	case zero > year2001:
		return zero
	}
	return 0
}

// orderMemory sorts the events by time. The profile lists them thread by thread, so the order between threads
// is lost at equal times; the allocator's running total, if events have it, tells which came first.
func (p *profile) orderMemory() {
	slices.SortStableFunc(p.mem, func(a, b memory) int { return cmp.Compare(a.time, b.time) })
	totals := map[traces.DeviceID]int64{}
	for i := 0; i < len(p.mem); {
		j := i + 1
		for j < len(p.mem) && p.mem[j].time == p.mem[i].time {
			j++
		}
		chain(p.mem[i:min(j, i+maxTie)], totals)
		i = min(j, i+maxTie)
	}
}

// maxTie bounds the number of events of one time that are ordered at once; chain is quadratic in it.
const maxTie = 256

// chain orders events of one time so that each total is the one before plus the event's bytes, as far as such
// an event exists.
func chain(m []memory, totals map[traces.DeviceID]int64) {
	for i := range m {
		pick := i
		for j := i; j < len(m); j++ {
			last, known := totals[m[j].device]
			if m[j].allocated >= 0 && known && !m[j].oom && last+m[j].bytes == m[j].allocated {
				pick = j
				break
			}
		}
		e := m[pick]
		copy(m[i+1:pick+1], m[i:pick])
		m[i] = e
		if e.allocated >= 0 && !e.oom {
			totals[e.device] = e.allocated
		}
	}
}

// primaryDevice is the accelerator with the most memory events. It gets the ops and marks of CPU threads,
// since a profile does not say which device an op works on.
func (p *profile) primaryDevice() traces.DeviceID {
	var count [traces.MaxDevices]int
	for i := range p.mem {
		count[p.mem[i].device]++
	}
	best := p.mem[0].device
	for d := range p.b.T.Devices {
		id := traces.DeviceID(d)
		gpu, bestGPU := p.kinds[id] != 0, p.kinds[best] != 0
		if gpu != bestGPU && gpu || gpu == bestGPU && count[d] > count[best] {
			best = id
		}
	}
	return best
}

// addOps sorts the ops by start; parents stay before their children.
func (p *profile) addOps(w *sweep, zero int64, primary traces.DeviceID) {
	order := make([]int32, len(w.ops))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(w.ops[a].Start, w.ops[b].Start), cmp.Compare(a, b))
	})
	moved := make([]traces.OpID, len(w.ops))
	for to, from := range order {
		moved[from] = traces.OpID(to)
	}
	ops := make([]traces.Op, len(w.ops))
	for to, from := range order {
		op := w.ops[from]
		op.Start -= zero
		if op.Parent != traces.NoOp {
			op.Parent = moved[op.Parent]
		}
		switch {
		case op.Thread >= 0:
			op.Device = primary
		default:
			op.Device = p.deviceOfKernel(op.Device, primary)
		}
		ops[to] = op
	}
	p.b.T.Ops = ops
}

// deviceOfKernel returns the GPU that a kernel ran on if the profile has its memory, else the primary device:
// a GPU without memory events would come first on the screen, and be empty.
func (p *profile) deviceOfKernel(ordinal traces.DeviceID, primary traces.DeviceID) traces.DeviceID {
	for id, d := range p.b.T.Devices {
		if ordinal != unknownDevice && d.Kind == traces.DeviceGPU && d.Ordinal == int(ordinal) {
			return traces.DeviceID(id)
		}
	}
	return primary
}

// addMarks makes marks from annotations. A framework's own range is an op as well.
func (p *profile) addMarks(zero int64, primary traces.DeviceID) {
	for i := range p.spans {
		sp := &p.spans[i]
		if sp.kind != spanMark && sp.kind != spanRange {
			continue
		}
		m := traces.Mark{Start: sp.start - zero, End: sp.end - zero, Name: sp.name, Device: primary}
		switch name := p.b.T.Strings[sp.name]; {
		case strings.HasPrefix(name, stepPrefix):
			m.Kind = traces.MarkIteration
		case strings.HasPrefix(name, optimizerPrefix):
			m.Kind, m.Phase = traces.MarkPhase, traces.PhaseOptimizer
		case strings.HasSuffix(name, "Parallel.forward"):
			m.Kind, m.Phase = traces.MarkPhase, traces.PhaseForward
		}
		p.b.T.Marks = append(p.b.T.Marks, m)
	}
}

// counters are the two totals of one device while they are collected.
type counters struct{ allocated, reserved traces.Counter }

func (p *profile) addEvents(w *sweep, zero int64) {
	p.b.T.Events.Grow(len(p.mem))
	made := map[traces.DeviceID]*addresses{}
	totals := map[traces.DeviceID]*counters{}
	for i := range p.mem {
		m := &p.mem[i]
		e := traces.Event{Time: m.time - zero, Addr: m.addr, Size: m.bytes, Stack: m.stack, Device: m.device,
			Action: traces.Alloc}
		e.Detail = p.b.Detail(traces.Detail{Op: m.op, ForwardStack: w.forwardStack(m.sequence)})
		switch {
		case m.oom:
			// The profile does not say what the driver had free.
			e.Action, e.Size, e.Addr = traces.OOM, max(m.bytes, -m.bytes), traces.UnknownFree
		case m.bytes < 0:
			e.Action, e.Size = traces.Free, -m.bytes
		}
		if !m.hasAddr && !m.oom {
			if made[m.device] == nil {
				made[m.device] = newAddresses()
			}
			e.Addr = made[m.device].of(e.Action, e.Size)
			p.b.T.Source.SyntheticAddresses = true
			p.b.Lose("addresses_inferred", traces.Info, 1,
				"this profile has no addresses: a free is taken for the latest live block of its size")
		}
		p.count(totals, m, e.Time)
		p.b.Event(e)
	}
	for d := range p.b.T.Devices {
		if c := totals[traces.DeviceID(d)]; c != nil {
			for _, c := range []traces.Counter{c.allocated, c.reserved} {
				if len(c.Time) > 0 {
					p.b.T.Counters = append(p.b.T.Counters, c)
				}
			}
		}
	}
}

// count appends the event's totals to its device's counters. It runs before the event is appended.
func (p *profile) count(totals map[traces.DeviceID]*counters, m *memory, t int64) {
	if m.allocated < 0 && m.reserved < 0 {
		return
	}
	c := totals[m.device]
	if c == nil {
		c = &counters{
			allocated: traces.Counter{Name: p.b.String(traces.CounterAllocated), Device: m.device},
			reserved:  traces.Counter{Name: p.b.String(traces.CounterReserved), Device: m.device},
		}
		totals[m.device] = c
	}
	row := int32(p.b.T.Events.Len())
	sample := func(c *traces.Counter, v int64) {
		if v >= 0 {
			c.Time, c.Value, c.Event = append(c.Time, t), append(c.Value, v), append(c.Event, row)
		}
	}
	sample(&c.allocated, m.allocated)
	// The CPU's allocator reserves nothing and the profiler writes 0.
	if p.kinds[m.device] != 0 {
		sample(&c.reserved, m.reserved)
	}
}

func (w *sweep) forwardStack(sequence int64) traces.StackID {
	if sequence < 0 {
		return traces.NoStack
	}
	if id, ok := w.forward[sequence]; ok {
		return id
	}
	return traces.NoStack
}

func (p *profile) nameDevices() {
	for i := range p.b.T.Devices {
		d := &p.b.T.Devices[i]
		if d.Kind != traces.DeviceGPU {
			continue
		}
		for _, card := range p.cards {
			if card.ID == d.Ordinal {
				d.Name, d.TotalBytes = card.Name, max(card.Total, 0)
			}
		}
	}
}

// addresses makes up addresses if the source has none. A block gets the next address in a space that only
// grows. A free frees the latest live block of its size, which is right for caching frameworks more often
// than the oldest.
type addresses struct {
	next uint64
	live map[int64][]uint64
}

func newAddresses() *addresses { return &addresses{next: 1 << 12, live: map[int64][]uint64{}} }

func (a *addresses) of(action traces.Action, size int64) uint64 {
	if live := a.live[size]; action == traces.Free && len(live) > 0 {
		addr := live[len(live)-1]
		a.live[size] = live[:len(live)-1]
		return addr
	}
	addr := a.next
	a.next += uint64(torchalloc.Rounded(size))
	if action == traces.Alloc {
		a.live[size] = append(a.live[size], addr)
	}
	return addr
}
