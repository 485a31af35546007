package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

// Initial choices: a greedy cover of the excess over the limits.
//
// The problem: find a set of absences that brings the load under the limits everywhere, at the least cost in
// time. It is a covering problem: each gap covers the positions that it spans, by its size, at a cost that
// depends on the copy engines.
//
// The approach: each candidate has a price. The cheapest per byte of excess removed is taken first, until no
// position is over its limit. What is still over is covered at the price of waiting (coverRest). Then the
// most expensive that are not needed are taken back (prune). Prices of copies come from the dual of the
// bound's linear program, from a sweep of fixed shares, or from filling the copy engines to the brim
// (engines.go); then they follow what schedules show (costs.go).
//
// Complexity: O(gaps log gaps) for a cover: a sort, and a segment tree (plan/curve) for the load. Rejected:
// one price for all problems (only a schedule shows what a copy costs); an exact cover (see joint.go).

// cover chooses absences until the load meets the limits everywhere, cheapest first, and takes back those
// that turn out not to be needed.
type cover struct {
	schedule *schedule
	costs    costs
	engines  engines
	tree     *curve.Tree // bytes by which each op exceeds its limit
	values   []int64     // to fill the tree
	sum      []float64   // the excess summed before each position, scaled to the largest
	peak     int64       // the largest excess
	noDrop   bool        // recomputing is switched off
	order    []int32     // candidates: gaps, then variants
	rated    []rated     // to sort them
	rate     []float64   // of each candidate: cost per byte
	cheapest []choice    // of each gap
	from, to []plan.OpID // for each gap: the ops between which it is sure to be absent
	whole    []bool      // for each gap that is swapped: it counts from access to access

	across    []int32   // of gapsAcross
	densities []float64 // of quantile, sorted
}

func newCover(s *schedule) *cover {
	m := s.m
	c := &cover{
		schedule: s,
		costs:    newCosts(m),
		engines:  newEngines(m),
		tree:     curve.New(make([]int64, m.n)),
		values:   make([]int64, m.n),
		sum:      make([]float64, m.n+1),
		rate:     make([]float64, len(m.gaps)+len(m.variants)),
		cheapest: make([]choice, len(m.gaps)),
		from:     make([]plan.OpID, len(m.gaps)),
		to:       make([]plan.OpID, len(m.gaps)),
		whole:    make([]bool, len(m.gaps)),
	}
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
		if !x.canSwap || m.inline {
			continue
		}
		f, _ := slices.BinarySearch(clock, c.ready(x)+x.evictTime)
		t, _ := slices.BinarySearch(clock, m.start[x.before]-x.prefetchTime+1)
		c.from[g], c.to[g] = min(max(plan.OpID(f), x.after+1), x.before), max(plan.OpID(t-1), x.after)
	}
	return c
}

// ready returns when a copy out of the gap can begin if it waits for nothing but the writer.
func (c *cover) ready(x *gap) int64 {
	if x.writer < 0 {
		return 0
	}
	return c.schedule.m.end[x.writer]
}

// choose fills s.setting.choice under the prices, for the schedule's limits. It starts from a candidate's
// choices, or from scratch if from is nil.
func (c *cover) choose(pr prices, from *candidate) {
	s, m := c.schedule, c.schedule.m
	s.steps += 8 * int64(m.n+len(m.gaps))
	c.begin(from)
	c.excess()
	c.rateAll(pr)
	c.sort()
	c.load(from)
	if from == nil && pr.fill {
		c.fill(pr.split)
	}
	for _, g := range c.order { // absences for which nobody waits
		if c.tree.Peak() <= 0 {
			break
		}
		if int(g) >= len(m.gaps) {
			c.takeVariant(&m.variants[int(g)-len(m.gaps)])
			continue
		}
		if s.setting.choice[g] != keep {
			continue
		}
		x := &m.gaps[g]
		from, to := x.after+1, x.before
		if c.cheapest[g] == swap {
			from, to = c.from[g], c.to[g]
		}
		if from < to && c.tree.Max(int(from), int(to)) > 0 {
			s.setting.choice[g] = c.cheapest[g]
			c.tree.Add(int(from), int(to), -x.size)
		}
	}
	c.coverRest(pr)
	c.prune()
}

// begin keeps everything and uses the fastest variants, or copies a candidate's choices.
func (c *cover) begin(from *candidate) {
	s, m := c.schedule, c.schedule.m
	for i := range m.variants {
		o := int(m.variants[i].op)
		if from == nil {
			s.setting.setWay(o, m.fast[o])
		} else {
			s.setting.setWay(o, from.way[o])
		}
	}
	for _, g := range m.choices {
		s.setting.choice[g] = keep
		if from != nil {
			s.setting.choice[g] = from.choice[g]
		}
	}
}

// rateAll lists the candidates and rates each: its cost per byte that it removes where the load is over a
// limit.
func (c *cover) rateAll(pr prices) {
	s, m := c.schedule, c.schedule.m
	c.order = c.order[:0]
	for _, g := range m.choices {
		how, cost := c.price(pr, g)
		if how == keep {
			continue
		}
		x := &m.gaps[g]
		value := float64(x.size)
		if pr.byExcess {
			value *= c.sum[x.before] - c.sum[x.after+1]
		} else if c.sum[x.before] <= c.sum[x.after+1] {
			value = 0
		}
		if value <= 0 {
			s.setting.choice[g] = keep // it gains nothing here, whatever was chosen elsewhere
			continue
		}
		c.cheapest[g] = how
		c.rate[g] = (cost + 1) / value
		c.order = append(c.order, g)
	}
	for k := range m.variants { // a variant covers one position
		x := &m.variants[k]
		if c.sum[x.op+1] > c.sum[x.op] {
			value := float64(x.saves)
			if pr.byExcess {
				value *= c.sum[x.op+1] - c.sum[x.op]
			}
			c.rate[len(m.gaps)+k] = (float64(x.costs) + 1) / value
			c.order = append(c.order, int32(len(m.gaps)+k))
		}
	}
}

// price returns the cheapest way to make gap g absent and its cost, or keep if there is no way.
func (c *cover) price(pr prices, g int32) (how choice, cost float64) {
	m := c.schedule.m
	x := &m.gaps[g]
	how = keep
	redo := pr.recompute * c.costs.recompute[g]
	if x.canSwap && pr.copy >= 0 {
		copies := float64(x.evictTime + x.prefetchTime)
		how, cost = swap, pr.copy*copies+c.costs.wait[g]
		if pr.dual != nil {
			if dual, rerun, ok := pr.dual.costs(x); ok {
				cost = pr.copy*dual + m.params.dualCopies*copies + c.costs.wait[g]
				if x.canRecompute && pr.recompute >= 0 {
					redo = rerun + c.costs.recompute[g] - float64(x.producersTime)
				}
			}
		}
		// compute waits at least this long, whatever else happens
		if room := m.start[x.before] - c.ready(x); x.evictTime+x.prefetchTime > room {
			cost = max(cost, float64(x.evictTime+x.prefetchTime-room))
		}
	}
	if x.canRecompute && pr.recompute >= 0 && (how == keep || redo < cost) {
		how, cost = recompute, redo
	}
	return how, cost
}

// fill swaps gaps across the fullest position, longest first, as long as their copies fit: those out must be
// done by that position, those in can begin only after it. Then it drops the cheapest until the position
// meets its limit. What is cheaper to drop than split, in nanoseconds per 1024 bytes, is not swapped.
func (c *cover) fill(split float64) {
	s, m := c.schedule, c.schedule.m
	k, missing := 0, int64(math.MinInt64)
	for i := range m.n {
		if v := m.load[i] - s.memory.limit[i]; v > missing {
			k, missing = i, v
		}
	}
	across := c.gapsAcross(plan.OpID(k))
	c.engines.reset(k)
	for _, g := range across {
		x := &m.gaps[g]
		if missing <= 0 {
			return
		}
		if !x.canSwap || s.chains.noSwap || x.canRecompute && c.costs.density(g) < split ||
			!c.engines.take(x) {
			continue
		}
		s.setting.choice[g] = swap
		c.tree.Add(int(c.from[g]), int(c.to[g]), -x.size)
		missing -= x.size
	}
	if c.noDrop {
		return
	}
	slices.SortFunc(across, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.costs.density(a), c.costs.density(b)), cmp.Compare(a, b))
	})
	for _, g := range across {
		x := &m.gaps[g]
		if missing <= 0 {
			return
		}
		if s.setting.choice[g] == keep && x.canRecompute {
			s.setting.choice[g] = recompute
			c.tree.Add(int(x.after)+1, int(x.before), -x.size)
			missing -= x.size
		}
	}
}

// gapsAcross returns the gaps across a position, longest first. They are valid until the next call.
func (c *cover) gapsAcross(at plan.OpID) []int32 {
	m := c.schedule.m
	c.across = c.across[:0]
	for _, g := range m.choices {
		if x := &m.gaps[g]; x.after < at && at < x.before {
			c.across = append(c.across, g)
		}
	}
	slices.SortFunc(c.across, func(a, b int32) int {
		x, y := &m.gaps[a], &m.gaps[b]
		return cmp.Or(cmp.Compare(y.before-y.after, x.before-x.after), cmp.Compare(a, b))
	})
	return c.across
}

// quantile returns the cost of recomputing, in nanoseconds per 1024 bytes, at the given quantile of all gaps
// that can be dropped.
func (c *cover) quantile(share float64) float64 {
	m := c.schedule.m
	if c.densities == nil {
		c.densities = []float64{}
		for _, g := range m.choices {
			if x := &m.gaps[g]; x.canRecompute {
				c.densities = append(c.densities, float64(x.chainTime)*1024/float64(x.size))
			}
		}
		slices.Sort(c.densities)
	}
	if len(c.densities) == 0 {
		return 0
	}
	return c.densities[int(share*float64(len(c.densities)-1))]
}

// load fills the tree with the excess over the limits, minus what a candidate's choices remove.
func (c *cover) load(from *candidate) {
	s, m := c.schedule, c.schedule.m
	for i := range c.values {
		c.values[i] = m.load[i] + s.setting.work[i] - m.work[i] - s.memory.limit[i]
	}
	c.tree.Reset(c.values)
	if from == nil {
		return
	}
	for _, g := range m.choices {
		switch x := &m.gaps[g]; s.setting.choice[g] {
		case swap:
			c.tree.Add(int(c.from[g]), int(c.to[g]), -x.size)
		case recompute:
			c.tree.Add(int(x.after)+1, int(x.before), -x.size)
		}
	}
}

// sort puts the candidates in order of rate. It copies the rates beside the indices first: a comparison that
// looks rates up takes twice as long.
func (c *cover) sort() {
	c.rated = c.rated[:0]
	for _, g := range c.order {
		c.rated = append(c.rated, rated{c.rate[g], g})
	}
	slices.SortFunc(c.rated, func(a, b rated) int {
		switch {
		case a.rate < b.rate:
			return -1
		case a.rate > b.rate:
			return 1
		}
		return int(a.gap - b.gap)
	})
	for k := range c.rated {
		c.order[k] = c.rated[k].gap
	}
}

// rated is a candidate with its rate.
type rated struct {
	rate float64
	gap  int32
}

// takeVariant uses a variant with less workspace where that is needed.
func (c *cover) takeVariant(x *variant) {
	s, i := c.schedule, int(x.op)
	over := c.tree.Max(i, i+1)
	have := s.setting.work[i]
	if over <= 0 || c.schedule.m.work[i]-x.saves >= have {
		return
	}
	s.setting.setWay(i, x.index)
	c.tree.Add(i, i+1, s.setting.work[i]-have)
}

// coverRest covers the remaining excess, now at the price of waiting: copies count in full, and absences
// reach from access to access.
func (c *cover) coverRest(pr prices) {
	s, m := c.schedule, c.schedule.m
	if c.tree.Peak() <= 0 {
		return
	}
	rest := c.order[:0]
	for _, g := range c.order {
		if int(g) >= len(m.gaps) {
			rest = append(rest, g)
			continue
		}
		x := &m.gaps[g]
		if s.setting.choice[g] == recompute {
			rest = append(rest, g)
			continue
		}
		how, cost := swap, float64(x.evictTime+x.prefetchTime)+c.costs.wait[g]
		if !x.canSwap || pr.copy < 0 {
			how = keep
		}
		if x.canRecompute && pr.recompute >= 0 && (how == keep || c.costs.recompute[g] < cost) {
			how, cost = recompute, c.costs.recompute[g]
		}
		if how == keep {
			continue
		}
		c.rate[g], c.cheapest[g] = (cost+1)/float64(x.size), how
		rest = append(rest, g)
	}
	c.order = rest
	c.sort()
	for _, g := range c.order {
		if c.tree.Peak() <= 0 {
			break
		}
		if int(g) >= len(m.gaps) {
			c.takeVariant(&m.variants[int(g)-len(m.gaps)])
			continue
		}
		x := &m.gaps[g]
		if s.setting.choice[g] == keep {
			if c.tree.Max(int(x.after)+1, int(x.before)) > 0 {
				s.setting.choice[g] = c.cheapest[g]
				c.tree.Add(int(x.after)+1, int(x.before), -x.size)
				c.whole[g] = true
			}
			continue
		}
		if s.setting.choice[g] == recompute {
			continue
		}
		// it is swapped already: cover the time of its copies as well
		left, right := c.tree.Max(int(x.after)+1, int(c.from[g])), c.tree.Max(int(c.to[g]), int(x.before))
		if left > 0 || right > 0 {
			s.setting.choice[g] = c.cheapest[g]
			if c.from[g] < c.to[g] {
				c.tree.Add(int(c.from[g]), int(c.to[g]), x.size)
			}
			c.tree.Add(int(x.after)+1, int(x.before), -x.size)
			c.whole[g] = true
		}
	}
}

// prune takes back absences that are not needed, the most expensive first.
func (c *cover) prune() {
	s, m := c.schedule, c.schedule.m
	for _, g := range m.choices {
		if s.setting.choice[g] == swap && !c.whole[g] {
			c.tree.Add(int(c.from[g]), int(c.to[g]), m.gaps[g].size)
			c.tree.Add(int(m.gaps[g].after)+1, int(m.gaps[g].before), -m.gaps[g].size)
		}
		c.whole[g] = false
	}
	for k := len(c.order) - 1; k >= 0; k-- {
		g := c.order[k]
		if int(g) >= len(m.gaps) {
			i := int(m.variants[int(g)-len(m.gaps)].op)
			if more := m.work[i] - s.setting.work[i]; more > 0 && c.tree.Max(i, i+1)+more <= 0 {
				s.setting.setWay(i, m.fast[i])
				c.tree.Add(i, i+1, more)
			}
			continue
		}
		x := &m.gaps[g]
		if s.setting.choice[g] != keep && c.tree.Max(int(x.after)+1, int(x.before))+x.size <= 0 {
			s.setting.choice[g] = keep
			c.tree.Add(int(x.after)+1, int(x.before), x.size)
		}
	}
}

// excess sums what exceeds the limits when everything is kept.
func (c *cover) excess() {
	s, m := c.schedule, c.schedule.m
	c.peak = 0
	for i := range m.n {
		c.peak = max(c.peak, m.load[i]-s.memory.limit[i])
	}
	var sum float64
	for i := range m.n {
		c.sum[i] = sum
		if v := m.load[i] + s.setting.work[i] - m.work[i] - s.memory.limit[i]; v > 0 {
			sum += float64(v) / float64(c.peak)
		}
	}
	c.sum[m.n] = sum
}
