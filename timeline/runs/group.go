package runs

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Problem: up to a thousand ranks train together, and a person has time for one sentence. Say which rank to
// look at first and why: in which entry its memory differs, since which step, and which rank will run
// out of memory first.
//
// Approach: a rank is compared only with those that do the same as it. Stages of a pipeline differ by
// design; ranks along the other axes should not. Within a class [ComparePeers] decides. The step since which
// a rank differs is the first of the last unbroken run of steps in which it was off by more than half of what
// it is off by now.
//
// Complexity: O(n log n) for n ranks, plus O(n·s) for the s steps that are looked back at, for one rank only.

// RankState is the state of a rank.
type RankState uint8

// The states of a rank, worst last.
const (
	Steps RankState = iota
	// Starting: it has not taken a step yet.
	Starting
	// Done: it ended well.
	Done
	// Late: nothing has come from its machine for some seconds.
	Late
	// Missing: nothing has come for so long that it counts as lost.
	Missing
	// Failed: it did not end well.
	Failed
)

// Entry names an entry of a rank's memory.
type Entry uint8

// The entries.
const (
	EntryParameters Entry = iota
	EntryGradients
	EntryOptimizer
	// EntryRest is what is left: activations, mostly, and what the program keeps.
	EntryRest
	numEntries
)

// String returns the entry's word.
func (e Entry) String() string {
	return [...]string{"parameters", "gradients", "optimizer state", "activations and other memory"}[e]
}

// GroupRank is a rank of a running training.
type GroupRank struct {
	// ID identifies it to viewers.
	ID   int
	Rank maybe.Int
	PID  int
	Host string
	Axes []traces.Axis
	State
	Step maybe.Int
	// Usual holds the medians of its last steps.
	Usual Peer
	// Entries are what its memory consists of, unknown where it does not say.
	Entries [numEntries]maybe.Int
	// Room is how much memory its device has for it, unknown on a machine without one.
	Room maybe.Int
	// Growth is by how many bytes its memory grows with each step, 0 if it does not.
	Growth float64
	// Lost is how many of its steps never arrived.
	Lost int64
	// Captured is how many of its steps are captured whole.
	Captured int
}

// State is how a rank is, and in words why.
type State struct {
	Is   RankState
	Word string
}

// GoesOn reports whether the rank takes steps, as far as is known.
func (s State) GoesOn() bool { return s.Is == Steps || s.Is == Starting || s.Is == Late }

// Name names the rank, or its process if it has none.
func (m *GroupRank) Name() string {
	if m.Rank.IsKnown() {
		return fmt.Sprintf("rank %v", m.Rank)
	}
	return fmt.Sprintf("process %d", m.PID)
}

// Axis returns where the rank stands along an axis, unknown if it does not say.
func (m *GroupRank) Axis(name string) maybe.Int {
	for _, a := range m.Axes {
		if a.Name == name {
			return maybe.Known(a.At)
		}
	}
	return maybe.Int{}
}

// Alone is the time of a step that does not depend on the other ranks: forward and optimizer, or the whole
// step if the phases are unknown.
func (p *Peer) Alone() maybe.Int {
	if !p.Forward.IsKnown() {
		return p.Duration
	}
	return maybe.Sum(p.Forward, p.Optimizer)
}

// Group is all ranks of a running training, compared.
type Group struct {
	// Ranks are in the order of their numbers.
	Ranks []GroupRank
	// Peers compares each with those of its class; its indices are those of Ranks.
	Peers PeerReport
	// Class is, for each rank, which of the classes below it belongs to.
	Class []int
	// Classes hold the medians of those that do the same.
	Classes []Class
	// First is the rank to look at first, -1 if all are alike, and Why says why.
	First int
	Why   Why
	// Out is who runs out of memory first.
	Out Out
	// Skews is how late the slowest rank of each of the newest steps was, oldest first; nil if nobody looked.
	Skews []Skew
	// Over means that no rank takes steps any more. Then those that have ended are compared, by their last
	// steps.
	Over bool
}

// Class is the ranks that do the same.
type Class struct {
	// Name tells them apart from others: "stage 2", "" if there is only one class.
	Name    string
	Size    int
	Bytes   maybe.Int
	Alone   maybe.Int
	entries [numEntries]maybe.Int
}

// Why is why a rank is looked at first.
type Why struct {
	Figure PeerFigure
	// Slow means that the others wait for it, and not that it holds more.
	Slow          bool
	Value, Others int64
	// Entry is the one in which its memory differs most, by EntryBytes; 0 bytes if none is known.
	Entry      Entry
	EntryBytes int64
	// Since is the first step in which it differed, unknown if that was not looked for. Always means that it
	// differs as far back as steps are kept, which begin with Since.
	Since  maybe.Int
	Always bool
	// Site is the call site that holds more than with a typical rank, by SiteBytes, in captured steps of
	// both; "" before they are.
	Site      string
	SiteBytes int64
}

// Out is who runs out of memory first, if all go on as they do.
type Out struct {
	// Index is that of the rank, -1 if no rank's memory grows.
	Index int
	// Steps are how many are left and Time how long they take in nanoseconds, unknown if it is not known how
	// much memory there is.
	Steps, Time maybe.Int
	Growth      float64
}

// classOf names a rank's class: the stage of the pipeline, which differs from others by design.
func classOf(m *GroupRank) string {
	if at, ok := m.Axis(traces.Pipeline).Value(); ok {
		return fmt.Sprintf("stage %d", at)
	}
	return ""
}

// NewGroup compares ranks.
func NewGroup(ranks []GroupRank) *Group {
	g := &Group{Ranks: ranks, First: -1, Out: Out{Index: -1}, Class: make([]int, len(ranks))}
	slices.SortStableFunc(g.Ranks, func(a, b GroupRank) int {
		return cmp.Or(cmp.Compare(a.Rank.Or(math.MaxInt64), b.Rank.Or(math.MaxInt64)),
			cmp.Compare(a.ID, b.ID))
	})
	g.Over = !slices.ContainsFunc(g.Ranks, func(m GroupRank) bool { return m.GoesOn() })
	index := map[string]int{}
	var of [][]int // ranks by class
	for i := range g.Ranks {
		name := classOf(&g.Ranks[i])
		k, known := index[name]
		if !known {
			k = len(g.Classes)
			index[name] = k
			g.Classes, of = append(g.Classes, Class{Name: name}), append(of, nil)
		}
		g.Class[i], of[k] = k, append(of[k], i)
	}
	g.Peers.Slow = -1
	for k, list := range of {
		g.measure(k, list)
	}
	slices.SortStableFunc(g.Peers.Differences,
		func(a, b PeerDifference) int { return cmp.Compare(a.Peer, b.Peer) })
	g.first()
	g.runsOut()
	return g
}

// measure compares the ranks of one class.
func (g *Group) measure(k int, list []int) {
	peers := make([]Peer, len(list))
	var bytes, alone []int64
	var entries [numEntries][]int64
	add := func(to *[]int64, v maybe.Int) {
		if v, ok := v.Value(); ok {
			*to = append(*to, v)
		}
	}
	for n, i := range list {
		m := &g.Ranks[i]
		if !g.Over && (m.Is == Done || m.Is == Failed) {
			continue // what it once held says nothing about those that run
		}
		peers[n] = m.Usual
		add(&bytes, m.Usual.Bytes)
		add(&alone, m.Usual.Alone())
		for p := range entries {
			add(&entries[p], m.Entries[p])
		}
	}
	middle := func(list []int64) maybe.Int {
		if len(list) == 0 {
			return maybe.Int{}
		}
		return maybe.Known(stats.Median(list))
	}
	c := &g.Classes[k]
	c.Size, c.Bytes, c.Alone = len(list), middle(bytes), middle(alone)
	for p := range entries {
		c.entries[p] = middle(entries[p])
	}
	r := ComparePeers(peers)
	for _, d := range r.Differences {
		d.Peer = list[d.Peer]
		g.Peers.Differences = append(g.Peers.Differences, d)
	}
	if r.Slow >= 0 && r.Own-r.OthersOwn > g.Peers.Own-g.Peers.OthersOwn {
		g.Peers.Slow, g.Peers.Waits = list[r.Slow], r.Waits
		g.Peers.Own, g.Peers.OthersOwn = r.Own, r.OthersOwn
	}
}

// first chooses the rank to look at first: the one that holds most more than its class, or else the one
// that the others wait for. Where a class has two ranks, each differs from the other: the larger one
// counts.
func (g *Group) first() {
	most := 0.0
	for _, d := range g.Peers.Differences {
		m := &g.Ranks[d.Peer]
		if d.Figure != PeerBytes || d.Value <= d.Others || !g.Over && !m.GoesOn() || d.share <= most {
			continue
		}
		most, g.First = d.share, d.Peer
		g.Why = Why{Figure: PeerBytes, Value: d.Value, Others: d.Others}
	}
	if g.First >= 0 {
		g.entry()
		return
	}
	if i := g.Peers.Slow; i >= 0 {
		g.First = i
		g.Why = Why{Figure: PeerForward, Slow: true, Value: g.Peers.Own, Others: g.Peers.OthersOwn}
		if !g.Ranks[i].Usual.Forward.IsKnown() {
			g.Why.Figure = PeerDuration
		}
	}
}

// entry finds the entry in which the first rank's memory differs most.
func (g *Group) entry() {
	m, c := &g.Ranks[g.First], &g.Classes[g.Class[g.First]]
	for p := range numEntries {
		mine, ok := m.Entries[p].Value()
		usual, known := c.entries[p].Value()
		if ok && known && mine-usual > g.Why.EntryBytes {
			g.Why.Entry, g.Why.EntryBytes = p, mine-usual
		}
	}
}

// runsOut finds who runs out of memory first.
func (g *Group) runsOut() {
	for i := range g.Ranks {
		m := &g.Ranks[i]
		if m.Growth <= 0 || !m.GoesOn() {
			continue
		}
		x := Out{Index: i, Growth: m.Growth}
		bytes, ok := m.Usual.Bytes.Value()
		room, known := m.Room.Value()
		if ok && known {
			left := max(float64(room-bytes), 0) / m.Growth
			if left < 1e12 {
				x.Steps = maybe.Known(int64(left))
				if d, ok := m.Usual.Duration.Value(); ok && left*float64(d) < math.MaxInt64/2 {
					x.Time = maybe.Known(int64(left * float64(d)))
				}
			}
		}
		if g.Out.Index < 0 || sooner(x, g.Out) {
			g.Out = x
		}
	}
}

// sooner reports whether a comes before b: whose end is known, and is nearer, or else who grows faster.
func sooner(a, b Out) bool {
	x, ok := a.Steps.Value()
	y, known := b.Steps.Value()
	if ok && known {
		return x < y
	}
	if ok != known {
		return ok
	}
	return a.Growth > b.Growth
}

// Typical returns the rank of the same class as rank i that is closest to the class's median in memory,
// for a comparison; -1 if there is no other.
func (g *Group) Typical(i int) int {
	best, near := -1, int64(math.MaxInt64)
	c := &g.Classes[g.Class[i]]
	for k := range g.Ranks {
		m := &g.Ranks[k]
		if k == i || g.Class[k] != g.Class[i] || m.Is != Steps {
			continue
		}
		if d := abs(m.Usual.Bytes.Or(0) - c.Bytes.Or(0)); d < near {
			best, near = k, d
		}
	}
	return best
}

// Order returns the ranks in the order in which they are worth a look: those that failed, that are lost or
// late, that will run out of memory, that differ, and then by rank.
func (g *Group) Order() []int {
	order := make([]int, len(g.Ranks))
	weight := make([]int, len(g.Ranks))
	for i := range g.Ranks {
		order[i] = i
		switch m := &g.Ranks[i]; {
		case m.Is == Failed:
			weight[i] = -6
		case m.Is == Missing:
			weight[i] = -5
		case m.Is == Late:
			weight[i] = -2
		}
	}
	for _, d := range g.Peers.Differences {
		if g.Ranks[d.Peer].GoesOn() {
			weight[d.Peer] = min(weight[d.Peer], -1)
		}
	}
	if i := g.Out.Index; i >= 0 && g.Out.Steps.IsKnown() {
		weight[i] = min(weight[i], -3)
	}
	if g.First >= 0 {
		weight[g.First] = min(weight[g.First], -4)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight[a], weight[b]) })
	return order
}

// Sample is what a rank held in one step, and how long it took alone.
type Sample struct {
	Step  int64
	Value int64
}

// Since finds the first step since which own differs from the others as it does now. The samples of each are
// in the order of their steps; others may lack some. always means that it differs as far back as own goes.
func Since(own []Sample, others [][]Sample) (step maybe.Int, always bool) {
	const now = 8 // steps that say how far off it is now
	type off struct{ step, by int64 }
	var list []off
	at := make([]int, len(others))
	var values []int64
	for _, s := range own {
		values = values[:0]
		for k, o := range others {
			for at[k] < len(o) && o[at[k]].Step < s.Step {
				at[k]++
			}
			if at[k] < len(o) && o[at[k]].Step == s.Step {
				values = append(values, o[at[k]].Value)
			}
		}
		if len(values) > 0 {
			list = append(list, off{s.Step, s.Value - stats.Median(values)})
		}
	}
	if len(list) == 0 {
		return maybe.Int{}, false
	}
	var last []int64
	for _, x := range list[max(len(list)-now, 0):] {
		last = append(last, x.by)
	}
	half := stats.Median(last) / 2
	if half == 0 {
		return maybe.Int{}, false
	}
	first, odd := len(list), 0
	for i := len(list) - 1; i >= 0 && odd < 3; i-- { // a step or two may be unlike the rest
		if by := list[i].by; half > 0 && by >= half || half < 0 && by <= half {
			first, odd = i, 0
			continue
		}
		odd++
	}
	if first == len(list) {
		return maybe.Int{}, false
	}
	return maybe.Known(list[first].step), first == 0
}
