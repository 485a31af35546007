package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The linear program of one moment (bound.go), and its Lagrangian.
//
// For fixed weights of the rows it is a knapsack: which values to have absent. It is fractional, so the
// values with the lowest price per byte are absent, the last of them in part. They need not be sorted:
// partitioning around a rate, repeatedly, finds the last one in linear time on average. Sorting all of them
// at every update of the weights took a third of the planning time for transformers.

// program is the linear program of the moment at which op k begins, with the current weights. Each moment
// reuses the slices of the one before.
type program struct {
	*times
	k       plan.OpID
	serial  bool      // copies, ops and reruns share one queue
	columns []column  // the values that may be absent
	rate    []float64 // price per byte of each column at the current weights
	order   []int32   // the columns, the cheapest in front as far as needed
	out, in rows      // of copies out and of copies in
	// the price of a nanosecond of copying: for a copy out, the sum of the weights of all rows up to its own,
	// which count it; for a copy in, of those from its own on
	outSum, inSum []float64
}

// open sets up the program of the moment at which op k begins, which takes dur, with equal weights.
func (lp *program) open(k plan.OpID, dur int64) {
	lp.k, lp.serial = k, lp.m.inline && lp.m.p.Ops[k].Stream == 0
	lp.gather()
	lp.bases(dur)
	lp.out.reset()
	lp.in.reset()
	// start with the rows that count everything: on one stream no row says more
	if lp.serial && len(lp.columns) > 0 {
		clear(lp.out.weight)
		clear(lp.in.weight)
		lp.out.weight[0], lp.in.weight[len(lp.in.at)-1] = 1, 1
	}
}

// gather lists the values that may be absent, and the rows.
func (lp *program) gather() {
	k, m, p := lp.k, lp.m, lp.m.p
	lp.columns, lp.out.at, lp.in.at = lp.columns[:0], lp.out.at[:0], lp.in.at[:0]
	var ids []int32
	for _, g := range m.choices {
		if x := &m.gaps[g]; x.after < k && k < x.before && m.inOrder(x) &&
			p.Ops[x.after].Stream == p.Ops[k].Stream &&
			(x.canSwap || x.canRecompute) {
			ids = append(ids, g)
			lp.out.at, lp.in.at = append(lp.out.at, x.writer), append(lp.in.at, x.before)
		}
	}
	slices.Sort(lp.out.at)
	slices.Sort(lp.in.at)
	lp.out.at, lp.in.at = slices.Compact(lp.out.at), slices.Compact(lp.in.at)
	for _, g := range ids {
		x := &m.gaps[g]
		a, _ := slices.BinarySearch(lp.out.at, x.writer)
		c, _ := slices.BinarySearch(lp.in.at, x.before)
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
					col.rerunTime += float64(m.dur[o]) * lp.shareOf[o]
				}
			}
		}
		lp.columns = append(lp.columns, col)
	}
	lp.order = lp.order[:0]
	for i := range lp.columns {
		lp.order = append(lp.order, int32(i))
	}
	lp.rate = slices.Grow(lp.rate[:0], len(lp.columns))[:len(lp.columns)]
}

// lagrangian solves the knapsack for missing bytes at the current weights. It returns the Lagrangian's value,
// in nanoseconds, and leaves the value of each row in out.gain and in.gain. rest is the least time from the
// moment to the end of the step.
func (lp *program) lagrangian(missing, rest float64) float64 {
	nOut, nIn := len(lp.out.at), len(lp.in.at)
	lp.outSum = append(lp.outSum[:0], lp.out.weight[:nOut]...)
	lp.inSum = append(lp.inSum[:0], lp.in.weight[:nIn]...)
	fromFirst(lp.outSum)
	fromLast(lp.inSum)
	for i := range lp.columns {
		x := &lp.columns[i]
		cost, _ := lp.cost(x)
		lp.rate[i] = cost / x.size
	}
	lp.cheapest(missing)
	value := lp.fill(missing)
	if math.IsInf(value, 1) {
		return value
	}
	fromLast(lp.out.gain[:nOut])
	fromFirst(lp.in.gain[:nIn])
	for i, base := range lp.out.base {
		lp.out.gain[i] += base
		value += lp.out.weight[i] * base
	}
	for i, base := range lp.in.base {
		lp.in.gain[i] += base
		value += lp.in.weight[i] * base
	}
	begin := float64(lp.begin[lp.k])
	lp.out.gain[nOut] = begin
	lp.in.gain[nIn] += rest
	return value + (lp.out.weight[nOut]*begin + lp.in.weight[nIn]*rest)
}

// cost returns the least cost of having all of a value absent, and whether that means recomputing it.
func (lp *program) cost(x *column) (cost float64, rerun bool) {
	cost = x.evictTime*lp.outSum[x.outRow] + x.prefetchTime*lp.inSum[x.inRow]
	if !x.canRerun {
		return cost, false
	}
	weight := lp.in.weight[len(lp.in.at)]
	if lp.serial {
		weight += lp.inSum[x.inRow]
	}
	if again := x.rerunTime * weight; again < cost {
		return again, true
	}
	return cost, false
}

// fill makes the cheapest columns absent until no byte is missing. It returns their cost, infinity if there
// are too few bytes, and leaves in the gains what it adds to each row's own columns.
func (lp *program) fill(missing float64) (value float64) {
	clear(lp.out.gain)
	clear(lp.in.gain)
	for _, i := range lp.order {
		if missing <= 0 {
			break
		}
		x := &lp.columns[i]
		share := 1.0
		if x.size >= missing {
			share, missing = missing/x.size, 0
		} else {
			missing -= x.size
		}
		value += share * x.size * lp.rate[i]
		if _, rerun := lp.cost(x); !rerun {
			lp.out.gain[x.outRow] += share * x.evictTime
			lp.in.gain[x.inRow] += share * x.prefetchTime
			continue
		}
		lp.in.gain[len(lp.in.at)] += share * x.rerunTime
		if lp.serial {
			lp.in.gain[x.inRow] += share * x.rerunTime
		}
	}
	if missing > 0 {
		return math.Inf(1)
	}
	return value
}

// fromFirst replaces each number by the sum up to and including it, fromLast by the sum from it on.
func fromFirst(x []float64) {
	for i := 1; i < len(x); i++ {
		x[i] += x[i-1]
	}
}

func fromLast(x []float64) {
	for i := len(x) - 2; i >= 0; i-- {
		x[i] += x[i+1]
	}
}

// cheapest moves the columns with the lowest rates to the front of the order, as many as it takes to cover
// the missing bytes. No byte in front costs more than one further back, and the last column needed is the
// most expensive of those in front.
func (lp *program) cheapest(missing float64) {
	lo, hi := 0, len(lp.order) // to be partitioned; the columns before lo cover less than is missing
	for hi-lo > 1 {
		pivot := lp.median(lp.order[lo], lp.order[(lo+hi)/2], lp.order[hi-1])
		less, more := lo, hi
		var size float64
		for i := lo; i < more; {
			x := lp.order[i]
			switch {
			case lp.rate[x] < pivot:
				size += lp.columns[x].size
				lp.order[i], lp.order[less] = lp.order[less], x
				less, i = less+1, i+1
			case lp.rate[x] > pivot:
				more--
				lp.order[i], lp.order[more] = lp.order[more], x
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
			if missing -= lp.columns[lp.order[less]].size; missing <= 0 {
				return
			}
		}
		lo = more
	}
}

// median returns the middle rate of three columns.
func (lp *program) median(x, y, z int32) float64 {
	p, q, r := lp.rate[x], lp.rate[y], lp.rate[z]
	return max(min(p, q), min(max(p, q), r))
}

// rows is one of the two families of rows of a linear program.
type rows struct {
	at   []plan.OpID // the op of each row
	base []float64   // the value of each row if nothing is absent
	// Of each row, and of the row without copies at the end: its weight, its value at these weights, and the
	// sum of its values over the turns so far.
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

// update moves weight to the rows with larger values, by a multiplicative update at the given rate. scale
// normalises gains to about one.
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
	outRow, inRow                      int32 // the last row out that counts it, the first row in that does
	canRerun                           bool
}

// bases computes the value of each row if nothing is absent. The op itself takes dur.
func (lp *program) bases(dur int64) {
	t, k := lp.times, lp.k
	lp.out.base, lp.in.base = lp.out.base[:0], lp.in.base[:0]
	for _, a := range lp.out.at {
		var base int64
		if a >= 0 && (!lp.serial || t.m.p.Ops[a].Stream == 0) {
			base = t.head[a]
		}
		if lp.serial {
			base += t.busy[k] - t.busy[a+1]
		}
		lp.out.base = append(lp.out.base, float64(base))
	}
	// of two writers on different streams, the later in the list may finish and be copied first
	if !lp.serial {
		for i := len(lp.out.base) - 2; i >= 0; i-- {
			lp.out.base[i] = min(lp.out.base[i], lp.out.base[i+1])
		}
	}
	for _, c := range lp.in.at {
		base := t.tail[c]
		if lp.serial {
			base += dur + t.busy[c] - t.busy[k+1]
		}
		lp.in.base = append(lp.in.base, float64(base))
	}
}

// dual records the current weights, at which the Lagrangian has the given value.
func (lp *program) dual(d *dual, value float64) {
	nOut, nIn := len(lp.out.at), len(lp.in.at)
	d.value, d.at, d.compute, d.serial = value, lp.k, lp.in.weight[nIn], lp.serial
	d.outAt, d.inAt = append(d.outAt[:0], lp.out.at...), append(d.inAt[:0], lp.in.at...)
	d.out, d.in = append(d.out[:0], lp.out.weight[:nOut]...), append(d.in[:0], lp.in.weight[:nIn]...)
	fromFirst(d.out)
	fromLast(d.in)
}
