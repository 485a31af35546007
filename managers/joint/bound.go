package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The bound.
//
// Look at the moment at which op k begins. Its operands are in memory then, and so is every value that was
// made before and is read later, unless it is out on the host or will be recomputed. What does not fit within
// the limit, D bytes, is therefore absent at that moment: copied out before it and copied in after it, or
// recomputed after it. Let z and y be the shares of each value that are swapped and recomputed. With head(a)
// the earliest end of op a and tail(b) the least time from the start of op b to the end of the step, both by
// data and queues alone,
//
//	start(k) >= the least head of a and later writers
//	            + sum of out times of z that were last written by a or later, for every a
//	step     >= start(k) + sum of in times of z that are needed at b or before + tail(b)   for every b
//	step     >= start(k) + time of k + sum of op times of y + tail(k+1)
//	sum of sizes of z and y >= D,  0 <= z, y,  z + y <= 1
//
// (a copy out waits for the writer, not for readers), since copies in one direction run one at a time, and so
// do ops of one stream. This linear program is a relaxation of every plan of the plan format, so its value
// bounds the step time. So does the Lagrangian for any weights of the rows that sum to one in each of the two
// families. For fixed weights the rest is a fractional knapsack. Weights are found by multiplicative updates,
// which converge on simplices and need no solver. The best value on the way counts, so stopping early costs
// tightness and never truth. An op with variants is tried with each; the least counts.
//
// Without copy engines, copies run on the first compute stream. If op k is on that stream, the stream's ops
// between a and k, and between k and b, share one queue with the copies and with reruns:
//
//	start(k) >= head(a) + time of that stream's ops between a and k
//	            + sum of out times of z that were last written by a or later, for every a
//	step     >= start(k) + time of k + time of that stream's ops between k and b
//	            + sum of in times of z and of op times of y that are needed at b or before
//	            + tail(b), for every b
//
// with 0 for head(a) where a is on another stream: its copy is issued after a, but the stream's own ops need
// not wait for a. If k is on another stream, the rows above hold as they are: here too, copies run one at a
// time.
//
// Complexity: O(steps x values) for one moment (knapsack.go), on average. Rejected: one program over all
// moments at once (a column for each value and moment; on the networks tried, the moment of the peak alone
// came within a few percent of it); an exact linear program by a solver in WebAssembly (starting it takes
// longer than all of this).

// bounder computes bounds of one problem at any limit.
type bounder struct {
	times

	// of each op
	least   []int64       // least workspace of its variants, in bytes
	tight   []int64       // one over the number of buffers that it writes
	readers jagged[int32] // the ops on other streams that read what it makes

	writerOf []int32     // the op that wrote what each access reads, if on another stream; none otherwise
	ready    []int64     // when the next op of each stream can begin
	base     int64       // no plan has a step time below this, at any limit
	moments  []plan.OpID // the moments to look at, the fullest first
	program  program     // of the current moment
	dual     dual        // of the moment with the best bound, at the last limit asked for
	memo     map[asked]answer
}

// asked is a question to a bounder, answer what it found.
type (
	asked struct {
		limit int64
		turns int
	}
	answer struct {
		value int64
		dual  dual
	}
)

func newBounder(m *model) *bounder {
	b := &bounder{
		times: newTimes(m),
		tight: make([]int64, m.n),
		least: make([]int64, m.n),
		memo:  map[asked]answer{},
	}
	b.program.times = &b.times
	b.link()
	b.loads()
	b.paths()
	b.pickMoments()
	return b
}

// link finds, for each op, the ops on other streams that make what it reads and that read what it makes.
func (b *bounder) link() {
	m, p := b.m, b.m.p
	wrote := make([]int32, len(p.Buffers))
	for i := range wrote {
		wrote[i] = none
	}
	b.writerOf, b.ready = make([]int32, len(p.Accesses)), make([]int64, m.k)
	for i := range m.n {
		writes := 0
		for k := p.Ops[i].First; k < p.Ops[i].End; k++ {
			a := p.Accesses[k]
			b.writerOf[k] = none
			if w := wrote[a.Buffer]; a.Mode.Reads() && w >= 0 && p.Ops[w].Stream != p.Ops[i].Stream {
				b.writerOf[k] = w
			}
			if a.Mode.Writes() {
				writes++
			}
		}
		for _, a := range p.AccessesOf(plan.OpID(i)) {
			if a.Mode.Writes() {
				wrote[a.Buffer] = int32(i)
			}
		}
		b.shareOf[i] = 1 / float64(max(writes, 1))
	}
	b.readers = groupBy(m.n, func(yield func(writer, reader int32) bool) {
		for i := range m.n {
			for k := p.Ops[i].First; k < p.Ops[i].End; k++ {
				if w := b.writerOf[k]; w >= 0 && !yield(w, int32(i)) {
					return
				}
			}
		}
	})
}

// within picks for each op the fastest variant whose workspace fits beside its operands.
func (b *bounder) within(limit int64) {
	m := b.m
	for i := range m.n {
		op := &m.p.Ops[i]
		b.dur[i] = m.dur[i]
		if op.Workspace == plan.NoBuffer || len(op.Variants) == 0 || m.operands[i] <= limit {
			continue
		}
		best := int64(math.MaxInt64)
		for k := range op.Variants {
			if d, w := m.variantCost(i, k); m.operands[i]-m.work[i]+w <= limit {
				best = min(best, d)
			}
		}
		if best < math.MaxInt64 {
			b.dur[i] = best
		}
	}
	b.paths()
}

// paths computes when ops run if they wait only for their queue, the host and the makers of what they read.
// They do not wait for readers of what they overwrite: a plan may put the new value elsewhere.
func (b *bounder) paths() {
	m, p := b.m, b.m.p
	clear(b.ready)
	b.base = 0
	for i := range m.n {
		q := p.Ops[i].Stream
		t := max(b.ready[q], m.issue[i])
		for k := p.Ops[i].First; k < p.Ops[i].End; k++ {
			if w := b.writerOf[k]; w >= 0 {
				t = max(t, b.head[w])
			}
		}
		b.begin[i], b.head[i] = t, t+b.dur[i]
		b.busy[i+1] = b.busy[i]
		if q == 0 {
			b.busy[i+1] += b.dur[i]
		}
		b.ready[q] = b.head[i]
		b.base = max(b.base, b.head[i])
	}
	clear(b.ready) // for each stream, the tail of its next op
	for i := m.n - 1; i >= 0; i-- {
		q := p.Ops[i].Stream
		t := b.ready[q]
		for _, reader := range b.readers.of(int32(i)) {
			t = max(t, b.tail[reader])
		}
		b.tail[i] = b.dur[i] + t
		b.ready[q] = b.tail[i]
	}
}

// loads counts the bytes that hold a value when each op begins.
func (b *bounder) loads() {
	m, p := b.m, b.m.p
	delta := make([]int64, (m.n+1)*m.k)
	count := func(b plan.BufferID, q int16, from, to plan.OpID) {
		delta[int(from)*m.k+int(q)] += p.Rounded(b)
		delta[int(to)*m.k+int(q)] -= p.Rounded(b)
	}
	for g := range m.gaps {
		if x := &m.gaps[g]; !x.dead && m.inOrder(x) {
			count(x.buffer, p.Ops[x.after].Stream, x.after+1, x.before)
		}
	}
	for i := range p.Buffers { // a carried buffer holds its value across the end of the iteration
		touches := p.TouchesOf(plan.BufferID(i))
		if p.Buffers[i].Life != plan.Carried || len(touches) == 0 {
			continue
		}
		if first := touches[0]; first.Op < p.Buffers[i].End && first.Mode != plan.Write {
			count(plan.BufferID(i), p.Ops[first.Op].Stream, 0, first.Op)
		}
	}
	sum := make([]int64, m.k)
	for i := range m.n {
		for q := range sum {
			sum[q] += delta[i*m.k+q]
		}
		b.least[i] = m.work[i]
		for k := range p.Ops[i].Variants {
			_, w := m.variantCost(i, k)
			b.least[i] = min(b.least[i], w)
		}
		b.tight[i] = sum[p.Ops[i].Stream] + m.operands[i] - m.work[i] + b.least[i]
	}
}

// pickMoments picks the moments to look at: the fullest of each quarter of the iteration, in order of
// fullness.
func (b *bounder) pickMoments() {
	n := b.m.n
	quarters := b.m.params.moments
	if n > b.m.params.momentsOps { // only the fullest
		quarters = 1
	}
	for q := range quarters {
		best := none
		for i := n * q / quarters; i < n*(q+1)/quarters; i++ {
			if best < 0 || b.tight[i] > b.tight[best] {
				best = i
			}
		}
		if best >= 0 {
			b.moments = append(b.moments, plan.OpID(best))
		}
	}
	slices.SortStableFunc(b.moments, func(x, y plan.OpID) int { return cmp.Compare(b.tight[y], b.tight[x]) })
}

// bound returns a step time, in nanoseconds, that no plan within the limit can beat. turns bounds the updates
// for each moment.
func (b *bounder) bound(limit int64, turns int) int64 {
	key := asked{limit, turns}
	x, ok := b.memo[key]
	if !ok {
		b.dual = dual{} // those of other limits are in the memo
		x.value = b.compute(limit, turns)
		x.dual = b.dual
		b.memo[key] = x
	}
	b.dual = x.dual
	return x.value
}

// compute is bound without the memo.
func (b *bounder) compute(limit int64, turns int) int64 {
	b.within(limit)
	best := b.base
	for _, k := range b.moments {
		op := &b.m.p.Ops[k]
		if b.tight[k] <= limit && len(op.Variants) == 0 {
			continue
		}
		if len(op.Variants) == 0 {
			best = max(best, b.moment(k, b.tight[k]-limit, b.dur[k], turns))
			continue
		}
		least := int64(math.MaxInt64)
		for v := range op.Variants {
			d, w := b.m.variantCost(int(k), v)
			if b.m.operands[k]-b.m.work[k]+w <= limit {
				least = min(least, b.moment(k, b.tight[k]-b.least[k]+w-limit, d, turns))
			}
		}
		if least < math.MaxInt64 {
			best = max(best, least)
		}
	}
	return best
}

// moment bounds the step time if missing bytes must be absent when op k begins, which takes dur nanoseconds.
func (b *bounder) moment(k plan.OpID, missing, dur int64, turns int) int64 {
	var after int64
	if int(k)+1 < b.m.n {
		after = b.tail[k] - b.dur[k]
	}
	if missing <= 0 {
		return max(b.base, b.begin[k]+dur+after)
	}
	lp := &b.program
	lp.open(k, dur)
	var best float64
	scale := float64(b.base)
	for turn := range turns {
		value := lp.lagrangian(float64(missing), float64(dur+after))
		if value > best {
			best = value
			if value > b.dual.value && !math.IsInf(value, 1) {
				lp.dual(&b.dual, value)
			}
		}
		rate := b.m.params.weightRate / math.Sqrt(float64(turn+1))
		lp.out.update(scale, rate)
		lp.in.update(scale, rate)
	}
	if math.IsInf(best, 1) {
		return math.MaxInt64
	}
	if lp.serial && b.m.k == 1 { // something leaves memory and returns, and its hooks run in the same queue
		best += float64(b.m.saving)
	}
	return int64(best * (1 - 1e-9))
}
