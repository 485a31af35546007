package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// The compiled problem: what never changes between candidates, as columns by op, gap and buffer.
//
// A gap is an idle interval of a buffer, from one access to the next. Each is listed with the times of its
// copies and of its producers, and with whether the buffer can leave at all. A gap is dead if the buffer
// holds nothing that is read again: its memory is always released.
//
// Complexity: O(ops x streams + accesses + gaps log gaps), plus package chain's cost of each chain.

// A choice is what becomes of an idle interval.
type choice uint8

const (
	keep choice = iota
	swap
	recompute
	discard // its contents are not needed again; fixed from the start
)

// none stands for no op, gap, span or other thing in what holds indices of them.
const none = -1

// gap is an idle interval of a buffer with the costs of moving it.
type gap struct {
	buffer        plan.BufferID
	after, before plan.OpID
	// the op that last wrote its contents, none if no op of the iteration did; a copy out need not wait for
	// later readers
	writer                  plan.OpID
	size                    int64
	evictTime, prefetchTime int64 // time of the copies, in nanoseconds
	// time of the ops that made the value, in nanoseconds; 0 unless producersRerun
	producersTime int64
	canSwap       bool
	canRecompute  bool // whatever else is absent
	// time of the whole chain if nothing else is absent: the ops that made the value, and those that must run
	// first because their results are gone by then
	chainTime      int64
	producersRerun bool // possible in some plans, perhaps not in all
	dead           bool
}

// variant is a slower way to compute an op that needs less workspace than the fastest.
type variant struct {
	op           int32
	index        uint8
	saves, costs int64 // bytes, nanoseconds
}

// model is a problem compiled for planning: what never changes between candidates.
type model struct {
	p      *plan.Problem
	params params
	n      int
	k      int // streams

	inline bool // there are no copy engines: copies run on the first stream
	// time of the hooks if anything leaves memory and returns, and the additional time if anything is
	// recomputed
	saving, noting int64

	gaps      []gap
	first     []int32            // gaps of buffer b are gaps[first[b]:first[b+1]], in order of time
	byBefore  []int32            // the gaps that can be absent, ordered by before
	producers jagged[plan.OpID]  // for each gap that can be dropped, the ops that made its contents
	choices   []int32            // the gaps with a choice, in index order
	writes    jagged[plan.Touch] // for each buffer, the touches that do more than read, in order of time

	fast     []uint8 // the fastest variant of each op
	variants []variant
	dur      []int64 // duration of each op with its fastest variant
	work     []int64 // bytes of each op's workspace with its fastest variant
	issue    []int64 // when the host can have issued each op
	load     []int64 // bytes alive during each op with the fastest variants and all discards
	born     []int64 // the part of load that is allocated with the op
	// the op's own operands, including persistent buffers: no plan holds less while it runs
	operands []int64
	least    []int64 // the least load of each op that choices can reach, never less than its operands

	behind     jagged[int32] // for each op, the ops of other streams that it must wait for
	start, end []int64       // of each op, constrained only by data and queues
	baseTime   int64         // end of the last op

	persistent int64
	floor      int64 // the least peak that any choices reach
	peak       int64 // the maximum of load
}

// compile builds the model of a problem.
func compile(p *plan.Problem, par params) *model {
	if p.EagerOnly {
		p = recorded(p)
	}
	m := &model{p: p, params: par, n: len(p.Ops), k: p.Streams, inline: p.Hardware.NoEngines}
	m.saving, m.noting = hooks(p)
	m.floor = p.MustReside().Total()
	m.fastest()
	m.findWrites()
	m.findGaps()
	m.loads()
	m.times()
	return m
}

// recorded returns the problem without variants of ops, of which eager PyTorch lets no plan choose: each op
// keeps the time and the workspace that were recorded.
func recorded(p *plan.Problem) *plan.Problem {
	has := func(op plan.Op) bool { return len(op.Variants) > 0 }
	if !slices.ContainsFunc(p.Ops, has) {
		return p
	}
	q := *p
	q.Ops = slices.Clone(p.Ops)
	for i := range q.Ops {
		q.Ops[i].Variants = nil
	}
	return &q
}

// hooks returns the time of an iteration's hooks if tensors leave memory and return, and the additional time
// if ops are rerun, in nanoseconds.
func hooks(p *plan.Problem) (saving, noting int64) {
	for i := range p.Ops {
		x := p.Hardware.HookTime(&p.Ops[i], false)
		saving, noting = saving+x, noting+p.Hardware.HookTime(&p.Ops[i], true)-x
	}
	return saving, noting
}

// fastest picks the fastest variant of each op, and of two equally fast ones that with less workspace.
func (m *model) fastest() {
	p := m.p
	m.fast = make([]uint8, m.n)
	m.dur, m.work, m.issue = make([]int64, m.n), make([]int64, m.n), make([]int64, m.n)
	var host int64
	for i := range p.Ops {
		op := &p.Ops[i]
		m.dur[i] = op.Duration
		if op.Workspace != plan.NoBuffer {
			m.work[i] = p.Rounded(op.Workspace)
		}
		if len(op.Variants) > 0 {
			best := 0
			for k := range op.Variants {
				a, b := &op.Variants[k], &op.Variants[best]
				if a.Duration < b.Duration || a.Duration == b.Duration && a.Workspace < b.Workspace {
					best = k
				}
			}
			m.dur[i], m.work[i] = m.variantCost(i, best)
			m.fast[i] = uint8(best)
			for k := range op.Variants {
				if d, w := m.variantCost(i, k); w < m.work[i] {
					m.variants = append(
						m.variants,
						variant{op: int32(i), index: uint8(k), saves: m.work[i] - w, costs: d - m.dur[i]},
					)
				}
			}
		}
		host += op.Gap + p.Hardware.LaunchGap
		m.issue[i] = host
	}
}

// variantCost returns the time and the rounded workspace of op i with its k-th variant.
func (m *model) variantCost(i, k int) (dur, work int64) {
	op := &m.p.Ops[i]
	if len(op.Variants) == 0 {
		return m.dur[i], m.work[i]
	}
	if op.Workspace != plan.NoBuffer {
		work = (op.Variants[k].Workspace + m.p.Align - 1) &^ (m.p.Align - 1)
	}
	return op.Variants[k].Duration, work
}

// findGaps lists idle intervals by buffer and time, including those in which the buffer holds nothing: before
// a first access that writes, and after the last access.
func (m *model) findGaps() {
	p := m.p
	m.first = make([]int32, len(p.Buffers)+1)
	known := p.Gaps(1, 1)
	chains := chain.New(p)
	canSwap := p.Kind >= traces.Accesses
	discards := !p.EagerOnly // eager PyTorch never releases memory that a tensor holds, whatever its contents
	for i := range p.Buffers {
		b := plan.BufferID(i)
		m.first[b] = int32(len(m.gaps))
		buf, touches := &p.Buffers[b], p.TouchesOf(b)
		inside := canSwap && discards && buf.Life == plan.Inside && p.Rounded(b) > 0 && len(touches) > 0
		if inside && touches[0].Mode == plan.Write && touches[0].Op > buf.Start+1 {
			m.addDead(b, buf.Start, touches[0].Op)
		}
		for ; len(known) > 0 && known[0].Buffer == b; known = known[1:] {
			switch k := known[0]; {
			case !canSwap || k.Dead && !discards:
			case k.Dead:
				m.addDead(b, k.After, k.Before)
			default:
				m.addGap(chains, k, len(known) < m.params.chainsAlone)
			}
		}
		if last := len(touches) - 1; inside && buf.End-1 > touches[last].Op+1 {
			m.addDead(b, touches[last].Op, buf.End-1)
		}
	}
	m.first[len(p.Buffers)] = int32(len(m.gaps))
	for g := range m.gaps {
		m.byBefore = append(m.byBefore, int32(g))
		if !m.gaps[g].dead {
			m.choices = append(m.choices, int32(g))
		}
	}
	m.findProducers()
	slices.SortStableFunc(m.byBefore, func(a, b int32) int {
		return cmp.Compare(m.gaps[a].before, m.gaps[b].before)
	})
}

// addDead adds an interval in which a buffer holds nothing that is read again.
func (m *model) addDead(b plan.BufferID, after, before plan.OpID) {
	m.gaps = append(m.gaps, gap{
		buffer: b, after: after, before: before, size: m.p.Rounded(b), dead: true,
	})
}

// addGap adds an interval across which a buffer holds a value. If costed is set, it also computes the time of
// the chain that recomputes the value.
func (m *model) addGap(chains *chain.Builder, k plan.Gap, costed bool) {
	p, size := m.p, m.p.Rounded(k.Buffer)
	g := gap{
		buffer: k.Buffer, after: k.After, before: k.Before, writer: m.writer(k.Buffer, k.After), size: size,
		canSwap: true, evictTime: p.Hardware.D2H.Time(size), prefetchTime: p.Hardware.H2D.Time(size),
	}
	if p.Kind >= traces.Dataflow {
		g.producersRerun = m.producersRerun(k.Buffer, k.Before)
		if g.canRecompute, _ = chains.Recomputable(k); g.canRecompute && costed {
			g.chainTime, _, _ = chains.Cost(k, nil)
		}
	}
	m.gaps = append(m.gaps, g)
}

// findWrites lists the writes of each buffer, because chains look for them at every step and most touches
// read.
func (m *model) findWrites() {
	m.writes = newJagged[plan.Touch](len(m.p.Buffers))
	for b := range m.p.Buffers {
		for _, t := range m.p.TouchesOf(plan.BufferID(b)) {
			if t.Mode != plan.Read {
				m.writes.add(t)
			}
		}
		m.writes.end()
	}
}

// writtenIn reports whether an op in [from, to) gives buffer b a new value.
func (m *model) writtenIn(b plan.BufferID, from, to plan.OpID) bool {
	touches := m.writes.of(int32(b))
	for _, t := range touches[plan.FirstTouch(touches, from):] {
		if t.Op >= to {
			return false
		}
		if t.Mode.Writes() {
			return true
		}
	}
	return false
}

// producersRerun reports whether the ops that made b's value before op at are known and can be rerun.
func (m *model) producersRerun(b plan.BufferID, at plan.OpID) bool {
	ops, ok := m.p.Producer(b, at)
	for _, o := range ops {
		ok = ok && m.p.Ops[o].Rerunnable
	}
	return ok
}

// writer returns the last op up to and including after that wrote buffer b. A buffer that is allocated in the
// iteration and only read, such as a batch that the host filled, counts as written by the first op that
// touches it, as in [plan.Plan.Order]. none means that the value was there before the iteration.
func (m *model) writer(b plan.BufferID, after plan.OpID) plan.OpID {
	touches := m.p.TouchesOf(b)
	for k := plan.FirstTouch(touches, after+1) - 1; k >= 0; k-- {
		if touches[k].Mode.Writes() {
			return touches[k].Op
		}
	}
	if m.p.Buffers[b].Life == plan.Inside && len(touches) > 0 {
		return touches[0].Op
	}
	return none
}

// findProducers lists the ops that made the contents of each gap, and adds up the time to rerun them.
func (m *model) findProducers() {
	m.producers = newJagged[plan.OpID](len(m.gaps))
	for g := range m.gaps {
		if x := &m.gaps[g]; x.producersRerun {
			ops, _ := m.p.Producer(x.buffer, x.before)
			m.producers.add(ops...)
			for _, o := range ops {
				x.producersTime += m.dur[o] + m.p.Hardware.AgainTime
			}
			x.chainTime = max(x.chainTime, x.producersTime)
		}
		m.producers.end()
	}
}

// loads computes what is alive during each op when everything is kept except discards.
func (m *model) loads() {
	p := m.p
	for _, perOp := range []*[]int64{&m.load, &m.born, &m.operands, &m.least} {
		*perOp = make([]int64, m.n+1)
	}
	for b := range p.Buffers {
		buf, size := &p.Buffers[b], p.Rounded(plan.BufferID(b))
		if buf.Life == plan.Persistent {
			m.persistent += size
		}
		if buf.Life != plan.Persistent && int(buf.Start) < m.n {
			m.born[buf.Start] += size
		}
	}
	copy(m.load, p.Load())
	delta := make([]int64, m.n+1)
	for g := range m.gaps {
		if x := &m.gaps[g]; x.dead {
			delta[x.after+1] -= x.size
			delta[x.before] += x.size
		}
	}
	seen := make([]int32, len(p.Buffers))
	var sum int64
	for i := range m.n {
		sum += delta[i]
		m.load[i] += sum
		op := &p.Ops[i]
		if w := op.Workspace; w != plan.NoBuffer {
			m.load[i] += m.work[i] - p.Rounded(w)
			m.born[i] += m.work[i] - p.Rounded(w)
			seen[w] = int32(i) + 1
		}
		m.operands[i] = m.persistent + m.work[i]
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if seen[a.Buffer] != int32(i)+1 && p.Buffers[a.Buffer].Life != plan.Persistent {
				seen[a.Buffer] = int32(i) + 1
				m.operands[i] += p.Rounded(a.Buffer)
			}
		}
		m.peak = max(m.peak, m.load[i])
	}
	m.leastLoad()
}

// leastLoad computes the load when everything that can be absent is, with the least workspaces. It exceeds
// the operands of an op where buffers cannot leave, such as those carried into the next iteration.
func (m *model) leastLoad() {
	delta := make([]int64, m.n+1)
	for g := range m.gaps {
		if x := &m.gaps[g]; x.canSwap || x.canRecompute {
			delta[x.after+1] -= x.size
			delta[x.before] += x.size
		}
	}
	saved := make([]int64, m.n)
	for i := range m.variants {
		x := &m.variants[i]
		saved[x.op] = max(saved[x.op], x.saves)
	}
	var sum int64
	for i := range m.n {
		sum += delta[i]
		least := m.load[i] + sum - saved[i]
		m.least[i], m.floor = max(m.operands[i], least), max(m.floor, least)
	}
}

// times runs the ops on their streams. Each waits for the ops that made its inputs, and for ops of other
// streams that read what it overwrites.
func (m *model) times() {
	p := m.p
	m.start, m.end = make([]int64, m.n), make([]int64, m.n)
	m.crossing()
	ready := make([]int64, m.k)
	for i := range m.n {
		q := p.Ops[i].Stream
		t := max(ready[q], m.issue[i])
		for _, d := range m.behind.of(int32(i)) {
			t = max(t, m.end[d])
		}
		m.start[i], m.end[i] = t, t+m.dur[i]
		ready[q] = m.end[i]
		m.baseTime = max(m.baseTime, m.end[i])
	}
}

// crossing finds, for each op, the last op of every other stream with which it conflicts on some buffer.
func (m *model) crossing() {
	p := m.p
	wrote := make([]int32, len(p.Buffers))    // last writer
	read := make([]int32, len(p.Buffers)*m.k) // last op that touched it, by stream
	before := make([]int32, m.k)              // of the current op
	known := make([]int32, m.k*m.k)           // the ops that each stream is already known to follow
	m.behind = newJagged[int32](m.n)
	for _, s := range [][]int32{wrote, read, known} {
		for i := range s {
			s[i] = none
		}
	}
	for i := range m.n {
		q := int(p.Ops[i].Stream)
		for r := range before {
			before[r] = none
		}
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if w := wrote[a.Buffer]; w >= 0 {
				r := p.Ops[w].Stream
				before[r] = max(before[r], w)
			}
			if a.Mode.Writes() {
				for r, t := range read[int(a.Buffer)*m.k : (int(a.Buffer)+1)*m.k] {
					before[r] = max(before[r], t)
				}
			}
		}
		for r, d := range before {
			if r != q && d > known[q*m.k+r] {
				known[q*m.k+r] = d
				m.behind.add(d)
			}
		}
		m.behind.end()
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			read[int(a.Buffer)*m.k+q] = int32(i)
			if a.Mode.Writes() {
				wrote[a.Buffer] = int32(i)
			}
		}
	}
}

// gapOf returns the gap of buffer b that covers position at (after < at <= before), or none.
func (m *model) gapOf(b plan.BufferID, at plan.OpID) int32 {
	lo, hi := m.first[b], m.first[b+1]
	for lo < hi {
		mid := (lo + hi) / 2
		if m.gaps[mid].before < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < m.first[b+1] && m.gaps[lo].after < at {
		return lo
	}
	return none
}

// alive reports whether buffer b holds memory at position at, before the op there takes its own.
func (m *model) alive(b plan.BufferID, at plan.OpID) bool {
	switch buf := &m.p.Buffers[b]; buf.Life {
	case plan.Persistent:
		return true
	case plan.Carried:
		return at > buf.Start || at < buf.End
	default:
		return buf.Start < at && at < buf.End
	}
}

// inOrder reports whether both ends of a gap are on one stream: then the value is present whenever an op of
// that stream between them runs. What another stream does at that moment is not known.
func (m *model) inOrder(x *gap) bool {
	return m.p.Ops[x.after].Stream == m.p.Ops[x.before].Stream
}
