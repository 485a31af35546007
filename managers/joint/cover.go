package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// prices say what a candidate costs while gaps are chosen. Times on a copy engine are worth a share of the same time on the compute stream: nothing
// while the engine has room, all of it when the engine is what the step waits for. Which share it is shows only when a schedule is made, so that
// several are tried.
type prices struct {
	link float64 // what a nanosecond of copying is worth in nanoseconds of compute; negative forbids swapping
	redo float64 // what a nanosecond of running again is worth; negative forbids recomputing
	// byExcess weighs an absence by the excess over the limit that it spans, instead of by bytes alone.
	byExcess bool
}

// cover chooses absences until the load meets the limits everywhere, cheapest first, and takes back what turns out not to be needed.
type cover struct {
	s     *schedule
	tree  *loadTree
	sum   []float64 // of excess before each position, scaled to the largest
	order []int32
	rate  []float64 // of each gap
	cost  []float64
	how   []choice
	from  []plan.OpID // of each gap: where its absence is sure to have begun, and to end
	to    []plan.OpID
	full  []bool // of each gap chosen to be swapped: it counts from access to access
	peak  int64
	redo  []float64 // of each gap: what dropping it costs, chains and all, as far as schedules have shown
	late  []float64 // of each gap: what compute waited for its copies back
	times []float64 // of each op: how often it ran again
}

func newCover(s *schedule) *cover {
	m := s.m
	c := &cover{s: s, tree: newLoadTree(m.n), sum: make([]float64, m.n+1), full: make([]bool, len(m.gaps)), redo: make([]float64, len(m.gaps)), late: make([]float64, len(m.gaps)), times: make([]float64, m.n), rate: make([]float64, len(m.gaps)+len(m.slower)), cost: make([]float64, len(m.gaps)),
		how: make([]choice, len(m.gaps)), from: make([]plan.OpID, len(m.gaps)), to: make([]plan.OpID, len(m.gaps))}
	clock := make([]int64, m.n+1)
	var all int64
	for i := range m.n {
		clock[i] = all
		all = max(all, m.end[i])
	}
	clock[m.n] = all
	for _, g := range m.choices {
		x := &m.gaps[g]
		c.from[g], c.to[g] = x.after+1, x.before
		if !x.canSwap {
			continue
		}
		f, _ := slices.BinarySearch(clock, m.end[x.after]+x.out)
		t, _ := slices.BinarySearch(clock, m.start[x.before]-x.in+1)
		c.from[g], c.to[g] = min(max(plan.OpID(f), x.after+1), x.before), max(plan.OpID(t-1), x.after)
	}
	return c
}

// forget sets prices back to what they are before any schedule has been seen.
func (c *cover) forget() {
	for g := range c.redo {
		c.redo[g], c.late[g] = float64(c.s.m.gaps[g].redo), 0
	}
	for i := range c.times {
		c.times[i] = 1
	}
}

// pace is how far prices move towards what a schedule has shown: much less than all the way, or choices swing to and fro.
const pace = 0.2

// learn moves prices towards what the schedule at hand has shown: an op that ran again for others, because what it makes was not there, makes
// dropping its result dearer; a copy back that compute waited for makes swapping dearer for all whose copies stood in that queue.
func (c *cover) learn() {
	s, m := c.s, c.s.m
	for i := range c.times {
		c.times[i] *= 1 - pace
	}
	for _, o := range s.ops {
		c.times[o] += pace
	}
	for _, g := range m.choices {
		c.late[g] *= 1 - pace
		if !m.gaps[g].canDrop {
			continue
		}
		c.redo[g] = 0
		for _, o := range m.maker[m.makerAt[g]:m.makerAt[g+1]] {
			c.redo[g] += float64(m.dur[o]) * max(1, c.times[o])
		}
	}
	first, free := 0, int64(0) // of the copies that followed each other without a pause
	var busy int64
	for k, g := range s.ins {
		x := &m.gaps[g]
		if s.inEnd[g]-x.in > free {
			first, busy = k, 0
		}
		free = s.inEnd[g]
		busy += x.in
		wait := s.wait[s.due[g]]
		if wait == 0 || k+1 < len(s.ins) && s.due[s.ins[k+1]] == s.due[g] {
			continue
		}
		for _, h := range s.ins[first : k+1] {
			c.late[h] += pace * float64(wait) * float64(m.gaps[h].in) / float64(busy)
		}
	}
}

// choose fills s.choice under the prices, for the schedule's limits.
func (c *cover) choose(pr prices) {
	s, m := c.s, c.s.m
	c.excess()
	for i := range m.slower {
		o := int(m.slower[i].op)
		s.setWay(o, m.fast[o])
	}
	c.order = c.order[:0]
	for _, g := range m.choices {
		s.choice[g] = keep
		x := &m.gaps[g]
		how, cost := keep, 0.0
		if x.canSwap && pr.link >= 0 {
			how, cost = swap, pr.link*float64(x.out+x.in)+c.late[g]
			if room := m.start[x.before] - m.end[x.after]; x.out+x.in > room { // compute waits, whatever else happens
				cost = max(cost, float64(x.out+x.in-room))
			}
		}
		if x.canDrop && pr.redo >= 0 {
			if redo := pr.redo * c.redo[g]; how == keep || redo < cost {
				how, cost = drop, redo
			}
		}
		if how == keep {
			continue
		}
		value := float64(x.size)
		if pr.byExcess {
			value *= c.sum[x.before] - c.sum[x.after+1]
		} else if c.sum[x.before] <= c.sum[x.after+1] {
			value = 0
		}
		if value <= 0 {
			continue
		}
		c.how[g], c.cost[g] = how, cost
		c.rate[g] = (cost + 1) / value
		c.order = append(c.order, g)
	}
	for k := range m.slower { // a variant is a candidate for one position
		x := &m.slower[k]
		if c.sum[x.op+1] > c.sum[x.op] {
			value := float64(x.saves)
			if pr.byExcess {
				value *= c.sum[x.op+1] - c.sum[x.op]
			}
			c.rate[len(m.gaps)+k] = (float64(x.costs) + 1) / value
			c.order = append(c.order, int32(len(m.gaps)+k))
		}
	}
	c.sort()
	c.tree.set(func(i int) int64 { return m.load[i] - s.limit[i] })
	for _, g := range c.order { // what is absent without anyone waiting
		if c.tree.top() <= 0 {
			break
		}
		if int(g) >= len(m.gaps) {
			c.slow(&m.slower[int(g)-len(m.gaps)])
			continue
		}
		x := &m.gaps[g]
		from, to := x.after+1, x.before
		if c.how[g] == swap {
			from, to = c.from[g], c.to[g]
		}
		if from < to && c.tree.max(int(from), int(to)) > 0 {
			s.choice[g] = c.how[g]
			c.tree.add(int(from), int(to), -x.size)
		}
	}
	c.second(pr)
	c.back()
}

func (c *cover) sort() {
	slices.SortFunc(c.order, func(a, b int32) int { return cmp.Or(cmp.Compare(c.rate[a], c.rate[b]), cmp.Compare(a, b)) })
}

// slow takes a variant with less workspace where that is needed.
func (c *cover) slow(x *alternative) {
	s, i := c.s, int(x.op)
	over := c.tree.max(i, i+1)
	have := s.work[i]
	if over <= 0 || c.s.m.work[i]-x.saves >= have {
		return
	}
	s.setWay(i, x.way)
	c.tree.add(i, i+1, s.work[i]-have)
}

// second covers what is left, now at the price of waiting: copies count in full, and reach from access to access.
func (c *cover) second(pr prices) {
	s, m := c.s, c.s.m
	if c.tree.top() <= 0 {
		return
	}
	rest := c.order[:0]
	for _, g := range c.order {
		if int(g) >= len(m.gaps) {
			rest = append(rest, g)
			continue
		}
		x := &m.gaps[g]
		if s.choice[g] == drop {
			rest = append(rest, g)
			continue
		}
		how, cost := swap, float64(x.out+x.in)+c.late[g]
		if !x.canSwap || pr.link < 0 {
			how = keep
		}
		if x.canDrop && pr.redo >= 0 && (how == keep || c.redo[g] < cost) {
			how, cost = drop, c.redo[g]
		}
		if how == keep {
			continue
		}
		c.rate[g], c.how[g] = (cost+1)/float64(x.size), how
		rest = append(rest, g)
	}
	c.order = rest
	c.sort()
	for _, g := range c.order {
		if c.tree.top() <= 0 {
			break
		}
		if int(g) >= len(m.gaps) {
			c.slow(&m.slower[int(g)-len(m.gaps)])
			continue
		}
		x := &m.gaps[g]
		if s.choice[g] == keep {
			if c.tree.max(int(x.after)+1, int(x.before)) > 0 {
				s.choice[g] = c.how[g]
				c.tree.add(int(x.after)+1, int(x.before), -x.size)
			}
			continue
		}
		if s.choice[g] == drop {
			continue
		}
		left, right := c.tree.max(int(x.after)+1, int(c.from[g])), c.tree.max(int(c.to[g]), int(x.before)) // it was swapped: the copies' own time
		if left > 0 || right > 0 {
			s.choice[g] = c.how[g]
			if c.from[g] < c.to[g] {
				c.tree.add(int(c.from[g]), int(c.to[g]), x.size)
			}
			c.tree.add(int(x.after)+1, int(x.before), -x.size)
			c.full[g] = true
		}
	}
}

// back takes back what is not needed, the dearest first.
func (c *cover) back() {
	s, m := c.s, c.s.m
	for _, g := range m.choices {
		if s.choice[g] == swap && !c.full[g] {
			c.tree.add(int(c.from[g]), int(c.to[g]), m.gaps[g].size)
			c.tree.add(int(m.gaps[g].after)+1, int(m.gaps[g].before), -m.gaps[g].size)
		}
		c.full[g] = false
	}
	for k := len(c.order) - 1; k >= 0; k-- {
		g := c.order[k]
		if int(g) >= len(m.gaps) {
			i := int(m.slower[int(g)-len(m.gaps)].op)
			if more := m.work[i] - s.work[i]; more > 0 && c.tree.max(i, i+1)+more <= 0 {
				s.setWay(i, m.fast[i])
				c.tree.add(i, i+1, more)
			}
			continue
		}
		x := &m.gaps[g]
		if s.choice[g] != keep && c.tree.max(int(x.after)+1, int(x.before))+x.size <= 0 {
			s.choice[g] = keep
			c.tree.add(int(x.after)+1, int(x.before), x.size)
		}
	}
}

// excess sums what passes the limits when everything is kept.
func (c *cover) excess() {
	s, m := c.s, c.s.m
	c.peak = 0
	for i := range m.n {
		c.peak = max(c.peak, m.load[i]-s.limit[i])
	}
	var sum float64
	for i := range m.n {
		c.sum[i] = sum
		if v := m.load[i] + s.work[i] - m.work[i] - s.limit[i]; v > 0 {
			sum += float64(v) / float64(c.peak)
		}
	}
	c.sum[m.n] = sum
}

// loadTree keeps bytes over positions: add to a range, ask for a range's maximum, O(log n) each.
type loadTree struct {
	leaves    int
	most, lay []int64 // of each node: the maximum of its range without what lies on the nodes above; what was added to the whole of it
	n         int
}

func newLoadTree(n int) *loadTree {
	t := &loadTree{leaves: 1, n: n}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.most, t.lay = make([]int64, 2*t.leaves), make([]int64, 2*t.leaves)
	return t
}

const farBelow = -int64(1) << 62

func (t *loadTree) set(value func(i int) int64) {
	clear(t.lay)
	for i := range t.leaves {
		t.most[t.leaves+i] = farBelow
		if i < t.n {
			t.most[t.leaves+i] = value(i)
		}
	}
	for k := t.leaves - 1; k > 0; k-- {
		t.most[k] = max(t.most[2*k], t.most[2*k+1])
	}
}

func (t *loadTree) top() int64 { return t.most[1] }

func (t *loadTree) add(from, to int, v int64) {
	if from < to {
		t.addAt(1, 0, t.leaves, from, to, v)
	}
}

func (t *loadTree) addAt(node, lo, hi, from, to int, v int64) {
	if from <= lo && hi <= to {
		t.most[node] += v
		t.lay[node] += v
		return
	}
	mid := (lo + hi) / 2
	if from < mid {
		t.addAt(2*node, lo, mid, from, to, v)
	}
	if to > mid {
		t.addAt(2*node+1, mid, hi, from, to, v)
	}
	t.most[node] = t.lay[node] + max(t.most[2*node], t.most[2*node+1])
}

func (t *loadTree) max(from, to int) int64 {
	if from >= to {
		return farBelow
	}
	return t.maxAt(1, 0, t.leaves, from, to)
}

func (t *loadTree) maxAt(node, lo, hi, from, to int) int64 {
	if from <= lo && hi <= to {
		return t.most[node]
	}
	mid := (lo + hi) / 2
	best := farBelow
	if from < mid {
		best = t.maxAt(2*node, lo, mid, from, to)
	}
	if to > mid {
		best = max(best, t.maxAt(2*node+1, mid, hi, from, to))
	}
	return best + t.lay[node]
}
