package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// A schedule turns choices into positions, and says what they cost. It is the inner loop of planning: its
// parts are columns that are used again for each candidate.
//
//	setting     what a candidate asks for: a choice for each gap, a variant for each op
//	absences    what becomes of each gap: where its memory is given back and taken again      absences.go
//	memory      bytes at each position, and its limit                                          memory.go
//	chains      ops that run again                                                             chains.go
//	prefetches  copies back, as late as the copy engine permits                                prefetches.go
//	queues      when everything happens, and what compute waits for                            queues.go
//
// They are worked out in this order. What is absent is taken out from one access to the next, which is the
// least memory; chains put back what they retain, copies back what returns early; the queues put off what
// leaves late.
//
// Complexity: O(ops + gaps + length of chains + positions over which copies and retained results lie early).
// Not tried: working out only what a change touches.

// schedule is what the choices of a candidate come to.
type schedule struct {
	m          *model
	setting    setting
	absences   absences
	memory     memory
	chains     chains
	prefetches prefetches
	queues     queues
	over       int64   // bytes by which positions pass their limits, summed
	pinned     []int64 // of each position, bytes in the host's pinned memory
	steps      int64   // counted work: positions, gaps and accesses looked at
}

// setting is what a candidate asks for.
type setting struct {
	m      *model
	choice []choice // of each gap
	way    []uint8  // of each op, its variant
	dur    []int64  // of each op under its variant
	work   []int64
	lead   float64 // copies back begin this share of their own time earlier than they must
	timing *timing // nil where values leave at once, return when needed, and chains retain what memory allows
}

func newSchedule(m *model) *schedule {
	n, g, b := m.n, len(m.gaps), len(m.p.Buffers)
	s := &schedule{m: m, pinned: make([]int64, n+1)}
	s.setting = setting{
		m: m, choice: make([]choice, g),
		way: make([]uint8, n), dur: slices.Clone(m.dur), work: slices.Clone(m.work),
	}
	s.absences = absences{
		m: m, how: make([]choice, g), release: make([]plan.OpID, g), fetch: make([]plan.OpID, g),
		leave: make([]plan.OpID, g), due: make([]plan.OpID, g), evictBy: make([]plan.OpID, g),
	}
	s.memory = memory{
		m: m, steps: &s.steps,
		limit: make([]int64, n+1), load: make([]int64, n+1), rerunPeak: make([]int64, n+1),
	}
	s.chains = chains{
		m: m, setting: &s.setting, absences: &s.absences, memory: &s.memory, steps: &s.steps,
		rerunTime: make([]int64, n+1), opEpoch: make([]int32, n),
		lastUse: make([]int32, b), useEpoch: make([]int32, b),
		lists: newLists(n, g),
	}
	s.prefetches = prefetches{
		m: m, setting: &s.setting, absences: &s.absences, memory: &s.memory, chains: &s.chains,
		queues: &s.queues,
		lists:  newLists(n, g),
	}
	s.queues = queues{
		m: m, setting: &s.setting, absences: &s.absences, memory: &s.memory, chains: &s.chains,
		prefetches: &s.prefetches,
		clock:      make([]int64, n+1), start: make([]int64, n+1), end: make([]int64, n+1),
		evicted: make([]int64, g), prefetched: make([]int64, g),
		wait: make([]int64, n+1), ready: make([]int64, m.k),
		evictions: newLists(n, g), leaving: newLists(n, g),
	}
	return s
}

// run works the schedule out for the choices, the limits and the variants that are set.
func (s *schedule) run() {
	s.over, s.chains.visited, s.chains.reruns, s.chains.ops = 0, 0, s.chains.reruns[:0], s.chains.ops[:0]
	s.steps += int64(s.m.n + len(s.m.gaps))
	s.absent()
	s.chains.place()
	s.queues.nominal()
	s.prefetches.place()
	if s.m.inline {
		s.queues.inline()
	} else {
		s.queues.overlapped()
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
		s.absences.how[g] = s.setting.choice[g]
		if x.dead {
			s.absences.how[g] = discard
		}
		leave, due := x.after+1, x.before
		if timing := s.setting.timing; timing != nil && !x.dead {
			if s.absences.how[g] == recompute {
				due = timing.remake[g]
			}
			leave = min(timing.leave[g], due)
		}
		s.absences.release[g], s.absences.leave[g] = leave, leave
		s.absences.fetch[g], s.absences.due[g], s.absences.evictBy[g] = due, due, x.before
		if s.absences.how[g] == swap || s.absences.how[g] == recompute {
			delta[leave] -= x.size
			delta[due] += x.size
		}
	}
	var sum int64
	for i := range m.n {
		sum += delta[i]
		s.memory.load[i] = m.load[i] + sum + s.setting.work[i] - m.work[i]
		s.memory.rerunPeak[i], s.chains.rerunTime[i] = 0, 0
	}
	s.memory.load[m.n], s.memory.rerunPeak[m.n], s.chains.rerunTime[m.n] = 0, 0, 0
}

// excess adds up what passes the limits, and what passes the limit of pinned host memory.
func (s *schedule) excess() {
	m := s.m
	for i := range m.n {
		if v := max(s.memory.load[i], s.memory.rerunPeak[i]) - s.memory.limit[i]; v > 0 {
			s.over += v
		}
	}
	limit := m.p.Hardware.PinnedBytes
	if limit <= 0 || len(s.prefetches.order) == 0 {
		return
	}
	clear(s.pinned)
	for _, g := range s.prefetches.order {
		s.pinned[m.gaps[g].after] += m.gaps[g].size
		// the copy back is issued before the op there leaves anything
		s.pinned[s.absences.fetch[g]] -= m.gaps[g].size
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
		if s.absences.how[g] != keep {
			count++
		}
	}
	d.Absences = make([]plan.Absence, 0, count)
	// Copies back at one position are issued in the order of the list.
	for _, g := range s.prefetches.order {
		d.Absences = append(
			d.Absences,
			s.absence(g, plan.Swap, "swapped: its copies cost less than running it again"),
		)
	}
	for g := range m.gaps {
		switch s.absences.how[g] {
		case discard:
			d.Absences = append(d.Absences, s.absence(int32(g), plan.Discard, "nothing reads what it holds"))
		case recompute:
			d.Absences = append(
				d.Absences,
				s.absence(
					int32(g),
					plan.Recompute,
					"recomputed: running it again costs less than its copies",
				),
			)
		}
	}
	for _, r := range s.chains.reruns {
		d.Reruns = append(d.Reruns, plan.Rerun{Before: r.at, Ops: slices.Clone(s.chains.ops[r.from:r.to])})
	}
	if slices.Max(s.setting.way) > 0 {
		d.Variants = slices.Clone(s.setting.way)
	}
	return d
}

func (s *schedule) absence(g int32, how plan.How, why string) plan.Absence {
	x := &s.m.gaps[g]
	return plan.Absence{
		Buffer:  x.buffer,
		After:   x.after,
		Before:  x.before,
		Release: s.absences.release[g],
		Fetch:   s.absences.fetch[g],
		How:     how,
		Why:     why,
	}
}

// setWay gives op i a variant.
func (set *setting) setWay(i int, way uint8) {
	set.way[i] = way
	set.dur[i], set.work[i] = set.m.variantCost(i, int(way))
}
