package joint

import (
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Where copies back are issued.
//
// The problem: compute waits for a copy that comes too late, and one that comes early takes up memory until
// it is needed. The copy engine runs one copy at a time, in the order of issue.
//
// The approach: go through the copies backwards, the last needed first, and issue each at the latest moment
// at which the engine still finishes it in time, or as close to that as memory allows. In an iteration of a
// hundred thousand ops a copy passes thousands of positions on its way, so positions are handled in blocks: a
// block records what was added to all of it (added), and the least room in it tells whether to look inside
// (room). The recorded room may be an underestimate but never an overestimate, so the result is the same as
// going position by position, to the byte. If lack of memory delays a copy, it delays all that follow it in
// the queue. From then on those are issued together, and move as one (group). A schedule that hastens copies
// then hands memory that late copies took, and released with their group, to the copies needed first.
//
// Complexity: O(copies x (length of a block + blocks passed)). Rejected: position by position, which took
// three quarters of the planning time for 100,000 buffers; delaying each copy of a queue individually, which
// is quadratic where memory is short, and took a sixth. Not tried: a segment tree over the room.

// prefetches are the copies back of a schedule.
type prefetches struct {
	m        *model
	setting  *setting
	absences *absences
	memory   *memory
	chains   *chains
	nominal  *nominal
	order    []int32 // the swaps, in the order in which they return
	others   []int32 // those that return when their op needs them
	copies   []copyBack
	groups   []group // of the copies back placed so far, the last to be issued first
	lists    lists
}

// place places the copies back, the last needed first, each as late as the copy engine permits, and later if
// memory is short.
func (ps *prefetches) place() {
	m := ps.m
	ps.order, ps.others = ps.order[:0], ps.others[:0]
	for _, g := range m.byBefore {
		switch {
		case ps.absences.how[g] != swap:
		case ps.absences.due[g] < m.gaps[g].before:
			ps.order = append(ps.order, g)
		default:
			ps.others = append(ps.others, g)
		}
	}
	pulled := len(ps.order) > 0
	ps.order = append(ps.order, ps.others...)
	if pulled {
		// of those due at one position, those that a chain reads come first, because the chain runs before
		// the op
		ps.lists.sort(ps.order, func(g int32) plan.OpID { return ps.absences.due[g] })
		ps.lists.all(ps.order)
	}
	if m.inline { // a copy back takes the same time and the same memory wherever it is made
		return
	}
	ps.merge()
	ps.memory.openBlocks()
	ps.groups = ps.groups[:0]
	next := ps.nominal.clock[m.n]
	for k := len(ps.copies) - 1; k >= 0; k-- {
		y := &ps.copies[k]
		at := ps.nominal.start[y.due]
		if ps.chains.rerunTime[y.due] > 0 {
			at = ps.nominal.clock[y.due]
		}
		time, size := m.gaps[y.gap].prefetchTime, m.gaps[y.gap].size
		last := min(at, next) - time - int64(ps.setting.lead*float64(time))
		y.wanted = last
		f := ps.earlier(y, y.due, last)
		late := group{at: f, to: k + 1}
		// the queue is in order of issue: what is needed later must not be issued earlier
		for n := len(ps.groups) - 1; n >= 0 && ps.groups[n].at < f; n-- {
			y := ps.groups[n]
			ps.memory.takeBack(y.size, y.at, f)
			late.to, late.size = y.to, late.size+y.size
			ps.groups = ps.groups[:n]
		}
		if late.to > k+1 {
			ps.groups = append(ps.groups, late)
		}
		f = ps.earlier(y, f, last)
		ps.groups = append(ps.groups, group{at: f, to: k + 1, size: size})
		next = max(last, ps.nominal.clock[f])
	}
	ps.issueAll()
	ps.memory.closeBlocks()
}

// issueAll issues the copies back where their groups are, or hastens them: what comes late there is issued
// earlier where memory allows, the first needed first.
func (ps *prefetches) issueAll() {
	k, before := 0, plan.OpID(0)
	for n := len(ps.groups) - 1; n >= 0; n-- {
		for g := &ps.groups[n]; k < g.to; k++ {
			y, at := &ps.copies[k], g.at
			if ps.setting.hasten && ps.nominal.clock[at] > y.wanted {
				y.from = max(y.from, before)
				at = ps.earlier(y, at, y.wanted)
			}
			ps.issue(y, at)
			before = at
		}
	}
}

// copyBack is a copy back: of a swap for good, or for a rerun alone.
type copyBack struct {
	gap    int32
	load   int32     // its index among the chains' loads, none if it is for good
	due    plan.OpID // the position by which it must be back
	from   plan.OpID // the first position at which it can be issued
	wanted int64     // when it should begin
}

// merge lists the copies back for good and those for reruns alone, in the order in which they are due. At one
// position those for reruns come first.
func (ps *prefetches) merge() {
	ps.copies = ps.copies[:0]
	loads := ps.chains.loads
	next := 0
	for _, g := range ps.order {
		due := ps.absences.due[g]
		for ; next < len(loads) && loads[next].at <= due; next++ {
			ps.copies = append(ps.copies, ps.forRerun(next))
		}
		ps.copies = append(ps.copies, copyBack{gap: g, load: none, due: due, from: ps.chains.backAfter(g)})
	}
	for ; next < len(loads); next++ {
		ps.copies = append(ps.copies, ps.forRerun(next))
	}
}

// forRerun returns the copy back of a load.
func (ps *prefetches) forRerun(k int) copyBack {
	l := &ps.chains.loads[k]
	return copyBack{gap: l.gap, load: int32(k), due: l.at, from: max(ps.chains.backAfter(l.gap), l.after+1)}
}

// issue sets where a copy back is issued.
func (ps *prefetches) issue(c *copyBack, at plan.OpID) {
	if c.load < 0 {
		ps.absences.fetch[c.gap] = at
		return
	}
	ps.chains.loads[c.load].fetch = at
	ps.absences.evictBy[c.gap] = min(ps.absences.evictBy[c.gap], at)
}

// group is a stretch of the queue of copies back, up to a place in it, that are issued at one position. Once
// together they stay together: what delays one of them delays all. So a queue that is delayed repeatedly
// moves in whole groups.
type group struct {
	at   plan.OpID
	to   int
	size int64
}

// earlier moves a copy back from position f towards the last moment at which it can begin, as far as memory
// allows.
func (ps *prefetches) earlier(c *copyBack, f plan.OpID, last int64) plan.OpID {
	size, clock, mem := ps.m.gaps[c.gap].size, ps.nominal.clock, ps.memory
	for f > c.from && clock[f] > last {
		at := f - 1
		b := at >> blockShift
		if start := b << blockShift; f&(1<<blockShift-1) == 0 && start >= c.from && clock[start+1] > last &&
			mem.room[b]-mem.added[b] >= size {
			mem.added[b] += size
			f = start
			continue
		}
		room := mem.limit[at] - max(mem.load[at], mem.rerunPeak[at]) - size
		if room < mem.added[b] {
			break
		}
		mem.load[at] += size
		if mem.rerunPeak[at] > 0 {
			mem.rerunPeak[at] += size
		}
		mem.room[b] = min(mem.room[b], room)
		f = at
	}
	return f
}
