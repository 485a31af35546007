package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Inputs of recomputed spans, for the bound over intervals.
//
// A rerun op reads whole inputs. In a branch where a span is recomputed, each span that holds such an input
// when the op runs is present as well, or recomputed beside it. If it costs memory or a copy to have the
// input there, the rerun costs that too. So the bound considers a recomputed span together with its inputs:
// for each phase in which the ops may run, the cheapest course of each input that is present in that phase,
// or the cheapest of all and a copy in for this purpose alone.
//
// A span can be the input of several; it counts for the first only, which keeps the bound valid. An input
// that is itself decided to be recomputed may come from the very run that is already paid for, and does not
// count.
//
// Complexity: linear in the lengths of the spans, as without inputs, but with more memory.

// inputsOf returns the spans that hold what the makers of span k read.
func (s *intervals) inputsOf(k int, ids []int32, at map[plan.BufferID][]int32) (inputs []int32) {
	m := s.m
	for _, o := range m.producers.of(ids[k]) {
		for _, a := range m.p.AccessesOf(o) {
			spans := at[a.Buffer]
			if !a.Mode.Reads() || len(spans) == 0 {
				continue
			}
			wrote := m.writer(a.Buffer, o-1)
			for _, h := range spans {
				x := &s.spans[h]
				meet := x.after+1 < s.spans[k].before && s.spans[k].after+1 < x.before
				if meet && m.gaps[ids[h]].writer == wrote && !slices.Contains(inputs, h) {
					inputs = append(inputs, h)
				}
			}
		}
	}
	return inputs
}

// findInputs fills the inputs of all spans.
func (s *intervals) findInputs(ids []int32) {
	at := map[plan.BufferID][]int32{}
	for k := range s.spans {
		at[s.spans[k].buffer] = append(at[s.spans[k].buffer], int32(k))
	}
	for k := range s.spans {
		if len(s.spans[k].makings) > 0 {
			s.spans[k].inputs = s.inputsOf(k, ids, at)
		}
	}
}

// pair decides, in a branch, together with which recomputed span each input is considered.
func (s *intervals) pair() {
	for k := range s.spans {
		s.spans[k].taken, s.spans[k].with = false, s.spans[k].with[:0]
	}
	for k := range s.spans {
		x := &s.spans[k]
		if !x.sure() {
			continue
		}
		for _, h := range x.inputs {
			if y := &s.spans[h]; !y.taken && !y.sure() && y.first <= y.last {
				y.taken = true
				x.with = append(x.with, h)
			}
		}
	}
}

// courses computes the cheapest courses of an input into t.
func (s *intervals) courses(x *span, t *presence) {
	n := int(x.last-x.first) + 1
	t.keep = course{cost: x.size * (s.sum[x.last+1] - s.sum[x.first]), how: keep}
	t.any = t.keep
	t.back, t.leaving = slices.Grow(t.back[:0], n)[:n], slices.Grow(t.leaving[:0], n)[:n]
	t.loads = slices.Grow(t.loads[:0], n)[:n]
	s.copies = slices.Grow(s.copies[:0], n)[:n]
	s.work += int64(4 * n)
	t.load(x, &s.rates)
	s.comeBack(x, t.back)
	if best := t.back[n-1]; best.cost < t.any.cost {
		t.any = best
	}
	s.leave(x, t.leaving)
}

// comeBack computes, for each instant of an input, the cheapest course that has it back by then.
func (s *intervals) comeBack(x *span, back []course) {
	r, before, end := &s.rates, s.sum[x.first], s.sum[x.last+1]
	best, away := course{cost: math.Inf(1)}, course{cost: math.Inf(1)}
	out, making := copiesFrom(x.written), 0
	for k := range back {
		i := x.first + int32(k)
		out.extend(r.out, i)
		s.copies[k] = out
		if x.canSwap {
			if p := x.size*(s.sum[i]-before) + x.out*out.price; p < away.cost {
				away = course{cost: p, how: swap, leaves: i, copied: out.phase}
			}
			if p := away.cost + x.in*r.in[i] + x.size*(end-s.sum[i+1]); p < best.cost {
				best = away
				best.cost, best.returns = p, i
			}
		}
		if c, ok := s.making(x, i, &making); ok && c.cost < best.cost {
			best = c
			best.leaves = x.first
		}
		back[k] = best
	}
}

// leave computes, for each instant of an input, the cheapest course in which it leaves then or later.
func (s *intervals) leave(x *span, leaving []course) {
	r, before, end := &s.rates, s.sum[x.first], s.sum[x.last+1]
	returns, made, best := course{cost: math.Inf(1)}, course{cost: math.Inf(1)}, course{cost: math.Inf(1)}
	for k := len(leaving) - 1; k >= 0; k-- {
		i := x.first + int32(k)
		if p := x.in*r.in[i] + x.size*(end-s.sum[i+1]); x.canSwap && p < returns.cost {
			returns = course{cost: p, how: swap, returns: i}
		}
		making := 0
		if c, ok := s.making(x, i, &making); ok && c.cost < made.cost {
			made = c
		}
		held, out := x.size*(s.sum[i]-before), &s.copies[k]
		if p := held + x.out*out.price + returns.cost; p < best.cost {
			best = returns
			best.cost, best.leaves, best.copied = p, i, out.phase
		}
		if p := held + made.cost; p < best.cost {
			best = made
			best.cost, best.leaves = p, i
		}
		leaving[k] = best
	}
}

// load computes, for each phase of an input, the cheapest copy in for a rerun there. It is in memory from the
// copy to the rerun.
func (t *presence) load(x *span, r *rates) {
	best := load{cost: math.Inf(1)}
	for k := range t.loads {
		i := x.first + int32(k)
		best.cost += x.size * r.memory[i]
		if p := x.in * r.in[i]; x.canSwap && p < best.cost {
			best = load{p, i}
		}
		t.loads[k] = best
	}
}

// making returns the cost of recomputing a span in a phase, including the memory after it. step is the first
// of its makings that may apply.
func (s *intervals) making(x *span, phase int32, step *int) (c course, ok bool) {
	all := x.open()
	for *step < len(all) && all[*step].last < phase {
		*step++
	}
	if !s.between[phase] || *step == len(all) || phase < all[*step].first {
		return c, false
	}
	r := &s.rates
	time := all[*step].time
	for _, y := range all[*step+1:] {
		if y.first > phase {
			break
		}
		time = min(time, y.time) // both have positions in the phase
	}
	return course{
		cost: time*(1-r.out[phase]-r.in[phase]) + x.size*(s.sum[x.last+1]-s.sum[phase+1]),
		how:  recompute, returns: phase, time: time,
	}, true
}

// extra is what has an input present for one rerun alone: a rerun of its own, for some time, or a copy in.
type extra struct {
	cost  float64
	rerun float64
	load  bool
	at    int32 // the phase of the copy in
}

// in returns the cheapest course of an input that is present in a phase, and what has it there in addition.
func (t *presence) in(x *span, phase int32, price float64) (c course, e extra) {
	if phase < x.first-1 || phase > x.last {
		return t.any, e
	}
	c = t.keep
	if k := int(phase - x.first); k >= 0 && t.back[k].cost < c.cost {
		c = t.back[k]
	}
	if k := int(phase + 1 - x.first); k < len(t.leaving) && t.leaving[k].cost < c.cost {
		c = t.leaving[k]
	}
	best := c.cost
	if n := len(x.open()); n > 0 && phase <= x.makings[n-1].last {
		if p := x.least * price; t.any.cost+p < best {
			best, c, e = t.any.cost+p, t.any, extra{cost: p, rerun: x.least}
		}
	}
	if k := phase - x.first; k >= 0 && t.any.cost+t.loads[k].cost < best {
		c, e = t.any, extra{cost: t.loads[k].cost, load: true, at: t.loads[k].at}
	}
	return c, e
}

// oneRun adds the one run that a recomputed span needs at least, with its inputs.
func (s *intervals) oneRun(x *span) float64 {
	r, g := &s.rates, &s.slope
	for len(s.present) < len(x.with) {
		s.present = append(s.present, presence{})
	}
	all := s.present[:len(x.with)]
	for i, h := range x.with {
		s.courses(&s.spans[h], &all[i])
	}
	runs := x.open()[x.decided.since:]
	best, at := math.Inf(1), runs[0].first
	for phase := at; phase <= runs[len(runs)-1].last; phase++ {
		if !s.between[phase] {
			continue
		}
		price := 1 - r.out[phase] - r.in[phase]
		sum := x.least * price
		for i, h := range x.with {
			c, e := all[i].in(&s.spans[h], phase, price)
			sum += c.cost + e.cost
		}
		if sum < best {
			best, at = sum, phase
		}
	}
	time := x.least
	for i, h := range x.with {
		y := &s.spans[h]
		c, e := all[i].in(y, at, 1-r.out[at]-r.in[at])
		time += e.rerun
		if e.load {
			g.in[e.at] += y.in
			s.delta[e.at+1] += y.size
			s.delta[at+1] -= y.size
		}
		s.follow(y, &c)
	}
	g.out[at] -= time
	g.in[at] -= time
	return best
}
