package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The knapsack of the bound: at one moment, for fixed weights of the rows, which values to have absent.
//
// It is fractional, so that what is absent are the values of the least price for a byte, the last of them in
// part. To know them takes no order among them: they are split around a rate, as often as it takes to come to
// the last, in linear time on the average. Sorting all of them, at every turn of the weights, took a third of
// the planning time for transformers.

// gather lists the values that may be absent when op k begins, and the rows.
func (b *bounder) gather(k plan.OpID) {
	m, p := b.m, b.m.p
	b.columns, b.out.at, b.in.at = b.columns[:0], b.out.at[:0], b.in.at[:0]
	var ids []int32
	for _, g := range m.choices {
		if x := &m.gaps[g]; x.after < k && k < x.before && b.inOrder(x) &&
			p.Ops[x.after].Stream == p.Ops[k].Stream &&
			(x.canSwap || x.canRecompute) {
			ids = append(ids, g)
			b.out.at, b.in.at = append(b.out.at, x.ready), append(b.in.at, x.before)
		}
	}
	slices.Sort(b.out.at)
	slices.Sort(b.in.at)
	b.out.at, b.in.at = slices.Compact(b.out.at), slices.Compact(b.in.at)
	for _, g := range ids {
		x := &m.gaps[g]
		a, _ := slices.BinarySearch(b.out.at, x.ready)
		c, _ := slices.BinarySearch(b.in.at, x.before)
		col := column{
			size:         float64(x.size),
			evictTime:    float64(x.evictTime),
			prefetchTime: float64(x.prefetchTime),
			outRow:       int32(a),
			inRow:        int32(c),
			canRerun:     x.producersRerun,
		}
		if col.canRerun {
			for _, o := range m.producers.of(g) {
				if p.Ops[o].Stream == p.Ops[k].Stream {
					col.rerunTime += float64(m.dur[o]) * b.shareOf[o]
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

// lagrangian solves the knapsack for the weights at hand, returns the Lagrangian's value and leaves in
// out.gain and in.gain what each row comes to.
func (b *bounder) lagrangian(k plan.OpID, missing, rest float64) float64 {
	nOut, nIn := len(b.out.at), len(b.in.at)
	// cost of a column: rows out up to its own count it, rows in from its own on
	a, c := slices.Clone(b.out.weight[:nOut]), slices.Clone(b.in.weight[:nIn])
	for i := 1; i < nOut; i++ {
		a[i] += a[i-1]
	}
	for i := nIn - 2; i >= 0; i-- {
		c[i] += c[i+1]
	}
	rerun := func(x *column) float64 { // what running it again costs
		if b.serial {
			return x.rerunTime * (b.in.weight[nIn] + c[x.inRow])
		}
		return x.rerunTime * b.in.weight[nIn]
	}
	for i := range b.columns {
		x := &b.columns[i]
		cost := x.evictTime*a[x.outRow] + x.prefetchTime*c[x.inRow]
		if x.canRerun {
			cost = min(cost, rerun(x))
		}
		b.rate[i] = cost / x.size
	}
	b.cheapest(missing)
	clear(b.out.gain)
	clear(b.in.gain)
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
		swapCost := x.evictTime*a[x.outRow] + x.prefetchTime*c[x.inRow]
		if x.canRerun && rerun(x) < swapCost {
			b.in.gain[nIn] += share * x.rerunTime
			if b.serial {
				b.in.gain[x.inRow] += share * x.rerunTime
			}
		} else {
			b.out.gain[x.outRow] += share * x.evictTime
			b.in.gain[x.inRow] += share * x.prefetchTime
		}
	}
	if missing > 0 {
		return math.Inf(1)
	}
	for i := nOut - 2; i >= 0; i-- {
		b.out.gain[i] += b.out.gain[i+1]
	}
	for i := 1; i < nIn; i++ {
		b.in.gain[i] += b.in.gain[i-1]
	}
	for i, base := range b.out.base {
		b.out.gain[i] += base
		value += b.out.weight[i] * base
	}
	for i, base := range b.in.base {
		b.in.gain[i] += base
		value += b.in.weight[i] * base
	}
	b.out.gain[nOut] = float64(b.begin[k])
	b.in.gain[nIn] += rest
	value += b.out.weight[nOut]*float64(b.begin[k]) + b.in.weight[nIn]*rest
	return value
}

// cheapest moves the columns of the least rates to the front of the order, as many as it takes to have the
// missing bytes: what is in front costs no more for a byte than what is behind, and the last that is needed
// is the dearest of those in front.
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

// rows are one of the two families of rows of a linear program.
type rows struct {
	at   []plan.OpID // the op that each row is of
	base []float64   // of each row, what it comes to if nothing is absent
	// Of each row, and of the row without copies at the end: its weight, what it comes to at these weights,
	// and the sum of that over the turns so far.
	weight, gain, sum []float64
}

// reset makes all weights equal.
func (r *rows) reset() {
	n := len(r.at) + 1
	r.weight, r.gain, r.sum = slices.Grow(r.weight[:0], n)[:n], slices.Grow(r.gain[:0], n)[:n],
		slices.Grow(r.sum[:0], n)[:n]
	for i := range n {
		r.weight[i], r.gain[i], r.sum[i] = 1/float64(n), 0, 0
	}
}

// update moves weight to the rows that come to more, by a multiplicative update at a rate; scale makes gains
// numbers of about one.
func (r *rows) update(scale, rate float64) {
	top := math.Inf(-1)
	for i := range r.weight {
		r.sum[i] += r.gain[i] / scale
		top = max(top, r.sum[i])
	}
	var all float64
	for i := range r.weight {
		r.weight[i] = math.Exp((r.sum[i] - top) * rate)
		all += r.weight[i]
	}
	for i := range r.weight {
		r.weight[i] /= all
	}
}

// column is a value that may be absent at the moment.
type column struct {
	size                               float64
	evictTime, prefetchTime, rerunTime float64
	outRow, inRow                      int32 // the last row out that counts it, the first row in
	canRerun                           bool
}

// bases works out what each row of the moment at which op k begins, which takes dur, comes to if nothing is
// absent.
func (b *bounder) bases(k plan.OpID, dur int64) {
	b.out.base, b.in.base = b.out.base[:0], b.in.base[:0]
	for _, a := range b.out.at {
		var base int64
		if a >= 0 && (!b.serial || b.m.p.Ops[a].Stream == 0) {
			base = b.head[a]
		}
		if b.serial {
			base += b.busy[k] - b.busy[a+1]
		}
		b.out.base = append(b.out.base, float64(base))
	}
	// of two writers on two streams the later in the list may be done first, and its copy be made first
	if !b.serial {
		for i := len(b.out.base) - 2; i >= 0; i-- {
			b.out.base[i] = min(b.out.base[i], b.out.base[i+1])
		}
	}
	for _, c := range b.in.at {
		base := b.tail[c]
		if b.serial {
			base += dur + b.busy[c] - b.busy[k+1]
		}
		b.in.base = append(b.in.base, float64(base))
	}
}

// keepDual stores the weights at hand.
func (b *bounder) keepDual(k plan.OpID, value float64) {
	d := &b.dual
	nOut, nIn := len(b.out.at), len(b.in.at)
	d.value, d.at, d.compute, d.serial = value, k, b.in.weight[nIn], b.serial
	d.outAt, d.inAt = append(d.outAt[:0], b.out.at...), append(d.inAt[:0], b.in.at...)
	d.out, d.in = append(d.out[:0], b.out.weight[:nOut]...), append(d.in[:0], b.in.weight[:nIn]...)
	for i := 1; i < nOut; i++ {
		d.out[i] += d.out[i-1]
	}
	for i := nIn - 2; i >= 0; i-- {
		d.in[i] += d.in[i+1]
	}
}
