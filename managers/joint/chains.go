package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Rematerialization: ops rerun just before an op that needs a dropped value.
//
// The problem: to recompute a value its producers are rerun, and their inputs may be gone by then too. The
// chain of ops takes time and, while it runs, memory. Its intermediate results may serve later ops that would
// otherwise need chains of their own.
//
// The approach: go through positions in order of time. A chain is collected depth first from what is missing,
// back to values that are present. A value that a later copy back would bring is fetched early if it fits
// until then. If not, it is loaded for the chain alone, which costs another copy back, or run again as well,
// whichever takes less time by itself. Results that other dropped buffers need later are retained as long as
// memory allows; the one needed last is given up first. If a chain cannot run or exceeds the limit, the
// buffer is swapped instead, or kept if it cannot be.
//
// Complexity: O(ops of all chains), bounded by a multiple of the iteration's ops. Rejected: the cost of each
// chain in isolation, as computed by package chain (the cost of a chain depends on what else is absent; the
// isolated cost serves as the first price).

// chains are the reruns of a schedule.
type chains struct {
	m        *model
	setting  *setting
	absences *absences
	memory   *memory
	steps    *int64 // counted work
	noSwap   bool   // swapping is switched off

	reruns    []rerun
	ops       []plan.OpID // of all reruns
	loads     []loading   // of all reruns: what they load for themselves alone
	rerunTime []int64     // time of the rerun at each position
	visited   int         // ops looked at for chains so far

	round   int32     // counts schedules
	touched []touched // for each buffer, the last rerun that touches it
	// for each gap whose value is on the host, the last rerun that makes another value of its buffer
	remade []touched

	// Of the current rerun.
	epoch    int32
	opEpoch  []int32 // the stamp of the chain that each op is in
	lastUse  []int32 // the last use of each buffer in the chain
	useEpoch []int32
	targets  []int32
	retained []int32
	early    []int32
	loaded   []int32 // the gaps whose values it loads for itself alone
	rerun    int32   // its number, of all schedules
	// for each gap, the last rerun that would have written over its value
	unbrought []int32
	unmet     []need
	freed     []int64 // for each op of a chain, the bytes that it is the last to use
	dropped   []int32 // the gaps whose values are recomputed
	lists     lists   // the dropped gaps, by the position at which they are due
}

// forget removes the reruns of the last schedule.
func (c *chains) forget() {
	for k := range c.reruns {
		at := c.reruns[k].at
		c.memory.rerunPeak[at], c.rerunTime[at] = 0, 0
	}
	c.reruns, c.ops, c.loads, c.visited = c.reruns[:0], c.ops[:0], c.loads[:0], 0
	c.round++
}

// place places a rerun before every op that needs a dropped value that is not back yet, in order of time.
func (c *chains) place() {
	m := c.m
	if c.setting.timing != nil {
		c.placeByDue()
		return
	}
	for k := 0; k < len(m.byBefore); {
		at := m.gaps[m.byBefore[k]].before
		c.targets = c.targets[:0]
		for ; k < len(m.byBefore) && m.gaps[m.byBefore[k]].before == at; k++ {
			if g := m.byBefore[k]; c.absences.how[g] == recompute && c.absences.fetch[g] == at {
				c.targets = append(c.targets, g)
			}
		}
		if len(c.targets) > 0 {
			c.placeAt(at)
		}
	}
}

// placeByDue does the same where values may be due earlier than they are needed.
func (c *chains) placeByDue() {
	c.dropped = c.dropped[:0]
	for _, g := range c.m.byBefore {
		if c.absences.how[g] == recompute {
			c.dropped = append(c.dropped, g)
		}
	}
	if len(c.dropped) == 0 {
		return
	}
	c.lists.sort(c.dropped, func(g int32) plan.OpID { return c.absences.due[g] })
	for i := range c.lists.first {
		c.targets = c.targets[:0]
		for g := c.lists.first[i]; g >= 0; g = c.lists.next[g] {
			if c.absences.how[g] == recompute && c.absences.fetch[g] == plan.OpID(i) {
				c.targets = append(c.targets, g)
			}
		}
		if len(c.targets) > 0 {
			c.placeAt(plan.OpID(i))
		}
	}
}

// placeAt brings the targets back before op at. A target whose chain cannot run is swapped or kept instead.
func (c *chains) placeAt(at plan.OpID) {
	from := int32(len(c.ops))
	c.rerun++
	for c.collectAll(at, from); c.overwritten(at, from); c.collectAll(at, from) {
		c.ops = c.ops[:from]
	}
	if int32(len(c.ops)) == from {
		return
	}
	c.pullEarly(at)
	chain := c.ops[from:]
	slices.Sort(chain)
	c.retain(at, chain)
	c.retainLess(at, chain)
	if c.memory.rerunPeak[at] > c.memory.limit[at] && c.fallBackToSwap(at, from) {
		return
	}
	loadFrom := int32(len(c.loads))
	for _, g := range c.loaded {
		c.loads = append(c.loads, loading{gap: g, at: at, after: c.lastAt(c.m.gaps[g].buffer), fetch: at})
	}
	c.reruns = append(c.reruns, rerun{at, from, int32(len(c.ops)), loadFrom, int32(len(c.loads))})
	for _, o := range chain {
		c.rerunTime[at] += c.setting.dur[o] + c.m.p.Hardware.AgainTime
		for _, a := range c.m.p.AccessesOf(o) {
			c.touched[a.Buffer] = touched{c.round, at}
			if !a.Mode.Writes() || a.Mode == plan.Write && !c.m.writtenIn(a.Buffer, o+1, at) {
				continue
			}
			if there, g := c.absences.present(a.Buffer, at); !there && g >= 0 && c.absences.how[g] == swap {
				c.remade[g] = touched{c.round, at}
			}
		}
	}
}

// lastAt returns the position of the last rerun so far that touches a buffer, 0 if there is none.
func (c *chains) lastAt(b plan.BufferID) plan.OpID { return c.touched[b].in(c.round) }

// backAfter returns the first position at which a swapped value may be back: when it has left, and behind
// reruns that make another value of its buffer.
func (c *chains) backAfter(g int32) plan.OpID {
	return max(c.absences.leave[g], c.remade[g].in(c.round)+1)
}

// overwritten reports whether an op of the rerun before op at would write over a value that comes back from
// the host for it: other parts of what it writes have to be made again. Such a value is not brought any more.
func (c *chains) overwritten(at plan.OpID, from int32) bool {
	if len(c.early)+len(c.loaded) == 0 {
		return false
	}
	found := false
	for _, o := range c.ops[from:] {
		for _, a := range c.m.p.AccessesOf(o) {
			if !a.Mode.Writes() || a.Mode == plan.Write && !c.m.writtenIn(a.Buffer, o+1, at) {
				continue
			}
			g := c.m.gapOf(a.Buffer, at)
			if g >= 0 && c.unbrought[g] != c.rerun &&
				(slices.Contains(c.early, g) || slices.Contains(c.loaded, g)) {
				c.unbrought[g], found = c.rerun, true
			}
		}
	}
	return found
}

// collectAll adds the chains of all targets to the rerun before op at, whose ops begin at from.
func (c *chains) collectAll(at plan.OpID, from int32) {
	c.epoch++
	c.early, c.loaded = c.early[:0], c.loaded[:0]
	for _, g := range c.targets {
		if c.absences.how[g] != recompute { // it was given up before
			continue
		}
		size, pulls, loads := len(c.ops), len(c.early), len(c.loaded)
		if c.collect(c.m.gaps[g].buffer, at, from) {
			continue
		}
		for _, o := range c.ops[size:] {
			c.opEpoch[o] = 0
		}
		c.ops, c.early, c.loaded = c.ops[:size], c.early[:pulls], c.loaded[:loads]
		c.fallBack(g)
	}
}

// pullEarly moves forward the return of values that a chain reads before op at.
func (c *chains) pullEarly(at plan.OpID) {
	for k, g := range c.early {
		if c.absences.due[g] <= at {
			c.early[k] = none // in the list twice
			continue
		}
		c.memory.holdThroughout(c.m.gaps[g].size, at, c.absences.due[g])
		c.absences.due[g], c.absences.fetch[g] = at, at
	}
}

// retainLess drops retained values, the one needed last first, until the chain runs within the limit or
// nothing is retained. It records the memory that the chain takes.
func (c *chains) retainLess(at plan.OpID, chain []plan.OpID) {
	for {
		c.memory.rerunPeak[at] = c.chainPeak(at, chain)
		if c.memory.rerunPeak[at] <= c.memory.limit[at] || len(c.retained) == 0 {
			return
		}
		g := c.retained[len(c.retained)-1]
		c.retained = c.retained[:len(c.retained)-1]
		due := c.absences.due[g]
		c.memory.hold(-c.m.gaps[g].size, at, due)
		c.absences.fetch[g] = due
	}
}

// fallBackToSwap gives up a rerun that needs more memory than there is, if all its targets can be swapped.
func (c *chains) fallBackToSwap(at plan.OpID, from int32) bool {
	if c.noSwap {
		return false
	}
	for _, g := range c.targets {
		if !c.m.gaps[g].canSwap {
			return false
		}
	}
	for _, g := range c.early {
		if g >= 0 {
			x := &c.m.gaps[g]
			c.memory.holdThroughout(-x.size, at, x.before)
			c.absences.due[g], c.absences.fetch[g] = x.before, x.before
		}
	}
	for _, g := range c.targets {
		if c.absences.how[g] == recompute {
			c.swapInstead(g)
		}
	}
	c.ops, c.memory.rerunPeak[at] = c.ops[:from], 0
	return true
}

// fallBack handles gap g, whose chain cannot run, in another way: swap if possible, otherwise keep.
func (c *chains) fallBack(g int32) {
	x := &c.m.gaps[g]
	if x.canSwap && !c.noSwap {
		c.swapInstead(g)
		return
	}
	c.absences.how[g] = keep
	c.memory.hold(x.size, c.absences.leave[g], c.absences.due[g])
}

// swapInstead swaps gap g, with its copy back due when the value is needed.
func (c *chains) swapInstead(g int32) {
	before := c.m.gaps[g].before
	c.memory.hold(-c.m.gaps[g].size, c.absences.due[g], before)
	c.absences.how[g], c.absences.due[g], c.absences.fetch[g] = swap, before, before
}

// collect adds to the rerun at position at the ops that make the value that b holds there. The ops of the
// rerun begin at from.
func (c *chains) collect(b plan.BufferID, at plan.OpID, from int32) bool {
	p := c.m.p
	c.unmet = append(c.unmet[:0], need{b, at})
	for len(c.unmet) > 0 {
		w := c.unmet[len(c.unmet)-1]
		c.unmet = c.unmet[:len(c.unmet)-1]
		touches := c.m.writes.of(int32(w.buffer))
		buf := &p.Buffers[w.buffer]
		thisIteration := buf.Life == plan.Carried && w.at >= buf.Start // its value is of this iteration
		found := false
		for k := plan.FirstTouch(touches, w.at) - 1; k >= 0 && !found; k-- {
			t := touches[k]
			if thisIteration && t.Op < buf.Start || t.Mode == plan.Use {
				return false
			}
			found = t.Mode == plan.Write
			if c.opEpoch[t.Op] == c.epoch {
				continue
			}
			if !p.Ops[t.Op].Rerunnable || len(c.ops)-int(from) >= c.m.params.longestChain ||
				c.visited > c.m.params.mostVisited*c.m.n {
				return false
			}
			c.opEpoch[t.Op] = c.epoch
			c.visited++
			c.ops = append(c.ops, t.Op)
			if !c.require(t.Op, at) {
				return false
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// require adds what op o reads to the needs if o is rerun before op at, and checks that o overwrites nothing
// that is present.
func (c *chains) require(o, at plan.OpID) bool {
	p := c.m.p
	*c.steps += 4 * int64(len(p.AccessesOf(o)))
	for _, a := range p.AccessesOf(o) {
		there, g := c.absences.present(a.Buffer, at)
		// it is recomputed as scratch unless pulled early, so its first stay must end before
		if !there && g >= 0 && c.absences.how[g] == swap {
			c.absences.evictBy[g] = min(c.absences.evictBy[g], at)
		}
		switch {
		case there && a.Mode == plan.Read:
			if c.m.writtenIn(a.Buffer, o, at) {
				return false
			}
		case there && a.Mode == plan.Write:
			if c.m.writtenIn(a.Buffer, o+1, at) {
				return false
			}
		case there:
			return false
		case !a.Mode.Reads():
		case g >= 0 && c.absences.how[g] == swap && !c.m.writtenIn(a.Buffer, o, at) && a.Mode == plan.Read &&
			c.bring(g, at):
		default:
			c.unmet = append(c.unmet, need{a.Buffer, o})
		}
	}
	return true
}

// bring has the swapped value of gap g in memory for a rerun before op at, if that is worthwhile: from there
// on if it fits, otherwise for the rerun alone.
func (c *chains) bring(g int32, at plan.OpID) bool {
	if c.unbrought[g] == c.rerun {
		return false
	}
	if slices.Contains(c.loaded, g) {
		return true
	}
	x, from := &c.m.gaps[g], cheapest
	if c.setting.timing != nil {
		from = c.setting.timing.source[g]
	}
	switch {
	case from != loaded && c.memory.fits(x.size, at, c.absences.due[g]):
		c.early = append(c.early, g)
	case c.m.p.EagerOnly, from == rerunOnly,
		from == cheapest && x.canRecompute && x.chainTime < x.prefetchTime:
		return false
	default:
		c.loaded = append(c.loaded, g)
	}
	return true
}

// load returns the index of a rerun's load of the value of gap g, or none.
func (c *chains) load(r *rerun, g int32) int32 {
	for k := r.loadFrom; k < r.loadTo; k++ {
		if c.loads[k].gap == g {
			return k
		}
	}
	return none
}

// retain decides which of a chain's results stay for their own later use: those that were dropped, now have
// the right value, and fit until then.
func (c *chains) retain(at plan.OpID, chain []plan.OpID) {
	m, p := c.m, c.m.p
	c.retained = c.retained[:0]
	for _, o := range chain {
		for _, a := range p.AccessesOf(o) {
			if !a.Mode.Writes() {
				continue
			}
			there, g := c.absences.present(a.Buffer, at)
			if there || g < 0 || c.absences.how[g] != recompute || c.absences.due[g] == at ||
				m.gaps[g].after+1 >= at ||
				int(c.absences.due[g]-at) > m.params.farthestRetained ||
				c.setting.timing != nil && at < c.setting.timing.retain[g] ||
				c.m.writtenIn(a.Buffer, o+1, at) {
				continue
			}
			c.retained = append(c.retained, g)
		}
	}
	slices.SortFunc(c.retained, func(a, b int32) int {
		return cmp.Or(cmp.Compare(m.gaps[a].before, m.gaps[b].before), cmp.Compare(a, b))
	})
	c.retained = slices.Compact(c.retained)
	kept := c.retained[:0]
	for _, g := range c.retained {
		x, due := &m.gaps[g], c.absences.due[g]
		if c.memory.fits(x.size, at, due) {
			c.memory.hold(x.size, at, due)
			c.absences.fetch[g] = at
			kept = append(kept, g)
		}
	}
	c.retained = kept
}

// chainPeak returns the peak bytes in memory while the chain runs before op at.
func (c *chains) chainPeak(at plan.OpID, chain []plan.OpID) int64 {
	m, p := c.m, c.m.p
	live := c.memory.load[at] - m.born[at] - (c.setting.work[at] - m.work[at])
	for _, g := range c.targets {
		if c.absences.how[g] == recompute {
			live -= m.gaps[g].size
		}
	}
	for _, g := range c.retained {
		live -= m.gaps[g].size
	}
	for k, o := range chain {
		for _, a := range p.AccessesOf(o) {
			c.lastUse[a.Buffer] = int32(k)
		}
	}
	c.epoch++ // now it stamps buffers that the chain has made; the stamps of ops are no longer needed
	c.freed = slices.Grow(c.freed[:0], len(chain))[:len(chain)]
	clear(c.freed)
	for _, g := range c.loaded {
		x := &m.gaps[g]
		c.useEpoch[x.buffer] = c.epoch
		live += x.size
		c.freed[c.lastUse[x.buffer]] += x.size
	}
	peak := live
	for k, o := range chain {
		for _, a := range p.AccessesOf(o) {
			if c.useEpoch[a.Buffer] == c.epoch {
				continue
			}
			there, g := c.absences.present(a.Buffer, at)
			if there {
				continue
			}
			kept := g >= 0 && c.absences.how[g] == recompute && c.absences.fetch[g] == at
			c.useEpoch[a.Buffer] = c.epoch
			size := p.Rounded(a.Buffer)
			live += size
			if !kept {
				c.freed[c.lastUse[a.Buffer]] += size
			}
		}
		peak = max(peak, live+c.setting.work[o])
		live -= c.freed[k]
	}
	return peak
}
