package joint

import (
	"cmp"
	"math"
	"slices"
)

// The ascent of the bound over intervals, and its branches.
//
// The volume algorithm moves from the best rates known along an average of slopes, in which the newest has
// the share that makes the average shortest. Its step is a part of what is missing to the time of a known
// plan: the part grows while the average points upwards and shrinks where twenty turns have won nothing. It
// stops where some hundred turns have won next to nothing.
//
// It begins with the memory of a few ops (phases.go), and goes on from the rates that it found there with
// that of more, as long as there is work left for a hundred turns.
//
// A branch decides for one span whether anything of it is made again. If so, the ops run once and are paid
// for in full, and further shares cost nothing more than what later positions add; if not, it only swaps. The
// later a value is made again, the more runs again, and a cheap run at an early position must not pay for a
// share of a dear one. So where nothing else is left to decide, a branch is split at a position: the span is
// made again there or behind it, once at the least, or nowhere but before it.
//
// The least of all open branches is the bound. The branch that bounds lowest is split next, at the span that
// the ascent had made again most often, by size.

// decision is what a branch has settled for a span, in indices of its makings.
type decision struct {
	until int // it is not made again in one of these, nor behind
	since int // it is made again in one from here on, once at the least; -1 where that is open
}

// branch is a case of the bound.
type branch struct {
	decided []decision
	value   float64
	rates   rates
	next    int // the span to decide on, -1 for none
	at      int // the making to split it at
}

// prove returns a bound as close to the known plan's time as this much work gets it. It stops once that plan
// takes at most the share enough longer than the bound.
func (s *intervals) prove(known, enough float64, work int64) float64 {
	done, rootWork := known/(1+enough), work
	work += s.work // reading the problem does not count
	if slices.ContainsFunc(s.spans, func(x span) bool { return len(x.makings) > 0 }) {
		rootWork /= rootPart // there is something to branch on
	}
	open := []branch{s.root(known, done, rootWork)} // the lowest first
	for s.work < work && open[0].value < done && open[0].next >= 0 {
		x := open[0]
		open = open[1:]
		left, right := slices.Clone(x.decided), slices.Clone(x.decided)
		left[x.next].until, right[x.next].since = x.at, x.at
		for _, decided := range [][]decision{left, right} {
			s.settle(decided)
			y := s.branch(decided, x.rates, known, done, min(work-s.work, work/branchPart))
			y.value = max(y.value, x.value)
			at, _ := slices.BinarySearchFunc(open, y.value, func(z branch, v float64) int {
				return cmp.Compare(z.value, v)
			})
			open = slices.Insert(open, at, y)
		}
	}
	return open[0].value
}

// root bounds the case in which nothing is decided, with the memory of more and more ops.
func (s *intervals) root(known, done float64, work int64) (x branch) {
	work += s.work
	nothing := make([]decision, len(s.spans))
	for k := range s.spans {
		nothing[k] = s.spans[k].decided
	}
	all := levels(s.bounder.tight)
	for k, ops := range all {
		next := newPhases(ops, s.fixed)
		if k > 0 && s.turn(&next)*fewestTurns > work-s.work {
			break
		}
		if s.look(next); k == 0 {
			s.begin()
		}
		x = s.branch(nothing, s.rates, known, done, (work-s.work)/int64(len(all)-k))
		s.rates.copy(&x.rates)
		if x.value >= done {
			break
		}
	}
	return x
}

// turn returns what a turn of the ascent over some phases counts for.
func (s *intervals) turn(p *phases) int64 {
	work := int64(len(p.instants))
	for k := range s.spans {
		first, last := s.spans[k].away(p)
		work += int64(max(0, last-first))
	}
	return work
}

// settle makes a case the one at hand.
func (s *intervals) settle(d []decision) {
	for k := range s.spans {
		s.spans[k].decided = d[k]
	}
	s.share()
	s.pair()
}

// branch bounds the case at hand, from given rates on.
func (s *intervals) branch(d []decision, from rates, known, done float64, work int64) branch {
	for k := range s.spans {
		x := &s.spans[k]
		x.reran, x.unpaid, x.latest = 0, 0, 0
	}
	s.rates.copy(&from)
	x := branch{decided: d, next: -1}
	x.value, x.rates = s.ascend(known, done, s.work+work)
	x.next, x.at = s.split()
	return x
}

// split picks the span to decide on next, and the making to split it at: one that is made again, by what is
// known so far perhaps and perhaps not; else one that is, in makings that cost more than the least.
func (s *intervals) split() (span, at int) {
	span = -1
	var most float64
	for k := range s.spans {
		if y := &s.spans[k]; y.decided.since < 0 && y.reran*y.size > most {
			span, most = k, y.reran*y.size
		}
	}
	if span >= 0 {
		return span, 0
	}
	for k := range s.spans {
		y := &s.spans[k]
		if y.unpaid > most && y.latest > y.decided.since {
			span, at, most = k, y.latest, y.unpaid
		}
	}
	return span, at
}

const (
	// The root gets at most 1/rootPart of the work, and each branch at most 1/branchPart.
	rootPart, branchPart = 2, 30
	// A level of the root is worth it where there is work left for so many turns.
	fewestTurns = 100
	// firstStep is the part of what is missing that the first step goes, largestStep the most that any goes.
	firstStep, largestStep = 0.1, 2
	// longer is what the step is multiplied by where the average points upwards. It is multiplied by shorter
	// where so many turns as fallow have won nothing.
	longer, shorter, fallow = 1.1, 0.66, 20
	// above is how far above the best value the target lies at the least, as a share of it.
	above = 1e-3
	// newestShare bounds the share of the newest slope in the average: with more the average forgets, with
	// less it follows too late. It is halved every so many turns as review, down to leastShare, once steps
	// are shorter than the first by the factor settled.
	newestShare, leastShare, review, settled = 0.2, 1e-4, 100, 5
	// worthwhile is the part of the bound that has to be won within so many turns as patience. It takes some
	// hundreds to leave a ridge.
	worthwhile, patience = 1e-4, 500
)

// ascend improves the rates at hand until the work counted comes to so much, the value to done, or no more is
// won. It returns the best value and its rates.
func (s *intervals) ascend(known, done float64, work int64) (float64, rates) {
	best := s.value()
	at, mean := s.rates.clone(), s.slope.clone()
	step, lost, share := firstStep, 0, newestShare
	reviewed := math.Inf(-1) // the best value at the last review
	for turn := 1; s.work < work && best < done; turn++ {
		length := at.upwards(&mean)
		if length == 0 {
			break
		}
		target := max(known, best*(1+above))
		s.rates.move(&at, &mean, step*(target-best)/length, s.between)
		v := s.value()
		old, both, newest := mean.dot(&mean), mean.dot(&s.slope), s.slope.dot(&s.slope)
		part := share
		if d := old - 2*both + newest; d > 0 {
			part = min(max((old-both)/d, share/10), share)
		}
		mean.mix(&s.slope, part)
		if v > best {
			if both > 0 {
				step = min(step*longer, largestStep)
			}
			best, lost = v, 0
			at.copy(&s.rates)
		} else if lost++; lost >= fallow {
			lost, step = 0, step*shorter
		}
		if turn%review == 0 && step < firstStep/settled {
			share = max(share/2, leastShare)
		}
		if turn%patience == 0 {
			if best < reviewed*(1+worthwhile) {
				break
			}
			reviewed = best
		}
	}
	return best, at
}

func (r *rates) each() [3][]float64 { return [3][]float64{r.memory, r.out, r.in} }

func (r *rates) clone() rates {
	return rates{slices.Clone(r.memory), slices.Clone(r.out), slices.Clone(r.in)}
}

func (r *rates) copy(x *rates) {
	copy(r.memory, x.memory)
	copy(r.out, x.out)
	copy(r.in, x.in)
}

func (r *rates) dot(x *rates) (sum float64) {
	other := x.each()
	for k, a := range r.each() {
		for i, v := range a {
			sum += v * other[k][i]
		}
	}
	return sum
}

func (r *rates) mix(x *rates, share float64) {
	other := x.each()
	for k, a := range r.each() {
		for i := range a {
			a[i] += share * (other[k][i] - a[i])
		}
	}
}

// upwards returns the squared length of a direction, without what would take rates at 0 below it.
func (r *rates) upwards(direction *rates) (sum float64) {
	d := direction.each()
	for k, a := range r.each() {
		for i, v := range a {
			if v > 0 || d[k][i] > 0 {
				sum += d[k][i] * d[k][i]
			}
		}
	}
	return sum
}

// move sets the rates to those that lie so far from others in a direction. None is below 0, and between two
// ops both engines together cost no more than compute does.
func (r *rates) move(from, direction *rates, far float64, between []bool) {
	for i := range r.memory {
		r.memory[i] = max(from.memory[i]+far*direction.memory[i], 0)
		out := max(from.out[i]+far*direction.out[i], 0)
		in := max(from.in[i]+far*direction.in[i], 0)
		if over := out + in - 1; over > 0 && between[i] {
			out, in = out-over/2, in-over/2
			if low := min(out, in); low < 0 { // the nearest point of the triangle is a corner
				out, in = math.Min(1, max(out, 0)), math.Min(1, max(in, 0))
			}
		}
		r.out[i], r.in[i] = out, in
	}
}
