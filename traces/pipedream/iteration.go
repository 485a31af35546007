package pipedream

import (
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/torchalloc"
)

// writer emits the events of one iteration.
type writer struct {
	*model
	device traces.DeviceID
	next   uint64 // addresses only grow, so none is used twice
	now    int64
	op     traces.OpID
}

func (m *model) iteration() {
	m.b.T.Source.Format, m.b.T.Source.Tool = formatName, "PipeDream profiler"
	m.b.T.Source.SyntheticAddresses = true
	m.b.T.Clock = traces.Clock{HasTime: true, Resolution: 1000}
	w := &writer{model: m, device: m.b.Device(traces.DeviceGPU, 0), next: 1 << 20, op: traces.NoOp}
	steps := m.steps()
	for n, s := range steps {
		m.touched(s, func(t int) { m.tensors[t].last = n })
	}
	for _, i := range m.order {
		w.alloc(&m.weights[i])
	}
	for t := range m.tensors {
		if m.tensors[t].maker < 0 {
			w.alloc(&m.tensors[t].buffer)
		}
	}
	turn := int64(0)
	for n, s := range steps {
		if s.layer < 0 {
			turn = w.now
		}
		w.step(n, s)
	}
	for i := range m.wgrads {
		w.free(&m.wgrads[i])
	}
	w.mark("iteration", 0, w.now, traces.MarkIteration, traces.PhaseUnknown)
	w.mark("forward", 0, turn, traces.MarkPhase, traces.PhaseForward)
	w.mark("backward", turn, w.now, traces.MarkPhase, traces.PhaseBackward)
}

func (w *writer) mark(name string, start, end int64, kind traces.MarkKind, phase traces.Phase) {
	w.b.T.Marks = append(w.b.T.Marks,
		traces.Mark{Start: start, End: end, Name: w.b.String(name), Kind: kind, Phase: phase,
			Device: w.device})
}

// step emits op n: its allocations, its accesses, and the frees of what nothing needs after it.
func (w *writer) step(n int, s step) {
	op := traces.Op{Start: w.now, Stack: traces.NoStack, Parent: traces.NoOp, Device: w.device,
		Phase: traces.PhaseForward}
	w.op = traces.OpID(len(w.b.T.Ops))
	if s.layer < 0 {
		op.Name, op.Phase = w.b.String("loss"), traces.PhaseBackward
	} else {
		l := &w.g.layers[s.layer]
		op.Name, op.Module = w.b.String(l.kind()), w.b.String(l.name+" "+l.desc)
		op.Duration, op.Rerunnable = l.forward, !l.isDropout()
		if s.backward {
			op.Name, op.Phase = w.b.String(l.kind()+"Backward"), traces.PhaseBackward
			op.Duration, op.Rerunnable = l.backward, false
		}
	}
	w.b.T.Ops = append(w.b.T.Ops, op)
	switch {
	case s.layer < 0:
		w.loss()
	case s.backward:
		w.backward(s.layer)
	default:
		w.forward(s.layer)
	}
	w.now += op.Duration
	w.touched(s, func(t int) {
		if x := &w.tensors[t]; x.last == n {
			w.free(&x.buffer)
		}
	})
	if s.backward && s.layer >= 0 && !w.aliased[s.layer] {
		w.free(&w.tensors[w.of[s.layer]].grad)
	}
}

func (w *writer) forward(i int) {
	out := &w.tensors[w.of[i]]
	if !w.aliased[i] {
		w.alloc(&out.buffer)
	}
	for _, t := range w.inputs(i) {
		if t != w.of[i] {
			w.access(&w.tensors[t].buffer, traces.Read)
		}
	}
	w.access(&w.weights[i], traces.Read)
	switch {
	case !w.aliased[i]:
		w.access(&out.buffer, traces.Write)
	case w.g.layers[i].isView():
		w.access(&out.buffer, traces.Alias)
	default:
		w.access(&out.buffer, traces.Mutate)
	}
}

// loss reads what no layer reads, and starts the backward pass with its gradients.
func (w *writer) loss() {
	for t := range w.tensors {
		if x := &w.tensors[t]; x.unread && x.hasGrad {
			w.alloc(&x.grad)
			w.access(&x.buffer, traces.Read)
			w.access(&x.grad, traces.Write)
		}
	}
}

func (w *writer) backward(i int) {
	input, output := w.g.layers[i].saved()
	out := &w.tensors[w.of[i]]
	inputs := w.inputs(i)
	// Allocations first, so that all of the op's accesses come after them.
	var fresh []bool
	for _, t := range inputs {
		x := &w.tensors[t]
		fresh = append(fresh, x.hasGrad && !x.grad.live)
		if x.hasGrad {
			w.alloc(&x.grad)
		}
	}
	w.alloc(&w.wgrads[i])
	if !w.aliased[i] {
		w.access(&out.grad, traces.Read)
	}
	if output {
		w.access(&out.buffer, traces.Read)
	}
	for k, t := range inputs {
		x := &w.tensors[t]
		if input {
			w.access(&x.buffer, traces.Read)
		}
		switch {
		case !x.hasGrad:
		case t == w.of[i] && w.g.layers[i].isView():
			w.access(&x.grad, traces.Alias)
		case fresh[k]:
			w.access(&x.grad, traces.Write)
		default:
			w.access(&x.grad, traces.Mutate)
		}
	}
	w.access(&w.weights[i], traces.Read)
	w.access(&w.wgrads[i], traces.Write)
}

// alloc allocates a buffer unless it is live; an empty one never is.
func (w *writer) alloc(x *buffer) {
	if x.live || x.size == 0 {
		return
	}
	x.live, x.addr = true, w.next
	w.next += uint64(torchalloc.Rounded(x.size))
	w.event(x, traces.Alloc)
}

func (w *writer) free(x *buffer) {
	if x.live {
		w.event(x, traces.Free)
		x.live = false
	}
}

func (w *writer) event(x *buffer, a traces.Action) {
	d := traces.Detail{Category: w.b.String(x.category), UserMetadata: w.b.String(x.name),
		ForwardStack: traces.NoStack}
	if w.op != traces.NoOp {
		d.Op = w.b.T.Ops[w.op].Name
	}
	w.b.Event(traces.Event{Time: w.now, Addr: x.addr, Size: x.size, Stack: traces.NoStack, Device: w.device,
		Action: a, Detail: w.b.Detail(d)})
}

func (w *writer) access(x *buffer, mode traces.AccessMode) {
	if x.live {
		w.b.T.Accesses = append(w.b.T.Accesses, traces.Access{Time: w.now, Addr: x.addr, Size: x.size,
			Op: w.op, Event: int32(w.b.T.Events.Len()), Device: w.device, Mode: mode})
	}
}
