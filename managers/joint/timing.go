package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// timing holds four positions for each gap, and how chains get its value while it is on the host.
type timing struct {
	leave  []plan.OpID // the first position at which its value may be gone
	remake []plan.OpID // where the value is recomputed at the latest
	retain []plan.OpID // the first position at which a chain may retain the value, 0 for any
	back   []plan.OpID // where a swapped value is back at the latest
	source []source
}

// source is how a chain gets a value that is on the host.
type source uint8

const (
	cheapest  source = iota // from its only copy back if memory allows, otherwise by a load or a rerun
	loaded                  // by a load for the chain alone
	rerunOnly               // by a rerun, except from its only copy back
	sources                 // how many there are
)

// newTiming returns the default positions of gaps.
func newTiming(m *model) *timing {
	n := &timing{
		leave:  make([]plan.OpID, len(m.gaps)),
		remake: make([]plan.OpID, len(m.gaps)),
		retain: make([]plan.OpID, len(m.gaps)),
		back:   make([]plan.OpID, len(m.gaps)),
		source: make([]source, len(m.gaps)),
	}
	for g := range m.gaps {
		n.leave[g], n.remake[g], n.back[g] = m.gaps[g].after+1, m.gaps[g].before, m.gaps[g].before
	}
	return n
}

// copy copies everything from another.
func (n *timing) copy(of *timing) { n.copyGaps(0, of, 0, int32(len(of.leave))) }

// copyGaps copies what another has for the gaps [from, to) to those from at on.
func (n *timing) copyGaps(at int32, of *timing, from, to int32) {
	copy(n.leave[at:], of.leave[from:to])
	copy(n.remake[at:], of.remake[from:to])
	copy(n.retain[at:], of.retain[from:to])
	copy(n.back[at:], of.back[from:to])
	copy(n.source[at:], of.source[from:to])
}

// of returns what a gap has.
func (n *timing) of(g int32) timed {
	return timed{g, n.leave[g], n.remake[g], n.retain[g], n.back[g], n.source[g]}
}

// timed records what a gap had.
type timed struct {
	gap                         int32
	leave, remake, retain, back plan.OpID
	source                      source
}

// restore restores what a gap had.
func (n *timing) restore(to timed) {
	n.leave[to.gap], n.remake[to.gap], n.retain[to.gap] = to.leave, to.remake, to.retain
	n.back[to.gap], n.source[to.gap] = to.back, to.source
}

// canRunAgain reports whether a gap's value may be recomputed before op at. At the op that needs it, that
// must be possible whatever else is absent; earlier, it is enough that its ops can be rerun at all.
func (x *gap) canRunAgain(at plan.OpID) bool {
	return x.canRecompute || x.producersRerun && at < x.before
}
