package joint

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// A schedule turns choices into positions and determines their cost. It is the inner loop of planning, so
// each candidate reuses its columns.
//
//	setting     what a candidate asks for: a choice for each gap, a variant for each op
//	absences    what becomes of each gap: where its memory is released and taken again         absences.go
//	memory      bytes at each position, and its limit                                          memory.go
//	chains      ops that are rerun                                                             chains.go
//	prefetches  copies back, as late as the copy engine permits                                prefetches.go
//	queues      when everything happens, and what compute waits for                            queues.go
//
// They are computed in this order. An absent value first counts as absent from one access to the next, which
// is the least memory. Chains then add what they retain, copies back what returns early, and the queues delay
// releases where copies out are late.
//
// Complexity: O(ops + gaps + length of chains + positions over which copies and retained results lie early).
// Not tried: recomputing only what a change affects.

// schedule is the result of a candidate's choices.
type schedule struct {
	m          *model
	setting    setting
	absences   absences
	memory     memory
	chains     chains
	prefetches prefetches
	queues     queues
	over       int64   // the sum of bytes by which positions exceed their limits
	pinned     []int64 // bytes in the host's pinned memory at each position
	steps      int64   // counted work: positions, gaps and accesses looked at
}

func newSchedule(m *model) *schedule {
	n, g, b := m.n, len(m.gaps), len(m.p.Buffers)
	s := &schedule{m: m, pinned: make([]int64, n+1)}
	s.setting = setting{
		m: m, choice: make([]choice, g),
		way: slices.Clone(m.fast), dur: slices.Clone(m.dur), work: slices.Clone(m.work),
		load: slices.Clone(m.load),
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
		lastUse: make([]int32, b), useEpoch: make([]int32, b), touched: make([]touched, b),
		unbrought: make([]int32, g), remade: make([]touched, g),
		lists: newLists(n, g),
	}
	s.prefetches = prefetches{
		m: m, setting: &s.setting, absences: &s.absences, memory: &s.memory, chains: &s.chains,
		nominal: &s.queues.nominal,
		lists:   newLists(n, g),
	}
	s.queues = queues{
		m: m, setting: &s.setting, absences: &s.absences, memory: &s.memory, chains: &s.chains,
		prefetches: &s.prefetches,
		nominal:    nominal{clock: make([]int64, n+1), start: make([]int64, n+1), ways: -1},
		start:      make([]int64, n+1), end: make([]int64, n+1),
		evicted: make([]int64, g), prefetched: make([]int64, g),
		wait: make([]int64, n+1), ready: make([]int64, m.k),
		evictions: newLists(n, g), leaving: newLists(n, g),
	}
	return s
}

// run computes the schedule for the current choices, limits and variants.
func (s *schedule) run() {
	s.over = 0
	s.chains.forget()
	s.steps += int64(s.m.n + len(s.m.gaps))
	s.absent()
	s.chains.place()
	s.queues.nominal.run(&s.queues)
	s.prefetches.place()
	if s.m.inline {
		s.queues.inline()
	} else {
		s.queues.overlapped()
	}
	s.excess()
}

// absent subtracts absent values from the load, for as long as they can be absent.
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
			switch s.absences.how[g] {
			case recompute:
				due = timing.remake[g]
			case swap:
				due = timing.back[g]
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
		s.memory.load[i] = s.setting.load[i] + sum
	}
	s.memory.load[m.n] = 0
}

// excess sums what exceeds the limits, including the limit of pinned host memory.
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
		// the copy back is issued before the op there releases anything
		s.pinned[s.absences.fetch[g]] -= m.gaps[g].size
	}
	var sum int64
	for i := range m.n {
		if sum += s.pinned[i]; sum > limit {
			s.over += sum - limit
		}
	}
}

// decisions returns the schedule in the plan's format.
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
		x := plan.Rerun{Before: r.at, Ops: slices.Clone(s.chains.ops[r.from:r.to])}
		for _, l := range s.chains.loads[r.loadFrom:r.loadTo] {
			if !s.absences.served(&l) {
				x.Loads = append(x.Loads, plan.Load{Buffer: m.gaps[l.gap].buffer, Fetch: l.fetch})
			}
		}
		d.Reruns = append(d.Reruns, x)
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
