package joint

// The costs of swapping and dropping, learnt from schedules.
//
// The problem: the cost of an absence depends on the other absences. To recompute a buffer, its inputs may
// have to be recomputed first, and a copy waits for those ahead of it in the queue. Neither is known before
// there is a schedule.
//
// The approach: choose, make a schedule, move the costs part of the way towards what it showed, and choose
// again, as Lagrangian relaxation moves its multipliers. Complexity: O(gaps + producers + copies) per
// schedule. Rejected: adopting the new costs at once, because two choices then displace each other forever.

// costs are what each gap's choices cost in the schedules seen so far.
type costs struct {
	m         *model
	recompute []float64 // for each gap: the cost of dropping it, chains included
	wait      []float64 // for each gap: how long compute waited for its copies back
	reruns    []float64 // for each op: how often it was rerun
}

func newCosts(m *model) costs {
	return costs{m, make([]float64, len(m.gaps)), make([]float64, len(m.gaps)), make([]float64, m.n)}
}

// forget resets the costs to those before any schedule has been seen.
func (c *costs) forget() {
	for g := range c.recompute {
		c.recompute[g], c.wait[g] = float64(c.m.gaps[g].chainTime), 0
	}
	for i := range c.reruns {
		c.reruns[i] = 1
	}
}

// learn moves costs towards what a schedule has shown. If an op was rerun for others because its result was
// absent, dropping that result becomes more expensive. If compute waited for a copy back, swapping becomes
// more expensive for all gaps whose copies were in that queue.
func (c *costs) learn(s *schedule) {
	m := c.m
	for i := range c.reruns {
		c.reruns[i] *= 1 - m.params.pace
	}
	for _, o := range s.chains.ops {
		c.reruns[o] += m.params.pace
	}
	for _, g := range m.choices {
		c.wait[g] *= 1 - m.params.pace
		if !m.gaps[g].canRecompute {
			continue
		}
		c.recompute[g] = float64(m.gaps[g].chainTime - m.gaps[g].producersTime)
		for _, o := range m.producers.of(g) {
			c.recompute[g] += float64(m.dur[o]) * max(1, c.reruns[o])
		}
	}
	first, free := 0, int64(0) // of the copies that followed each other without a pause
	var busy int64
	for k, g := range s.prefetches.order {
		x := &m.gaps[g]
		if s.queues.prefetched[g]-x.prefetchTime > free {
			first, busy = k, 0
		}
		free = s.queues.prefetched[g]
		busy += x.prefetchTime
		wait := s.queues.wait[s.absences.due[g]]
		if wait == 0 ||
			k+1 < len(s.prefetches.order) && s.absences.due[s.prefetches.order[k+1]] == s.absences.due[g] {
			continue
		}
		for _, h := range s.prefetches.order[first : k+1] {
			c.wait[h] += m.params.pace * float64(wait) * float64(m.gaps[h].prefetchTime) / float64(busy)
		}
	}
}

// density is the cost of dropping gap g, in nanoseconds per 1024 bytes.
func (c *costs) density(g int32) float64 { return c.recompute[g] * 1024 / float64(c.m.gaps[g].size) }
