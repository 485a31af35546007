package kineto

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/traces"
)

// Ranges of one thread nest, but the profile lists them flat, in the order in which each recorder wrote its
// own. This file rebuilds the nesting by a sweep: it merges a thread's ranges, sorted by start (longest
// first), with its memory events, sorted by time, and keeps a stack of open ranges, which shows what each op
// and memory event runs inside. O(n log n) for the sort, O(n) for the sweep, and a call stack is built at
// most once for each open range that has an event under it.
//
// What the nesting gives: an op's parent, module path and phase; and the stack of an event, innermost frame
// first: the op names and Python frames around it. Autograd's threads have no Python frames; there, PyTorch's
// sequence numbers lead from the backward op to the forward op that made it, whose stack becomes the event's
// ForwardStack.
//
// Old profiles have whole microseconds, with start and duration truncated separately, so that a child may
// seem to end a tick or two after its parent. Within that slack it still counts as inside.
//
// Rejected: "Python parent id", which nests Python frames alone and agrees with time wherever both exist.

const (
	maxStack  = 256 // frames of one stack; the outermost are dropped
	maxModule = 64  // components of one module path
)

// open is a range on the sweep's stack.
type open struct {
	sp      *span
	op      traces.OpID // its op before sorting, NoOp for frames and marks
	inOp    traces.OpID // the innermost op up to here
	module  traces.StringID
	depth   int32 // components of module
	phase   traces.Phase
	seq     int64 // sequence number of the innermost backward op around it, -1 for none
	stack   traces.StackID
	stacked bool
}

// sweep nests the profile. Ops come out in thread order; finish sorts them.
type sweep struct {
	p        *profile
	ops      []traces.Op
	opSeq    []int64 // sequence number of each op, -1 for none
	stack    []open
	slack    int64
	frames   []traces.FrameID
	backward map[int64]bool           // sequence numbers that backward ops have
	forward  map[int64]traces.StackID // stack of the forward op of each of them
	modules  map[[2]traces.StringID]traces.StringID
}

func (p *profile) nest() *sweep {
	w := &sweep{p: p, backward: map[int64]bool{}, forward: map[int64]traces.StackID{},
		modules: map[[2]traces.StringID]traces.StringID{}}
	if !p.fractional {
		w.slack = 2000
	}
	slices.SortFunc(p.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.thread, b.thread), cmp.Compare(a.start, b.start),
			cmp.Compare(b.end, a.end), cmp.Compare(a.order, b.order))
	})
	for i := range p.spans {
		if sp := &p.spans[i]; sp.backward && sp.sequence >= 0 {
			w.backward[sp.sequence] = true
		}
	}
	events := make([][]int32, len(p.threads))
	for i := range p.mem {
		events[p.mem[i].thread] = append(events[p.mem[i].thread], int32(i))
	}
	first := 0
	for first < len(p.spans) && p.spans[first].thread < 0 {
		w.device(&p.spans[first])
		first++
	}
	for t := range p.threads {
		end := first
		for end < len(p.spans) && p.spans[end].thread == int32(t) {
			end++
		}
		w.thread(p.spans[first:end], events[t])
		first = end
	}
	w.markForward()
	return w
}

// device adds a kernel, which has no thread and no stack.
func (w *sweep) device(sp *span) {
	w.ops = append(w.ops, traces.Op{Start: sp.start, Duration: sp.end - sp.start, Name: sp.name,
		Stack: traces.NoStack, Parent: traces.NoOp, Thread: -1, Stream: sp.stream, Device: sp.device})
	w.opSeq = append(w.opSeq, -1)
}

// thread merges the ranges and memory events of one thread, both in time order. An event at a range's very
// start or end counts as inside: allocation is the first and freeing the last thing that an op does.
func (w *sweep) thread(spans []span, events []int32) {
	w.stack = w.stack[:0]
	for len(spans) > 0 || len(events) > 0 {
		if len(events) == 0 || len(spans) > 0 && spans[0].start <= w.p.mem[events[0]].time {
			w.push(&spans[0])
			spans = spans[1:]
			continue
		}
		w.event(&w.p.mem[events[0]])
		events = events[1:]
	}
}

func (w *sweep) push(sp *span) {
	for n := len(w.stack); n > 0 && !w.inside(sp, w.stack[n-1].sp); n = len(w.stack) {
		w.stack = w.stack[:n-1]
	}
	o := open{sp: sp, op: traces.NoOp, inOp: traces.NoOp, seq: -1, stack: traces.NoStack}
	if n := len(w.stack); n > 0 {
		up := &w.stack[n-1]
		o.inOp, o.module, o.depth, o.phase, o.seq = up.inOp, up.module, up.depth, up.phase, up.seq
	}
	if sp.kind == spanPython && sp.name != 0 && o.depth < maxModule {
		o.module, o.depth = w.join(o.module, sp.name), o.depth+1
	}
	if o.phase == traces.PhaseUnknown {
		o.phase = w.phaseOf(sp)
	}
	if sp.backward && sp.sequence >= 0 {
		o.seq = sp.sequence
	}
	if sp.kind == spanOp || sp.kind == spanRange {
		o.op = traces.OpID(len(w.ops))
		stack := w.top()
		if stack == traces.NoStack {
			stack = sp.callStack
		}
		w.ops = append(w.ops, traces.Op{Start: sp.start, Duration: sp.end - sp.start, Name: sp.name,
			Module: o.module, Stack: stack, Parent: o.inOp, Thread: w.p.threads[sp.thread].tid,
			Phase: o.phase})
		w.opSeq = append(w.opSeq, sp.sequence)
		o.inOp = o.op
	}
	w.stack = append(w.stack, o)
	if !sp.backward && o.seq < 0 && w.backward[sp.sequence] {
		// of several nested ops the last, innermost one made the autograd node
		w.forward[sp.sequence] = w.top()
	}
}

// inside reports whether in runs inside out, which began no later.
func (w *sweep) inside(in, out *span) bool {
	if in.start >= out.end && in.end > in.start {
		return false
	}
	return in.end <= out.end+w.slack && in.start <= out.end
}

func (w *sweep) event(m *memory) {
	for n := len(w.stack); n > 0 && w.stack[n-1].sp.end < m.time; n = len(w.stack) {
		w.stack = w.stack[:n-1]
	}
	m.stack = w.top()
	if n := len(w.stack); n > 0 {
		up := &w.stack[n-1]
		m.sequence = up.seq
		if up.inOp != traces.NoOp {
			m.op = w.ops[up.inOp].Name
		}
	}
}

// top returns the stack of the frames that are open now. It is the same for everything directly inside one
// range, so each range keeps it.
func (w *sweep) top() traces.StackID {
	n := len(w.stack)
	if n == 0 {
		return traces.NoStack
	}
	o := &w.stack[n-1]
	if o.stacked {
		return o.stack
	}
	o.stacked = true
	w.frames = w.frames[:0]
	calls := traces.NoStack
	for i := n - 1; i >= 0; i-- {
		sp := w.stack[i].sp
		if sp.kind == spanMark {
			continue
		}
		if len(w.frames) == maxStack {
			w.p.b.Lose("stacks_cut", traces.DataLoss, 1,
				"stacks deeper than 256 frames lack their outermost ones")
			break
		}
		w.frames = append(w.frames, sp.frame)
		if calls == traces.NoStack {
			calls = sp.callStack
		}
	}
	frames := w.p.b.T.Stacks.At(calls)
	w.frames = append(w.frames, frames[:min(len(frames), maxStack-len(w.frames))]...)
	o.stack = w.p.b.Stack(w.frames)
	return o.stack
}

func (w *sweep) join(path, name traces.StringID) traces.StringID {
	if path == 0 {
		return name
	}
	key := [2]traces.StringID{path, name}
	if id, ok := w.modules[key]; ok {
		return id
	}
	id := w.p.b.String(w.p.b.T.Strings[path] + "." + w.p.b.T.Strings[name])
	w.modules[key] = id
	return id
}

// phaseOf says which phase a range itself begins. What runs inside inherits the phase, so that recomputation
// in the backward pass stays backward.
func (w *sweep) phaseOf(sp *span) traces.Phase {
	if sp.kind == spanPython {
		if sp.name != 0 {
			return traces.PhaseForward
		}
		return traces.PhaseUnknown
	}
	name := w.p.b.T.Strings[sp.name]
	switch {
	case sp.backward, strings.HasPrefix(name, "autograd::engine::evaluate_function"):
		return traces.PhaseBackward
	case strings.HasPrefix(name, optimizerPrefix):
		return traces.PhaseOptimizer
	case strings.HasSuffix(name, "Parallel.forward"):
		return traces.PhaseForward
	}
	return traces.PhaseUnknown
}

// markForward gives the forward phase to ops that have no module around them and whose backward op the
// profile holds, and to what runs inside them. An op's parent comes before it.
func (w *sweep) markForward() {
	for i := range w.ops {
		op := &w.ops[i]
		if op.Phase != traces.PhaseUnknown {
			continue
		}
		if w.opSeq[i] >= 0 && w.backward[w.opSeq[i]] || op.Parent != traces.NoOp &&
			w.ops[op.Parent].Phase == traces.PhaseForward {
			op.Phase = traces.PhaseForward
		}
	}
}
