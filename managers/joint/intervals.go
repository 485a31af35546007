package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The bound over intervals.
//
// The bound of one moment (bound.go) asks what must be absent at the fullest moment, and assumes that every
// copy and every rerun finds time beside the ops. In little memory that is far from the truth: two full
// moments in succession leave no room for a copy between them. This bound looks at all moments at once.
//
// Instants 2j and 2j+1 are the start and the end of op j. The instants that the bound looks at divide time
// into phases (phases.go): a phase begins at one of them and lasts until the next. A phase that holds a
// moment between two ops is as long as the plan makes it, and reruns happen only there; any other phase is an
// op. A span is an idle interval whose buffer may leave memory. At each instant a share of it is in memory,
// and the linear program is
//
//	minimise the lengths of all phases
//	at each instant: sizes of what is in memory <= limit
//	in each phase:   times of copies out <= its length, times of copies in <= its length
//	in each phase that holds a moment between two ops: times of its ops and of reruns <= its length
//
// where a share of a span leaves, copied out first or to be recomputed later, and comes back by a copy or a
// rerun. Shares make it a relaxation of every plan, including those that cut buffers into sections.
//
// The ops that recompute a span are those that [chain.Builder] finds with everything in memory that is alive
// then. Any plan reruns at least these. One run can serve several spans, so each pays a part of an op's time
// in proportion to its size: the spans that the op writes share its time, other spans only if there are no
// such spans.
//
// The approach: the Lagrangian. With a price on memory at each instant and on each copy engine in each phase,
// every span finds its cheapest course on its own, in time linear in its length, and the sum over all is a
// bound at any prices. The volume algorithm (Barahona and Anbil 2000) moves the prices. On networks with some
// dozens of ops it reaches the linear program's optimum within a thousand turns, where plain subgradient
// steps stop at the first kink.
//
// A linear program runs a tenth of an op for a tenth of its output, and pays a tenth. No plan can. So while
// work is left, branches.go decides span by span whether any of it is recomputed at all.
//
// Complexity: a turn is linear in the ops and in the lengths of all spans together. Rejected: solving the
// program with HiGHS (six seconds for 49 ops with whole reruns, minutes for 93); requiring that inputs be in
// memory when an op is rerun (a price for each op, input and phase: the program of Checkmate).

// newIntervals returns nil if the relaxation does not apply or the limit cannot be met.
func newIntervals(b *bounder, limit int64) *intervals {
	m := b.m
	if m.k > 1 || m.inline || !m.p.HasTimes {
		return nil
	}
	s := &intervals{m: m, bounder: b, limit: limit}
	const much = int64(1) << 30
	s.unit = float64(much) / max(1, float64(m.p.Hardware.D2H.Time(much)+m.p.Hardware.H2D.Time(much))/2)
	b.within(limit)
	away := make([]int64, m.n+1)
	var ids []int32
	for _, g := range m.choices {
		x := &m.gaps[g]
		if !x.canSwap && !x.producersRerun || x.before <= x.after+1 || x.size == 0 {
			continue
		}
		away[x.after+1] += x.size
		away[x.before] -= x.size
		ids = append(ids, g)
		s.spans = append(s.spans, span{
			buffer: x.buffer, after: x.after, before: x.before, writer: x.writer,
			size: float64(x.size) / s.unit, weight: x.size,
			out: float64(x.evictTime), in: float64(x.prefetchTime), canSwap: x.canSwap,
		})
	}
	s.roomOf, s.fixed = make([]float64, m.n), make([]float64, m.n)
	var sum int64
	for i := range m.n {
		sum += away[i]
		room := limit - b.tight[i] + sum
		if room < 0 {
			return nil
		}
		s.roomOf[i] = float64(room) / s.unit
		if len(m.p.Ops[i].Variants) == 0 {
			s.fixed[i] = float64(b.dur[i])
		} else {
			s.varied = append(s.varied, int32(i))
		}
	}
	s.findReruns(ids)
	s.findInputs(ids)
	return s
}

// away returns the first and the last of the phases' instants at which the span may be absent. If there are
// none, the last comes before the first.
func (x *span) away(p *phases) (first, last int32) {
	return p.from(2*int32(x.after) + 2), p.holder[2*int32(x.before)-1]
}

// look replaces the instants that the bound looks at by those of other phases. It takes over the rates known
// so far.
func (s *intervals) look(at phases) {
	old, rates := s.phases, s.rates
	s.phases = at
	n := len(s.instants)
	s.rates, s.slope = newRates(n), newRates(n)
	s.sum, s.delta, s.room = make([]float64, n+1), make([]float64, n+1), make([]float64, n)
	for k, i := range s.instants {
		s.room[k] = s.roomOf[i/2]
		if old.instants == nil {
			continue
		}
		h := old.holder[i]
		s.rates.out[k], s.rates.in[k] = rates.out[h], rates.in[h]
		if old.instants[h] == i {
			s.rates.memory[k] = rates.memory[h]
		}
	}
	for k := range s.spans {
		x := &s.spans[k]
		x.first, x.last = x.away(&s.phases)
		x.written = s.holder[max(2*int32(x.writer)+1, 0)]
		from := x.from
		for i := range x.makings {
			y := &x.makings[i]
			y.first, y.last = s.holder[2*int32(from)-1], s.holder[2*int32(y.until)-1]
			from = y.until + 1
		}
	}
}

// value returns the Lagrangian at the current rates, and computes its slope.
func (s *intervals) value() float64 {
	r, g := &s.rates, &s.slope
	for i, x := range r.memory {
		s.sum[i+1] = s.sum[i] + x
	}
	clear(s.delta)
	s.work += int64(len(s.instants))
	v := s.runs()
	for i, x := range r.memory {
		v -= x * s.room[i]
	}
	var out cheapestCopy
	for k := range s.spans {
		x := &s.spans[k]
		// spans that hold the same value can share a copy out
		if k == 0 || s.spans[k-1].buffer != x.buffer || s.spans[k-1].writer != x.writer {
			out = copiesFrom(x.written)
		}
		if x.sure() {
			v += s.oneRun(x)
		}
		if x.taken || x.last < x.first {
			continue
		}
		c := s.cheapest(x, &out)
		v += c.cost
		s.follow(x, &c)
	}
	var there float64
	for i := range g.memory {
		there += s.delta[i]
		g.memory[i] = there - s.room[i]
	}
	return v
}

// runs adds up the times of the ops, each with its cheapest variant.
func (s *intervals) runs() (v float64) {
	r, g := &s.rates, &s.slope
	for t, dur := range s.ops {
		v += dur * (1 - r.out[t] - r.in[t])
		g.out[t], g.in[t] = -dur, -dur
	}
	for _, j := range s.varied {
		t := s.holder[2*j]
		memory := 0.0
		looked := s.instants[t] == 2*j && s.instants[s.holder[2*j+1]] == 2*j+1
		if looked {
			memory = r.memory[t] + r.memory[t+1]
		}
		best, dur, extra := math.Inf(1), 0.0, 0.0
		for k := range s.m.p.Ops[j].Variants {
			d, w := s.m.variantCost(int(j), k)
			if s.m.operands[j]-s.m.work[j]+w > s.limit {
				continue
			}
			more := float64(w-s.bounder.least[j]) / s.unit
			if c := float64(d)*(1-r.out[t]-r.in[t]) + more*memory; c < best {
				best, dur, extra = c, float64(d), more
			}
		}
		v += best
		g.out[t] -= dur
		g.in[t] -= dur
		if looked {
			s.delta[t] += extra
			s.delta[t+2] -= extra
		}
	}
	return v
}

// cheapest finds the cheapest course of a span. out continues from earlier spans that hold the same value.
func (s *intervals) cheapest(x *span, out *cheapestCopy) (c course) {
	r := &s.rates
	before, end := s.sum[x.first], s.sum[x.last+1]
	c.cost, c.how = x.size*(end-before), keep
	s.work += int64(x.last - x.first)
	if x.canSwap {
		away, left, copied := math.Inf(1), int32(0), int32(0)
		for i := x.first; i <= x.last; i++ {
			out.extend(r.out, i)
			if p := x.size*(s.sum[i]-before) + x.out*out.price; p < away {
				away, left, copied = p, i, out.phase
			}
			if p := away + x.in*r.in[i] + x.size*(end-s.sum[i+1]); p < c.cost {
				c.cost, c.how, c.leaves, c.returns, c.copied = p, swap, left, i, copied
			}
		}
	}
	for k := range x.open() {
		y := &x.makings[k]
		time := y.time
		if x.sure() && k >= x.decided.since {
			time -= x.least // already paid for
		}
		for t := y.first; t <= y.last; t++ {
			p := time*(1-r.out[t]-r.in[t]) + x.size*(end-s.sum[t+1])
			if p < c.cost && s.between[t] {
				c.cost, c.how, c.leaves, c.returns, c.time, c.making = p, recompute, x.first, t, time, k
			}
		}
	}
	return c
}

// begin sets the rates to the weights at which the bound of one moment was best: there the relaxation gives
// the same bound.
func (s *intervals) begin() {
	d := &s.bounder.dual
	if d.value <= 0 || d.serial {
		return
	}
	at := s.holder[2*d.at]
	for t := range s.instants {
		i := s.instants[t]
		if int32(t) < at { // rows of writers a with 2a+1 <= i
			if k, _ := slices.BinarySearch(d.outAt, plan.OpID((i+1)/2)); k > 0 {
				s.rates.out[t] = d.out[k-1]
			}
		} else { // rows of readers c with 2c-1 >= i
			if k, _ := slices.BinarySearch(d.inAt, plan.OpID((i+2)/2)); k < len(d.in) {
				s.rates.in[t] = d.in[k]
			}
		}
	}
	low, high := 0.0, s.m.params.proof.dearest
	for range s.m.params.proof.bisections {
		s.rates.memory[at] = (low + high) / 2
		if s.value(); s.slope.memory[at] > 0 {
			low = s.rates.memory[at]
		} else {
			high = s.rates.memory[at]
		}
	}
}
