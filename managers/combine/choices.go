package combine

import (
	"sort"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
)

// choices are what becomes of each idle interval, with what follows from that alone: the load, which buffers
// are away, and the pinned memory of the host.
type choices struct {
	p     *plan.Problem
	limit int64
	tree  *curve.Tree
	load  []int64 // when everything is kept

	gaps    []plan.Gap
	gapsOf  []int32 // of each buffer: its first gap; one entry more than buffers
	how     []choice
	release []plan.OpID
	fetch   []plan.OpID
	why     []string

	away   *chain.Set
	pinned *curve.Tree // pinned host memory that swaps hold; nil if it has no limit
}

func newChoices(v *view) choices {
	p, gaps := v.p, v.gaps
	c := choices{p: p, load: p.Load(), gaps: gaps, how: make([]choice, len(gaps)),
		release: make([]plan.OpID, len(gaps)), fetch: make([]plan.OpID, len(gaps)),
		why: make([]string, len(gaps)), gapsOf: make([]int32, len(p.Buffers)+1), away: v.chains.NewSet()}
	c.tree = curve.New(c.load)
	if p.Hardware.PinnedBytes > 0 {
		c.pinned = curve.New(make([]int64, len(p.Ops)))
	}
	for i := range gaps {
		c.gapsOf[gaps[i].Buffer+1]++
	}
	for b := range p.Buffers {
		c.gapsOf[b+1] += c.gapsOf[b]
	}
	return c
}

// reset keeps everything again.
func (c *choices) reset(limit int64) {
	c.limit = limit
	c.tree.Reset(c.load)
	clear(c.how)
	c.away.Reset()
	c.unpin()
}

// unpin gives all pinned memory back.
func (c *choices) unpin() {
	if c.pinned != nil {
		c.pinned.Reset(make([]int64, len(c.load)))
	}
}

func (c *choices) size(g int32) int64 { return c.p.Rounded(c.gaps[g].Buffer) }

// helps reports whether somewhere in ops [lo, hi) more is live than the limit allows.
func (c *choices) helps(lo, hi plan.OpID) bool {
	return lo < hi && c.tree.Max(int(lo), int(hi)) > c.limit
}

// fits reports whether the limit holds everywhere.
func (c *choices) fits() bool { return c.tree.Peak() <= c.limit }

func (c *choices) outTime(g int32) int64 { return c.p.Hardware.D2H.Time(c.size(g)) }
func (c *choices) inTime(g int32) int64  { return c.p.Hardware.H2D.Time(c.size(g)) }

// leave takes a gap's buffer out of memory between two positions.
func (c *choices) leave(g int32, how choice, release, fetch plan.OpID) {
	c.how[g], c.release[g], c.fetch[g] = how, release, fetch
	c.tree.Add(int(release), int(fetch), -c.size(g))
	c.away.Add(c.absence(g))
}

// stay undoes what leave did.
func (c *choices) stay(g int32) {
	c.away.Remove(c.gaps[g].Buffer, c.release[g])
	c.tree.Add(int(c.release[g]), int(c.fetch[g]), c.size(g))
	c.how[g] = keep
}

// move changes the positions at which an absent buffer leaves and returns.
func (c *choices) move(g int32, release, fetch plan.OpID) {
	how := c.how[g]
	c.stay(g)
	c.leave(g, how, release, fetch)
}

// absence returns the absence for a gap's choice.
func (c *choices) absence(g int32) plan.Absence {
	x := &c.gaps[g]
	how := plan.Swap
	switch c.how[g] {
	case recompute:
		how = plan.Recompute
	case discard:
		how = plan.Discard
	}
	return plan.Absence{Buffer: x.Buffer, After: x.After, Before: x.Before, Release: c.release[g],
		Fetch: c.fetch[g], How: how, Paced: how == plan.Swap, Why: c.why[g]}
}

// pinnable reports whether the host has room for the gap's copy.
func (c *choices) pinnable(g int32) bool {
	x := &c.gaps[g]
	return c.pinned == nil || c.pinned.Max(int(x.After), int(x.Before)+1)+
		c.size(g) <= c.p.Hardware.PinnedBytes
}

// sooner moves a swap's fetch to an earlier position, as far as the limit allows. It reports whether it
// moved.
func (c *choices) sooner(g int32, to plan.OpID) bool {
	to = max(to, c.release[g])
	if to >= c.fetch[g] {
		return false
	}
	size := c.size(g)
	if at := c.tree.Last(int(to), int(c.fetch[g]), c.limit-size); at >= 0 {
		to = plan.OpID(at) + 1
	}
	if to >= c.fetch[g] {
		return false
	}
	c.move(g, c.release[g], to)
	return true
}

// later moves a swap's release to a later position, as far as the limit allows. It reports whether it moved.
func (c *choices) later(g int32, to plan.OpID) bool {
	to = min(to, c.fetch[g])
	if at := c.tree.First(int(c.release[g]), int(to), c.limit-c.size(g)); at >= 0 {
		to = plan.OpID(at)
	}
	if to <= c.release[g] {
		return false
	}
	c.move(g, to, c.fetch[g])
	return true
}

// gapAt returns the gap of buffer b around position i, After < i <= Before, -1 if there is none.
func (c *choices) gapAt(b plan.BufferID, i plan.OpID) int32 {
	lo, hi := int(c.gapsOf[b]), int(c.gapsOf[b+1])
	k := lo + sort.Search(hi-lo, func(k int) bool { return c.gaps[lo+k].Before >= i })
	if k < hi && c.gaps[k].After < i {
		return int32(k)
	}
	return -1
}

// gapOf returns the gap of an absence that the selection made.
func (c *choices) gapOf(x *plan.Absence) int32 {
	lo, hi := c.gapsOf[x.Buffer], c.gapsOf[x.Buffer+1]
	return lo + int32(sort.Search(int(hi-lo), func(k int) bool { return c.gaps[int(lo)+k].After >= x.After }))
}
