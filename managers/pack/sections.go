package pack

import (
	"cmp"
	"slices"
)

// Time becomes sections. A section is a maximal run of time with an unchanged live set. Only those are kept
// whose live set is contained in no neighbour's: they are the maximal cliques of the interval graph, at most
// one for each item. Two items overlap exactly if they share a kept section, and a bound on a dropped section
// follows from the one that contains it, so the solvers need no other time. The sweep sorts the 2n ends and
// is O(n log n).
//
// Second stretches of life make an item two runs of sections. A section is then dropped only in favour of its
// neighbour in time, which is all the argument above needs.

// span is a run of sections [lo, hi).
type span struct{ lo, hi int32 }

// instance is a problem as the solvers see it: items of positive aligned size over sections. Item indices are
// its own; origin leads back to the problem's.
type instance struct {
	size   []int64
	first  []span
	second []span    // nil where no item has two stretches; empty spans for the items that have one
	fixed  []int64   // nil where no item is fixed; -1 for a free item
	keys   orderKeys // computed when first asked for
	width  []float64 // lengths of life in the problem's time
	origin []int32

	sections int
	load     []int64 // sum of live sizes, by section
	align    int64
}

// edge is one end of a stretch of life.
type edge struct {
	time int64
	item int32
	kind int8 // order at one time: the end of a stretch comes before the start of another
}

const (
	endFirst int8 = iota
	endSecond
	startFirst
	startSecond
)

// compile turns a checked problem into an instance.
func compile(p *Problem) *instance {
	in := &instance{align: max(p.Align, 1)}
	two := false
	for i, it := range p.Items {
		if it.Size == 0 {
			continue
		}
		in.origin = append(in.origin, int32(i))
		in.size = append(in.size, p.alignedSize(i))
		two = two || it.hasSecond()
	}
	n := len(in.size)
	in.first = make([]span, n)
	if two {
		in.second = make([]span, n)
	}
	if p.Fixed != nil {
		in.fixed = make([]int64, n)
	}
	in.width = make([]float64, n)
	edges := make([]edge, 0, 2*n)
	for i, o := range in.origin {
		it := p.Items[o]
		in.width[i] = float64(it.End) - float64(it.Start) + float64(it.End2) - float64(it.Start2)
		edges = append(edges, edge{it.Start, int32(i), startFirst}, edge{it.End, int32(i), endFirst})
		if it.hasSecond() {
			edges = append(edges, edge{it.Start2, int32(i), startSecond}, edge{it.End2, int32(i), endSecond})
		}
		if p.Fixed != nil {
			in.fixed[i] = p.Fixed[o]
		}
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.time != b.time {
			return cmp.Compare(a.time, b.time)
		}
		if a.kind != b.kind {
			return cmp.Compare(a.kind, b.kind)
		}
		return cmp.Compare(a.item, b.item)
	})
	in.sweep(edges)
	return in
}

// sweep fills spans, sections and loads from the ordered ends.
func (in *instance) sweep(edges []edge) {
	var live int64
	var closed int32
	born := false // an item was born since the last section was closed
	for _, e := range edges {
		switch e.kind {
		case endFirst, endSecond:
			if born {
				in.load = append(in.load, live)
				closed++
				born = false
			}
			live -= in.size[e.item]
			if e.kind == endFirst {
				in.first[e.item].hi = closed
			} else {
				in.second[e.item].hi = closed
			}
		case startFirst:
			live += in.size[e.item]
			in.first[e.item].lo, born = closed, true
		case startSecond:
			live += in.size[e.item]
			in.second[e.item].lo, born = closed, true
		}
	}
	in.sections = int(closed)
	for i := range in.second {
		in.joinStretches(i)
	}
}

// joinStretches makes the first stretch the earlier one, and one of two that touch: an item that dies and is
// reborn at one time has not given up its address.
func (in *instance) joinStretches(i int) {
	a, b := in.first[i], in.second[i]
	if b.lo == b.hi {
		return
	}
	if b.lo < a.lo {
		a, b = b, a
	}
	if a.hi >= b.lo {
		a.hi, b = b.hi, span{}
	}
	in.first[i], in.second[i] = a, b
}

// bound returns the largest load, or the highest fixed top if that is larger.
func (in *instance) bound() int64 {
	var bound int64
	for _, l := range in.load {
		bound = max(bound, l)
	}
	for i, at := range in.fixed {
		if at >= 0 {
			bound = max(bound, at+in.size[i])
		}
	}
	return bound
}

// stretches returns the item's spans; the second is empty for most.
func (in *instance) stretches(i int32) (span, span) {
	if in.second == nil {
		return in.first[i], span{}
	}
	return in.first[i], in.second[i]
}

// LowerBound returns the largest sum of aligned sizes alive at one moment, or the highest top of a fixed item
// if that is larger: no packing has a lower top. The problem must pass Check.
func LowerBound(p *Problem) int64 { return compile(p).bound() }

// expand turns the instance's offsets into the problem's.
func (in *instance) expand(p *Problem, offsets []int64) []int64 {
	out := make([]int64, len(p.Items))
	for i, o := range in.origin {
		out[o] = offsets[i]
	}
	return out
}

// top returns the largest offset + size.
func (in *instance) top(offsets []int64) int64 {
	var top int64
	for i, at := range offsets {
		top = max(top, at+in.size[i])
	}
	return top
}
