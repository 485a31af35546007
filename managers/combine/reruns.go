package combine

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// reruns are the chains of the gaps that are recomputed: what each takes, and which others it depends on.
type reruns struct {
	*choices
	at      *profile
	chains  *chain.Builder
	longest int       // maximum number of ops rerun; 0 for the default
	born    []int64   // for each op: the bytes allocated right before it, after a chain that runs there
	scratch []int64   // of each op: the bytes that a chain there needs on top of the op's own load
	took    []int64   // of each gap that is recomputed: its chain's time
	readers [][]int32 // of each buffer: the gaps whose chains read it
	can     []answer  // of each gap: whether it can be recomputed
}

func newReruns(c *choices, chains *chain.Builder, at *profile) reruns {
	p := c.p
	r := reruns{choices: c, at: at, chains: chains, born: make([]int64, len(p.Ops)),
		scratch: make([]int64, len(p.Ops)), took: make([]int64, len(c.gaps)),
		readers: make([][]int32, len(p.Buffers)), can: make([]answer, len(c.gaps))}
	for b := range p.Buffers {
		if buf := &p.Buffers[b]; buf.Life != plan.Persistent && int(buf.Start) < len(p.Ops) {
			r.born[buf.Start] += p.Rounded(plan.BufferID(b))
		}
	}
	return r
}

// reset forgets all chains.
func (r *reruns) reset() {
	clear(r.scratch)
	clear(r.took)
	for b := range r.readers {
		r.readers[b] = r.readers[b][:0]
	}
}

type answer uint8

const (
	unknown answer = iota
	yes
	no
)

// recomputable reports whether the gap's value can be recomputed whatever else is dropped.
func (r *reruns) recomputable(g int32) bool {
	if r.can[g] == unknown {
		r.can[g] = no
		if ok, _ := r.chains.Recomputable(r.gaps[g]); ok && !r.gaps[g].Dead {
			r.can[g] = yes
		}
	}
	return r.can[g] == yes
}

// again returns the time that recomputing a gap adds, for its own chain and for the chains chosen already
// that read its buffer, and whether the scratch of all of them fits.
func (r *reruns) again(g int32, w ways) (ns int64, fits, ok bool) {
	if !r.recomputable(g) {
		return 0, false, false
	}
	x := &r.gaps[g]
	one := [1]plan.BufferID{x.Buffer}
	c, err := r.chains.AtMost(x.Before, one[:], r.away, longestOf(len(r.gaps)))
	if err != nil {
		return 0, false, false
	}
	ns, fits = c.Time+r.copying(c.Ops, x.Before), w.anyScratch || !r.over(x.Before, r.extra(g, c.Peak))
	ok = r.dependents(g, func(d int32, longer, extra int64) bool {
		ns += longer
		fits = fits && (w.anyScratch || !r.over(r.fetch[d], extra))
		return true
	})
	return ns, fits, ok
}

// copying returns how long a chain at position i has to wait for copies out of buffers that it writes once
// more, to the bytes they hold already.
func (r *reruns) copying(ops []plan.OpID, i plan.OpID) int64 {
	var until int64
	for _, o := range ops {
		for _, a := range r.p.AccessesOf(o) {
			if a.Mode.Writes() {
				if d := r.gapAt(a.Buffer, i); d >= 0 && r.how[d] == swap && i < r.release[d] {
					until = max(until, r.at.reach[r.release[d]])
				}
			}
		}
	}
	return max(0, until-r.at.reach[i])
}

// extra is what a chain with a given peak takes at its op beyond the load there, which counts its result and
// what the op allocates after it.
func (r *reruns) extra(g int32, peak int64) int64 {
	return max(0, peak-r.size(g)-r.born[r.gaps[g].Before])
}

// over reports whether scratch at a position exceeds both the limit and the current peak: until everything is
// chosen, most positions exceed the limit by themselves.
func (r *reruns) over(at plan.OpID, extra int64) bool {
	return extra > r.scratch[at] && r.tree.Max(int(at), int(at)+1)+extra-r.scratch[at] > max(r.limit,
		r.tree.Peak())
}

// dependents tries what dropping a gap does to the chains chosen already that run while it is away. It hands
// each one's further time and its scratch to visit, and returns false where visit does, or where such a chain
// would become impossible.
func (r *reruns) dependents(g int32, visit func(d int32, longer, extra int64) bool) bool {
	x := &r.gaps[g]
	readers := r.readers[x.Buffer]
	if len(readers) == 0 {
		return true
	}
	if len(readers) > mostReaders {
		return false
	}
	r.away.AddGap(*x, plan.Recompute)
	defer r.away.Remove(x.Buffer, x.After+1)
	for _, d := range readers {
		if r.how[d] != recompute || r.fetch[d] <= x.After || r.fetch[d] > x.Before || d == g {
			continue
		}
		one := [1]plan.BufferID{r.gaps[d].Buffer}
		c, err := r.chains.AtMost(r.fetch[d], one[:], r.away, longestOf(len(r.gaps)))
		if err != nil || !visit(d, c.Time-r.took[d], r.extra(d, c.Peak)) {
			return false
		}
	}
	return true
}

// chain computes the chain of a recomputed gap, and records what it takes.
func (r *reruns) chain(g int32) {
	at := r.fetch[g]
	one := [1]plan.BufferID{r.gaps[g].Buffer}
	c, err := r.chains.At(at, one[:], r.away)
	if err != nil {
		return // decisions will leave it out
	}
	r.took[g] = c.Time
	if extra := r.extra(g, c.Peak); extra > r.scratch[at] {
		r.tree.Add(int(at), int(at)+1, extra-r.scratch[at])
		r.scratch[at] = extra
	}
	for _, o := range c.Ops {
		for _, a := range r.p.AccessesOf(o) {
			if l := r.readers[a.Buffer]; a.Mode.Reads() && r.p.Buffers[a.Buffer].Life != plan.Persistent &&
				(len(l) == 0 || l[len(l)-1] != g) {
				r.readers[a.Buffer] = append(l, g)
			}
		}
	}
}

// lengthen recomputes the chains that read the buffer of a gap that has just left.
func (r *reruns) lengthen(g int32) {
	x := &r.gaps[g]
	for _, d := range slices.Clone(r.readers[x.Buffer]) {
		if d != g && r.how[d] == recompute && r.fetch[d] > x.After && r.fetch[d] <= x.Before {
			r.chain(d)
		}
	}
}
