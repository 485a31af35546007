package joint

import (
	"math"
	"slices"
)

// The ascent of the bound over intervals, and its branches.
//
// The volume algorithm moves from the best rates known along an average of slopes, in which the newest has
// the share that makes the average shortest. Its step is a part of what is missing to the time of a known
// plan: the part grows while the average points upwards and shrinks where twenty turns have won nothing.
//
// A branch decides for one span whether anything of it is made again. If so, the ops run once and are paid
// for in full, and further shares cost nothing more than what later positions add; if not, it only swaps. The
// least of all open branches is the bound. The branch that bounds lowest is split next, at the span that the
// ascent had made again most often, by size.

// decision is what a branch has settled for a span.
type decision uint8

const (
	undecided decision = iota
	neverMade
	madeAgain
)

// branch is a case of the bound.
type branch struct {
	decided []decision
	value   float64
	rates   rates
	next    int // the span to decide on, -1 for none
}

// prove returns a bound that is as near the time of a known plan as so much work brings it; it is done once
// the plan is within enough of it.
func (s *intervals) prove(known, enough float64, work int64) float64 {
	s.begin()
	x := s.branch(make([]decision, len(s.spans)), s.rates, known, known, work/rootPart)
	open := []branch{x}
	for s.work < work {
		x = open[0]
		if x.value >= known/(1+enough) || x.next < 0 {
			break
		}
		left, right := slices.Clone(x.decided), slices.Clone(x.decided)
		left[x.next], right[x.next] = neverMade, madeAgain
		open = open[1:]
		for _, d := range [][]decision{left, right} {
			y := s.branch(d, x.rates, known, known/(1+enough), min(work-s.work, work/branchPart))
			y.value = max(y.value, x.value)
			at, _ := slices.BinarySearchFunc(open, y.value, func(z branch, v float64) int {
				if z.value < v {
					return -1
				}
				return 1
			})
			open = slices.Insert(open, at, y)
		}
	}
	return open[0].value
}

// branch bounds a case, from given rates on.
func (s *intervals) branch(d []decision, from rates, known, enough float64, work int64) branch {
	for k := range s.spans {
		s.spans[k].decided, s.spans[k].reran = d[k], 0
	}
	s.share()
	s.pair()
	s.rates.copy(&from)
	x := branch{decided: d, next: -1}
	x.value, x.rates = s.ascend(known, enough, s.work+work)
	var most float64
	for k := range s.spans {
		if y := &s.spans[k]; y.decided == undecided && y.reran*y.size > most {
			x.next, most = k, y.reran*y.size
		}
	}
	return x
}

const (
	// The root gets at most 1/rootPart of the work, and each branch at most 1/branchPart.
	rootPart, branchPart = 3, 15
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
)

// ascend improves the rates at hand until the work counted comes to so much, or the value to enough. It
// returns the best value and its rates.
func (s *intervals) ascend(known, enough float64, work int64) (float64, rates) {
	best := s.value()
	at, mean := s.rates.clone(), s.slope.clone()
	step, lost, share := firstStep, 0, newestShare
	for turn := 1; s.work < work && best < enough; turn++ {
		length := at.upwards(&mean)
		if length == 0 {
			break
		}
		target := max(known, best*(1+above))
		s.rates.move(&at, &mean, step*(target-best)/length)
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
func (r *rates) move(from, direction *rates, far float64) {
	for i := range r.memory {
		r.memory[i] = max(from.memory[i]+far*direction.memory[i], 0)
		out := max(from.out[i]+far*direction.out[i], 0)
		in := max(from.in[i]+far*direction.in[i], 0)
		if over := out + in - 1; i%2 == 1 && over > 0 {
			out, in = out-over/2, in-over/2
			if low := min(out, in); low < 0 { // the nearest point of the triangle is a corner
				out, in = math.Min(1, max(out, 0)), math.Min(1, max(in, 0))
			}
		}
		r.out[i], r.in[i] = out, in
	}
}
