package pack

import "slices"

// graph is what a search looks up of an instance: who overlaps whom, who lives in which section. Built once, shared by searchers.
type graph struct {
	in       *instance
	nbrAt    []int32 // neighbours of item i are nbr[nbrAt[i]:nbrAt[i+1]]
	nbr      []int32
	memberAt []int32 // items of section s are member[memberAt[s]:memberAt[s+1]]
	member   []int32
	slotAt   []int32 // item i's place in the list of its k-th section is slot[slotAt[i]+k]
	twin     []int32 // the item before i among those of its size and sections, -1 where it is the first
}

func newGraph(in *instance) *graph {
	n := len(in.size)
	g := &graph{in: in, memberAt: make([]int32, in.sections+1), slotAt: make([]int32, n+1), nbrAt: make([]int32, n+1)}
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
	seen := make([]int32, n)
	for i := range n {
		a, b := in.stretches(int32(i))
		seen[i] = int32(i + 1)
		for _, r := range [2]span{a, b} {
			for s := r.lo; s < r.hi; s++ {
				for _, k := range g.member[g.memberAt[s]:g.memberAt[s+1]] {
					if seen[k] != int32(i+1) {
						seen[k] = int32(i + 1)
						g.nbr = append(g.nbr, k)
					}
				}
			}
		}
		g.nbrAt[i+1] = int32(len(g.nbr))
	}
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
