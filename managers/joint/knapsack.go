package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The knapsack of the bound: at one moment, for fixed weights of the rows, which values to have absent.
//
// It is fractional, so that what is absent are the values of the least price for a byte, the last of them in part. To know them takes no order among them: they are
// split around a rate, as often as it takes to come to the last, in linear time on the average. Sorting all of them, at every turn of the weights, took a third
// of the planning time for transformers.

// collect lists the values that may be absent when op k begins, and the rows.
func (b *bounder) collect(k plan.OpID) {
	m, p := b.m, b.m.p
	b.columns, b.rowA, b.rowB = b.columns[:0], b.rowA[:0], b.rowB[:0]
	var ids []int32
	for _, g := range m.choices {
		if x := &m.gaps[g]; x.after < k && k < x.before && b.inOrder(x) && p.Ops[x.after].Stream == p.Ops[k].Stream && (x.canSwap || x.canDrop) {
			ids = append(ids, g)
			b.rowA, b.rowB = append(b.rowA, x.ready), append(b.rowB, x.before)
		}
	}
	slices.Sort(b.rowA)
	slices.Sort(b.rowB)
	b.rowA, b.rowB = slices.Compact(b.rowA), slices.Compact(b.rowB)
	for _, g := range ids {
		x := &m.gaps[g]
		a, _ := slices.BinarySearch(b.rowA, x.ready)
		c, _ := slices.BinarySearch(b.rowB, x.before)
		col := column{size: float64(x.size), out: float64(x.out), in: float64(x.in), rowA: int32(a), rowB: int32(c), canDrop: x.mayDrop}
		if col.canDrop {
			for _, o := range m.maker[m.makerAt[g]:m.makerAt[g+1]] {
				if p.Ops[o].Stream == p.Ops[k].Stream {
					col.redo += float64(m.dur[o]) * b.shareOf[o]
				}
			}
		}
		b.columns = append(b.columns, col)
	}
	b.order = b.order[:0]
	for i := range b.columns {
		b.order = append(b.order, int32(i))
	}
	b.rate = slices.Grow(b.rate[:0], len(b.columns))[:len(b.columns)]
}

// price solves the knapsack for the weights at hand, returns the Lagrangian's value and leaves in gainA and gainB what each row comes to.
func (b *bounder) price(k plan.OpID, missing, rest float64) float64 {
	nA, nB := len(b.rowA), len(b.rowB)
	// cost of a column: rows of A up to its own count it, rows of B from its own on
	a, c := slices.Clone(b.weightA[:nA]), slices.Clone(b.weightB[:nB])
	for i := 1; i < nA; i++ {
		a[i] += a[i-1]
	}
	for i := nB - 2; i >= 0; i-- {
		c[i] += c[i+1]
	}
	again := func(x *column) float64 { // what running it again costs
		if b.serial {
			return x.redo * (b.weightB[nB] + c[x.rowB])
		}
		return x.redo * b.weightB[nB]
	}
	for i := range b.columns {
		x := &b.columns[i]
		cost := x.out*a[x.rowA] + x.in*c[x.rowB]
		if x.canDrop {
			cost = min(cost, again(x))
		}
		b.rate[i] = cost / x.size
	}
	b.cheapest(missing)
	for i := range b.gainA {
		b.gainA[i] = 0
	}
	for i := range b.gainB {
		b.gainB[i] = 0
	}
	var value float64
	for _, i := range b.order {
		if missing <= 0 {
			break
		}
		x := &b.columns[i]
		share := 1.0
		if x.size >= missing {
			share, missing = missing/x.size, 0
		} else {
			missing -= x.size
		}
		value += share * x.size * b.rate[i]
		if swapCost := x.out*a[x.rowA] + x.in*c[x.rowB]; x.canDrop && again(x) < swapCost {
			b.gainB[nB] += share * x.redo
			if b.serial {
				b.gainB[x.rowB] += share * x.redo
			}
		} else {
			b.gainA[x.rowA] += share * x.out
			b.gainB[x.rowB] += share * x.in
		}
	}
	if missing > 0 {
		return math.Inf(1)
	}
	for i := nA - 2; i >= 0; i-- {
		b.gainA[i] += b.gainA[i+1]
	}
	for i := 1; i < nB; i++ {
		b.gainB[i] += b.gainB[i-1]
	}
	for i, base := range b.baseA {
		b.gainA[i] += base
		value += b.weightA[i] * base
	}
	for i, base := range b.baseB {
		b.gainB[i] += base
		value += b.weightB[i] * base
	}
	b.gainA[nA] = float64(b.begin[k])
	b.gainB[nB] += rest
	value += b.weightA[nA]*float64(b.begin[k]) + b.weightB[nB]*rest
	return value
}

// cheapest moves the columns of the least rates to the front of the order, as many as it takes to have the missing bytes: what is in front costs no more for
// a byte than what is behind, and the last that is needed is the dearest of those in front.
func (b *bounder) cheapest(missing float64) {
	lo, hi := 0, len(b.order) // what is left to be split; in front of it lies less than is missing
	for hi-lo > 1 {
		pivot := b.median(b.order[lo], b.order[(lo+hi)/2], b.order[hi-1])
		less, more := lo, hi
		var size float64
		for i := lo; i < more; {
			x := b.order[i]
			switch {
			case b.rate[x] < pivot:
				size += b.columns[x].size
				b.order[i], b.order[less] = b.order[less], x
				less, i = less+1, i+1
			case b.rate[x] > pivot:
				more--
				b.order[i], b.order[more] = b.order[more], x
			default:
				i++
			}
		}
		if size >= missing {
			hi = less
			continue
		}
		missing -= size
		for ; less < more; less++ {
			if missing -= b.columns[b.order[less]].size; missing <= 0 {
				return
			}
		}
		lo = more
	}
}

// median returns the middle rate of three columns.
func (b *bounder) median(x, y, z int32) float64 {
	p, q, r := b.rate[x], b.rate[y], b.rate[z]
	return max(min(p, q), min(max(p, q), r))
}
