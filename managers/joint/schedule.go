package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// schedule turns choices into positions, and says what they cost. It is the inner loop of planning: everything is kept in columns that are used again.
//
// The order of work: what is absent at the most (from one access to the next) gives the least memory; reruns are placed in order of time and keep what
// they make as long as memory allows; copies back are placed backwards from when they are needed, each as late as the copy engine permits; then one walk
// in order of time issues copies out, releases each when it is done, earlier where the memory is needed, and adds up what compute waits for.
type schedule struct {
	m      *model
	limit  []int64 // of each position, most bytes
	dur    []int64 // of each op under its variant
	work   []int64
	lead   float64 // copies back begin this share of their own time earlier than they must
	noSwap bool    // swapping is switched off

	choice         []choice // of each gap, as asked
	eff            []choice // of each gap, as carried out
	release, fetch []plan.OpID
	due            []plan.OpID // of each swap, the position by which it must be back
	load           []int64
	spare          []int64 // of each position, bytes held while its rerun runs; 0 where there is none
	redo           []int64 // of each position, time of its rerun
	pinned         []int64
	gone           []plan.OpID // of each swap, the position by which its first stay must be over, since a chain makes it again as scratch
	clock          []int64     // of each position, when all ops before it are done
	start, end     []int64
	outEnd         []int64 // of each swap
	reruns         []rerun
	ops            []plan.OpID // of all reruns
	time           int64       // estimated step time
	over           int64       // bytes by which positions pass their limits, summed
	stall          int64
	wait           []int64 // of each position, how long compute stands still there
	way            []uint8 // of each op, its variant

	steps       int64 // counted work: positions, gaps and accesses looked at
	looked      int   // ops looked at for chains
	stamp       int32
	opMark      []int32 // of each op, the stamp of the chain that it is in
	lastUse     []int32 // of each buffer, its last use in the chain
	useMark     []int32
	targets     []int32
	keeps       []int32
	pulls       []int32
	stack       []need
	freed       []int64 // of each op of a chain, bytes of what it is the last to use
	ins         []int32
	pending     []int32
	ready       []int64
	room, added []int64 // by block, while copies back are placed
	groups      []group // of the copies back placed so far, the last to be issued first
	out         lists   // the swaps, by the op behind which they leave
	inEnd       []int64
}

// rerun is a chain before position at: ops[from:to] of the schedule.
type rerun struct {
	at       plan.OpID
	from, to int32
}

// need is a value that a chain has to have: what buffer holds just before op at.
type need struct {
	buffer plan.BufferID
	at     plan.OpID
}

func newSchedule(m *model) *schedule {
	n, g, b := m.n, len(m.gaps), len(m.p.Buffers)
	s := &schedule{m: m, limit: make([]int64, n+1), dur: slices.Clone(m.dur), work: slices.Clone(m.work),
		choice: make([]choice, g), eff: make([]choice, g), release: make([]plan.OpID, g), fetch: make([]plan.OpID, g), due: make([]plan.OpID, g),
		load: make([]int64, n+1), spare: make([]int64, n+1), redo: make([]int64, n+1), pinned: make([]int64, n+1), wait: make([]int64, n+1), way: make([]uint8, n), gone: make([]plan.OpID, g), clock: make([]int64, n+1),
		start: make([]int64, n+1), end: make([]int64, n+1), outEnd: make([]int64, g), inEnd: make([]int64, g),
		out: newLists(n, g), opMark: make([]int32, n), lastUse: make([]int32, b), useMark: make([]int32, b), ready: make([]int64, m.k)}
	return s
}

// run works the schedule out for the choices, the limits and the variants that are set.
func (s *schedule) run() {
	s.over, s.looked, s.reruns, s.ops = 0, 0, s.reruns[:0], s.ops[:0]
	s.steps += int64(s.m.n + len(s.m.gaps))
	s.absent()
	s.rerunAll()
	s.nominal()
	s.fetches()
	if s.m.inline {
		s.serial()
	} else {
		s.forward()
	}
	s.excess()
}

// absent takes out of the load what is chosen to be absent, for as long as it can be.
func (s *schedule) absent() {
	m := s.m
	delta := s.pinned // borrowed: pinned is filled at the end
	clear(delta)
	for g := range m.gaps {
		x := &m.gaps[g]
		s.eff[g] = s.choice[g]
		if x.dead {
			s.eff[g] = discard
		}
		s.release[g], s.fetch[g], s.due[g], s.gone[g] = x.after+1, x.before, x.before, x.before
		if s.eff[g] == swap || s.eff[g] == drop {
			delta[x.after+1] -= x.size
			delta[x.before] += x.size
		}
	}
	var sum int64
	for i := range m.n {
		sum += delta[i]
		s.load[i] = m.load[i] + sum + s.work[i] - m.work[i]
		s.spare[i], s.redo[i] = 0, 0
	}
	s.load[m.n], s.spare[m.n], s.redo[m.n] = 0, 0, 0
}

// fits reports whether size more bytes fit during ops [from, to).
func (s *schedule) fits(size int64, from, to plan.OpID) bool {
	for i := from; i < to; i++ {
		if s.load[i]+size > s.limit[i] {
			s.steps += int64(i-from) / 4
			return false
		}
	}
	s.steps += int64(to-from) / 4
	return true
}

func (s *schedule) add(size int64, from, to plan.OpID) {
	for i := from; i < to; i++ {
		s.load[i] += size
	}
}

// present reports whether buffer b holds memory at position at, and the gap that it is absent in where it does not; -1 where it is not alive.
func (s *schedule) present(b plan.BufferID, at plan.OpID) (bool, int32) {
	if !s.m.alive(b, at) {
		return false, -1
	}
	g := s.m.gapOf(b, at)
	there := g < 0
	if !there {
		switch s.eff[g] {
		case keep:
			there = true
		case swap:
			there = s.fetch[g] <= at // copies back are issued before the rerun
		case drop:
			there = s.fetch[g] < at
		}
	}
	return there, g
}

// writtenIn reports whether an op of [from, to) gives buffer b another value.
func (s *schedule) writtenIn(b plan.BufferID, from, to plan.OpID) bool {
	touches := s.m.writesOf(b)
	k, _ := slices.BinarySearchFunc(touches, from, func(t plan.Touch, at plan.OpID) int { return cmp.Compare(t.Op, at) })
	for ; k < len(touches) && touches[k].Op < to; k++ {
		if touches[k].Mode.Writes() {
			return true
		}
	}
	return false
}

// nominal works out when compute comes to each position if no copy is ever waited for.
func (s *schedule) nominal() {
	m := s.m
	if m.k == 1 {
		var t int64
		for i := range m.n {
			s.clock[i] = t
			t = max(t+s.redo[i], m.issue[i])
			s.start[i] = t
			t += s.dur[i]
			s.end[i] = t
		}
		s.clock[m.n] = t
		return
	}
	clear(s.ready)
	var all int64
	for i := range m.n {
		s.clock[i] = all
		s.begin(i)
		all = max(all, s.end[i])
	}
	s.clock[m.n] = all
}

// begin gives op i its times on its stream.
func (s *schedule) begin(i int) {
	m := s.m
	q := m.p.Ops[i].Stream
	if s.redo[i] > 0 { // the chain runs on its ops' own streams: taken as the op's
		s.ready[q] += s.redo[i]
	}
	t := max(s.ready[q], m.issue[i])
	for _, d := range m.dep[m.depAt[i]:m.depAt[i+1]] {
		t = max(t, s.end[d])
	}
	s.start[i], s.end[i] = t, t+s.dur[i]
	s.ready[q] = s.end[i]
}

// forward walks the iteration once with all queues, and releases what has been copied out when it is done, or earlier where memory is needed.
func (s *schedule) forward() {
	m := s.m
	// Gaps by the op behind which they leave; among equals in the order in which they return, as plan.Assemble issues them.
	s.out.sort(s.ins, func(g int32) plan.OpID { return m.gaps[g].after })
	clear(s.ready)
	s.pending = s.pending[:0]
	var outFree, inFree, held, all int64
	s.stall = 0
	nextIn, nextDue := 0, 0 // ins are in order of fetch, and in order of due
	first := 0              // of pending
	var single int64
	for i := range m.n {
		at := plan.OpID(i)
		s.clock[i] = all
		var wait int64
		// What is done leaves; what must leave is waited for.
		if s.redo[i] > 0 {
			s.bringForward(at, first)
		}
		for first < len(s.pending) {
			g := s.pending[first]
			x := &m.gaps[g]
			must := s.fetch[g] <= at || s.gone[g] <= at || s.load[i]+held > s.limit[i] || s.spare[i] > 0 && s.spare[i]+held > s.limit[i]
			if !must && s.outEnd[g] > all {
				break
			}
			if s.fetch[g] > at {
				wait = max(wait, s.outEnd[g])
			}
			s.release[g] = min(at, s.fetch[g])
			held -= x.size
			first++
		}
		for nextIn < len(s.ins) && s.fetch[s.ins[nextIn]] <= at {
			g := s.ins[nextIn]
			inFree = max(inFree, all, wait, s.outEnd[g]) + m.gaps[g].in
			s.inEnd[g] = inFree
			nextIn++
		}
		for ; nextDue < nextIn && s.due[s.ins[nextDue]] <= at; nextDue++ {
			g := s.ins[nextDue]
			if m.gaps[g].before == at || s.redo[i] > 0 { // a chain that reads what was pulled waits for it
				wait = max(wait, s.inEnd[g])
			}
		}
		if m.k == 1 {
			t := max(single, wait)
			s.wait[i] = t - single
			s.stall += t - single
			t = max(t+s.redo[i], m.issue[i])
			s.start[i] = t
			single = t + s.dur[i]
			s.end[i], all = single, single
		} else {
			s.begin(i)
			early := s.start[i]
			if wait > early {
				s.start[i], s.end[i] = wait, wait+s.dur[i]
				s.ready[m.p.Ops[i].Stream] = s.end[i]
			}
			s.wait[i] = s.start[i] - early
			s.stall += s.wait[i]
			all = max(all, s.end[i])
		}
		for g := s.out.first[i]; g >= 0; g = s.out.next[g] {
			outFree = max(outFree, s.written(g)) + m.gaps[g].out
			s.outEnd[g] = outFree
			s.pending = append(s.pending, g)
			held += m.gaps[g].size
		}
	}
	s.clock[m.n] = all
	s.time = max(all, inFree, outFree)
}

// serial is forward where there are no copy engines: each copy stands in the first stream, out of memory right behind the last op that touches the buffer and
// back right before the next, so that none is waited for but by other streams, and its memory is free between them.
func (s *schedule) serial() {
	m := s.m
	s.out.sort(s.ins, func(g int32) plan.OpID { return m.gaps[g].after })
	clear(s.ready)
	s.stall = 0
	next := 0 // ins are in order of fetch
	var all int64
	for i := range m.n {
		s.clock[i], s.wait[i] = all, 0
		q := m.p.Ops[i].Stream
		for ; next < len(s.ins) && s.fetch[s.ins[next]] <= plan.OpID(i); next++ {
			g := s.ins[next]
			s.ready[0] += m.gaps[g].in
			s.inEnd[g] = s.ready[0]
			s.ready[q] = max(s.ready[q], s.ready[0])
		}
		s.begin(i)
		for g := s.out.first[i]; g >= 0; g = s.out.next[g] {
			s.ready[0] = max(s.ready[0], s.written(g)) + m.gaps[g].out
			s.outEnd[g] = s.ready[0]
		}
		all = max(all, s.end[i], s.ready[0])
	}
	s.clock[m.n], s.time = all, all
	if len(s.reruns) > 0 {
		s.time += m.saving + m.noting
	} else if len(s.ins) > 0 {
		s.time += m.saving
	}
}

// written returns when what gap g holds has been written: by its op, or by what brought it back from its last absence.
func (s *schedule) written(g int32) int64 {
	x := &s.m.gaps[g]
	t := s.m.issue[x.after]
	if x.ready >= 0 {
		t = max(t, s.end[x.ready])
	}
	if g > s.m.first[x.buffer] {
		switch y := &s.m.gaps[g-1]; {
		case y.before <= x.ready:
		case s.eff[g-1] == swap:
			t = max(t, s.inEnd[g-1])
		case s.eff[g-1] == drop:
			t = max(t, s.start[s.fetch[g-1]])
		}
	}
	return t
}

// bringForward puts those of the pending copies first whose buffers a chain at this position makes again as scratch.
func (s *schedule) bringForward(at plan.OpID, first int) {
	put := first
	for k := first; k < len(s.pending); k++ {
		if g := s.pending[k]; s.gone[g] <= at {
			copy(s.pending[put+1:k+1], s.pending[put:k])
			s.pending[put] = g
			put++
		}
	}
}

// excess adds up what passes the limits, and what passes the limit of pinned host memory.
func (s *schedule) excess() {
	m := s.m
	for i := range m.n {
		if v := max(s.load[i], s.spare[i]) - s.limit[i]; v > 0 {
			s.over += v
		}
	}
	limit := m.p.Hardware.PinnedBytes
	if limit <= 0 || len(s.ins) == 0 {
		return
	}
	clear(s.pinned)
	for _, g := range s.ins {
		s.pinned[m.gaps[g].after] += m.gaps[g].size
		s.pinned[s.fetch[g]] -= m.gaps[g].size // the copy back is issued before the op there leaves anything
	}
	var sum int64
	for i := range m.n {
		if sum += s.pinned[i]; sum > limit {
			s.over += sum - limit
		}
	}
}

// decisions writes the schedule down.
func (s *schedule) decisions() plan.Decisions {
	m := s.m
	var d plan.Decisions
	count := 0
	for g := range m.gaps {
		if s.eff[g] != keep {
			count++
		}
	}
	d.Absences = make([]plan.Absence, 0, count)
	// Copies back at one position are issued in the order of the list.
	for _, g := range s.ins {
		d.Absences = append(d.Absences, s.absence(g, plan.Swap, "swapped: its copies cost less than running it again"))
	}
	for g := range m.gaps {
		switch s.eff[g] {
		case discard:
			d.Absences = append(d.Absences, s.absence(int32(g), plan.Discard, "nothing reads what it holds"))
		case drop:
			d.Absences = append(d.Absences, s.absence(int32(g), plan.Recompute, "recomputed: running it again costs less than its copies"))
		}
	}
	for _, r := range s.reruns {
		d.Reruns = append(d.Reruns, plan.Rerun{Before: r.at, Ops: slices.Clone(s.ops[r.from:r.to])})
	}
	if slices.Max(s.way) > 0 {
		d.Variants = slices.Clone(s.way)
	}
	return d
}

func (s *schedule) absence(g int32, how plan.How, why string) plan.Absence {
	x := &s.m.gaps[g]
	return plan.Absence{Buffer: x.buffer, After: x.after, Before: x.before, Release: s.release[g], Fetch: s.fetch[g], How: how, Why: why}
}

// setWay gives op i a variant.
func (s *schedule) setWay(i int, way uint8) {
	s.way[i] = way
	s.dur[i], s.work[i] = s.m.variant(i, int(way))
}
