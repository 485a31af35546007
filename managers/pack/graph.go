package pack

import "slices"

// graph is what a search looks up in an instance: which items overlap, and which live in each section. It is
// built once and shared by searchers.
type graph struct {
	in       *instance
	nbrAt    []int32 // neighbours of item i are nbr[nbrAt[i]:nbrAt[i+1]]
	nbr      []int32
	memberAt []int32 // items of section s are member[memberAt[s]:memberAt[s+1]]
	member   []int32
	slotAt   []int32 // item i's place in the list of its k-th section is slot[slotAt[i]+k]
	twin     []int32 // the item before i among those with its size and sections, -1 if it is the first
}

func newGraph(in *instance) *graph {
	n := len(in.size)
	g := &graph{in: in, memberAt: make([]int32, in.sections+1), slotAt: make([]int32, n+1),
		nbrAt: make([]int32, n+1)}
	for i := range n {
		a, b := in.stretches(int32(i))
		g.slotAt[i+1] = g.slotAt[i] + (a.hi - a.lo) + (b.hi - b.lo)
		for s := a.lo; s < a.hi; s++ {
			g.memberAt[s+1]++
		}
		for s := b.lo; s < b.hi; s++ {
			g.memberAt[s+1]++
		}
	}
	for s := range in.sections {
		g.memberAt[s+1] += g.memberAt[s]
	}
	g.member = make([]int32, g.memberAt[in.sections])
	next := slices.Clone(g.memberAt)
	for i := range n {
		a, b := in.stretches(int32(i))
		for s := a.lo; s < a.hi; s++ {
			g.member[next[s]] = int32(i)
			next[s]++
		}
		for s := b.lo; s < b.hi; s++ {
			g.member[next[s]] = int32(i)
			next[s]++
		}
	}
	g.neighbours()
	type key struct {
		size int64
		a, b span
	}
	last := make(map[key]int32, n)
	g.twin = make([]int32, n)
	for i := range n {
		a, b := in.stretches(int32(i))
		k := key{in.size[i], a, b}
		if j, ok := last[k]; ok && (in.fixed == nil || in.fixed[i] < 0) {
			g.twin[i] = j
		} else {
			g.twin[i] = -1
		}
		if in.fixed == nil || in.fixed[i] < 0 {
			last[k] = int32(i)
		}
	}
	return g
}

// neighbours lists the overlaps. An item that overlaps a stretch of life lives in its first section or begins
// in a later one, so listing costs no more than the length of the list. (Looking through all members of all
// its sections costs that times the length of a life.)
func (g *graph) neighbours() {
	in := g.in
	n := len(in.size)
	beginAt := make([]int32, in.sections+1) // items that begin in s: begin[beginAt[s]:beginAt[s+1]]
	each := func(visit func(i int32, r span)) {
		for i := range int32(n) {
			a, b := in.stretches(i)
			visit(i, a)
			if b.lo < b.hi {
				visit(i, b)
			}
		}
	}
	each(func(_ int32, r span) { beginAt[r.lo+1]++ })
	for s := range in.sections {
		beginAt[s+1] += beginAt[s]
	}
	begin := make([]int32, beginAt[in.sections])
	next := slices.Clone(beginAt)
	each(func(i int32, r span) {
		begin[next[r.lo]] = i
		next[r.lo]++
	})
	seen := make([]int32, n)
	list := func(i int32, items []int32) {
		for _, k := range items {
			if seen[k] != i+1 {
				seen[k] = i + 1
				g.nbr = append(g.nbr, k)
			}
		}
	}
	for i := range int32(n) {
		seen[i] = i + 1
		a, b := in.stretches(i)
		for _, r := range [2]span{a, b} {
			if r.lo < r.hi {
				list(i, g.member[g.memberAt[r.lo]:g.memberAt[r.lo+1]])
				list(i, begin[beginAt[r.lo+1]:beginAt[r.hi]])
			}
		}
		g.nbrAt[i+1] = int32(len(g.nbr))
	}
}
