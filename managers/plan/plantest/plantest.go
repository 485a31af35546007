// Package plantest makes problems for tests: small trainings of known shape and random ones that obey every
// rule a recording obeys.
package plantest

import (
	"fmt"
	"math/rand/v2"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// hardware is a device on which a copy of 1 MiB takes about as long as an op of [Chain]: 1 GiB/s each way, no
// latency.
func hardware() plan.Hardware {
	link := plan.Link{BytesPerSecond: 1 << 30}
	return plan.Hardware{Name: "test", Origin: "made up for tests", D2H: link, H2D: link, Together: 1}
}

// Builder adds ops and buffers one by one; End closes it.
type Builder struct{ P plan.Problem }

// New returns a builder of a dataflow problem with alignment 1 on one stream.
func New() *Builder {
	return &Builder{plan.Problem{Name: "test", Kind: traces.Dataflow, Align: 1, Streams: 1,
		Hardware: hardware(), HasTimes: true}}
}

// Buffer adds a buffer whose lifetime End determines: from its first access until after its last.
func (b *Builder) Buffer(name string, size int64, c timeline.Category) plan.BufferID {
	b.P.Buffers = append(b.P.Buffers, plan.Buffer{Name: name, Size: size, Category: c, Start: -1,
		Alloc: timeline.NoAlloc})
	return plan.BufferID(len(b.P.Buffers) - 1)
}

// Persistent adds a buffer that stays.
func (b *Builder) Persistent(name string, size int64, c timeline.Category) plan.BufferID {
	id := b.Buffer(name, size, c)
	b.P.Buffers[id].Life = plan.Persistent
	return id
}

// Op adds an op that reads and writes whole buffers, re-runnable if it is of the forward pass.
func (b *Builder) Op(name string, phase traces.Phase, duration int64, reads,
	writes []plan.BufferID) plan.OpID {
	first := int32(len(b.P.Accesses))
	for _, r := range reads {
		b.P.Accesses = append(b.P.Accesses, plan.Access{Buffer: r, Mode: plan.Read})
	}
	for _, w := range writes {
		b.P.Accesses = append(b.P.Accesses, plan.Access{Buffer: w, Mode: plan.Write})
	}
	b.P.Ops = append(b.P.Ops, plan.Op{Name: name, Module: name, Duration: duration, First: first,
		End: int32(len(b.P.Accesses)), Phase: phase,
		Workspace: plan.NoBuffer, Rerunnable: phase == traces.PhaseForward})
	return plan.OpID(len(b.P.Ops) - 1)
}

// Mutate adds an access in place to the last op.
func (b *Builder) Mutate(id plan.BufferID) {
	b.P.Accesses = append(b.P.Accesses, plan.Access{Buffer: id, Mode: plan.Mutate})
	b.P.Ops[len(b.P.Ops)-1].End++
}

// End gives buffers their lifetimes and returns the finished problem; it panics if the problem contradicts
// itself, which is the test's fault.
func (b *Builder) End() *plan.Problem {
	p := b.P
	for i := range p.Ops {
		for _, a := range p.Accesses[p.Ops[i].First:p.Ops[i].End] {
			buf := &p.Buffers[a.Buffer]
			if buf.Life != plan.Inside {
				continue
			}
			if buf.Start < 0 {
				buf.Start = plan.OpID(i)
			}
			buf.End = plan.OpID(i) + 1
		}
	}
	for i := range p.Buffers {
		// nothing touches it: alive throughout
		if p.Buffers[i].Life == plan.Inside && p.Buffers[i].Start < 0 {
			p.Buffers[i].Start, p.Buffers[i].End = 0, plan.OpID(len(p.Ops))
		}
	}
	if err := p.Finish(); err != nil {
		panic(fmt.Sprintf("plantest: %v", err))
	}
	return &p
}

// Chain returns the training of n equal layers: forward layer i reads activation i and its weight and writes
// activation i+1; backward layer i reads the gradient of activation i+1 and activation i and writes the
// gradient of activation i. Activations have size bytes, ops take opTime nanoseconds.
func Chain(n int, size, opTime int64) *plan.Problem { return Accumulated(1, n, size, opTime) }

// Accumulated returns the training of [Chain] with gradients accumulated over micro-batches: as many forward
// passes, each followed by its backward pass.
func Accumulated(microBatches, n int, size, opTime int64) *plan.Problem {
	b := New()
	weights := make([]plan.BufferID, n)
	for k := range microBatches {
		acts := make([]plan.BufferID, n+1)
		for i := range acts {
			acts[i] = b.Buffer(fmt.Sprintf("act%d", i), size, timeline.Activation)
		}
		for i := 0; k == 0 && i < n; i++ {
			weights[i] = b.Persistent(fmt.Sprintf("weight%d", i), size/8, timeline.Parameter)
		}
		input := b.Op("input", traces.PhaseForward, opTime, nil, acts[:1])
		b.P.Ops[input].Rerunnable = false
		for i := range n {
			b.Op(fmt.Sprintf("forward%d", i), traces.PhaseForward, opTime,
				[]plan.BufferID{acts[i], weights[i]},
				acts[i+1:i+2])
		}
		grad := b.Buffer(fmt.Sprintf("grad%d", n), size, timeline.Gradient)
		b.Op("loss", traces.PhaseBackward, opTime, acts[n:], []plan.BufferID{grad})
		for i := n - 1; i >= 0; i-- {
			next := b.Buffer(fmt.Sprintf("grad%d", i), size, timeline.Gradient)
			b.Op(fmt.Sprintf("backward%d", i), traces.PhaseBackward, 2*opTime,
				[]plan.BufferID{grad, acts[i], weights[i]}, []plan.BufferID{next})
			grad = next
		}
	}
	return b.End()
}

// Random returns a random problem of about n ops that obeys every rule: values are written before they are
// read, some in place, some buffers persist or are carried into the next iteration, some ops have workspaces
// and variants, there are one to three streams.
func Random(seed uint64, n int) *plan.Problem {
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	b := New()
	b.P.Streams = 1 + r.IntN(3)
	b.P.Align = int64(1) << r.IntN(10)
	if r.IntN(2) == 0 {
		b.P.Hardware.Together = 0.5 + r.Float64()/2
	}
	b.P.Hardware.LaunchGap = int64(r.IntN(5000))
	size := func() int64 { return 1 + int64(r.IntN(1<<(4+r.IntN(16)))) }
	var live []plan.BufferID
	for range 1 + r.IntN(4) {
		live = append(live, b.Persistent("weight", size(), timeline.Parameter))
	}
	n = max(n, 4)
	for i := range n {
		phase := traces.PhaseForward
		if i >= n/2 {
			phase = traces.PhaseBackward
		}
		var reads []plan.BufferID
		for range r.IntN(4) {
			reads = append(reads, live[r.IntN(len(live))])
		}
		var writes []plan.BufferID
		for range 1 + r.IntN(2) {
			c := timeline.Activation
			if phase == traces.PhaseBackward {
				c = timeline.Gradient
			}
			writes = append(writes, b.Buffer(fmt.Sprintf("t%d", len(b.P.Buffers)), size(), c))
		}
		id := b.Op(fmt.Sprintf("op%d", i), phase, int64(r.IntN(200_000)), reads, writes)
		op := &b.P.Ops[id]
		op.Stream = int16(r.IntN(b.P.Streams))
		op.Rerunnable = r.IntN(4) > 0
		op.Class = plan.Class(r.IntN(int(plan.ClassOptimizer)))
		for _, w := range writes {
			b.P.Buffers[w].Stream = op.Stream
		}
		if r.IntN(5) == 0 {
			b.Mutate(live[r.IntN(len(live))])
		}
		if r.IntN(6) == 0 {
			w := b.Buffer(fmt.Sprintf("workspace%d", i), size(), timeline.Temporary)
			b.P.Ops[id].Workspace = w
			b.P.Buffers[w].Start, b.P.Buffers[w].End, b.P.Buffers[w].Stream = id, id+1, b.P.Ops[id].Stream
			d := b.P.Ops[id].Duration
			b.P.Ops[id].Variants = []plan.Variant{{Name: "fast", Duration: d, Workspace: b.P.Buffers[w].Size},
				{Name: "small", Duration: 2 * d}}
		}
		live = append(live, writes...)
		if len(live) > 24 {
			live = append(live[:4], live[len(live)-16:]...)
		}
	}
	// a few are carried: written at the end, read at the beginning of the next iteration
	for i := range b.P.Buffers {
		if buf := &b.P.Buffers[i]; buf.Life == plan.Inside && b.P.Ops[0].Workspace != plan.BufferID(i) &&
			r.IntN(40) == 0 {
			if first, last := span(&b.P, plan.BufferID(i)); first > 2 && first == last {
				buf.Life, buf.Start, buf.End = plan.Carried, first, 1+plan.OpID(r.IntN(2))
			}
		}
	}
	return b.End()
}

// span returns the first and the last op that touch a buffer, -1 if none does or it is a workspace.
func span(p *plan.Problem, b plan.BufferID) (first, last plan.OpID) {
	first, last = -1, -1
	for i := range p.Ops {
		if p.Ops[i].Workspace == b {
			return -1, -1
		}
		for _, a := range p.Accesses[p.Ops[i].First:p.Ops[i].End] {
			if a.Buffer == b {
				if first < 0 {
					first = plan.OpID(i)
				}
				last = plan.OpID(i)
			}
		}
	}
	return first, last
}

// RandomDecisions returns random absences of p, each of which can be carried out: swaps of idle intervals,
// and recomputation of single rerunnable ops whose inputs are alive and present throughout.
func RandomDecisions(p *plan.Problem, seed uint64, share float64) plan.Decisions {
	r := rand.New(rand.NewPCG(seed, 77))
	var d plan.Decisions
	gone := map[plan.BufferID]bool{}
	for _, g := range p.Gaps(1, 1) {
		if r.Float64() > share {
			continue
		}
		x := plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before}
		room := int(g.Before - g.After - 1)
		x.Release = g.After + 1 + plan.OpID(r.IntN(room+1))
		x.Fetch = x.Release + plan.OpID(r.IntN(int(g.Before-x.Release)+1))
		x.Blocking, x.Paced = r.IntN(2) == 0, r.IntN(2) == 0
		switch {
		case g.Dead && r.IntN(2) == 0:
			x.How = plan.Discard
		case r.IntN(2) == 0:
			chain, ok := p.Producer(g.Buffer, g.Before)
			if !ok || len(chain) != 1 || !p.Ops[chain[0]].Rerunnable || !alone(p, chain[0], g, gone) {
				break
			}
			x.How, x.Fetch = plan.Recompute, g.Before
			d.Reruns = append(d.Reruns, plan.Rerun{Before: g.Before, Ops: chain})
		}
		gone[g.Buffer] = true
		d.Absences = append(d.Absences, x)
	}
	return d
}

// alone reports whether the op can be rerun at the gap's end: it writes only the gap's buffer, and reads
// buffers that stay there, unchanged.
func alone(p *plan.Problem, op plan.OpID, g plan.Gap, gone map[plan.BufferID]bool) bool {
	for _, a := range p.AccessesOf(op) {
		if a.Mode.Writes() {
			if a.Buffer != g.Buffer {
				return false
			}
			continue
		}
		b := &p.Buffers[a.Buffer]
		if gone[a.Buffer] || b.Life == plan.Carried || !b.AliveAt(g.Before) || a.Buffer == g.Buffer {
			return false
		}
		for _, t := range p.TouchesOf(a.Buffer) {
			if t.Op > op && t.Op < g.Before && t.Mode.Writes() {
				return false
			}
		}
		for _, later := range p.Gaps(1, 1) { // its own absence may come later in the list
			if later.Buffer == a.Buffer && later.After < g.Before && g.Before < later.Before {
				return false
			}
		}
	}
	return true
}
