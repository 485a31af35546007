package joint

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The ascent of the bound over intervals, and its branch and bound.
//
// The volume algorithm moves from the best known rates along an average of subgradients, in which the newest
// has the weight that makes the average shortest. Its step covers a share of the gap to the time of a known
// plan. The share grows while the average points upwards, and shrinks after twenty turns without a gain. The
// ascent stops after some hundred turns with almost no gain.
//
// The ascent starts with the memory of a few ops (phases.go). From the rates found there it continues with
// the memory of more ops, as long as work for a hundred turns is left.
//
// A branch decides for one span whether any of it is recomputed. If so, the ops run once and are paid for in
// full, and further shares cost only what later positions add; if not, the span is only swapped. The later a
// value is recomputed, the more ops run, and a cheap run at an early position must not pay for a share of an
// expensive one. So a branch splits at a position, the latest at which the ascent recomputed the span: it is
// recomputed at least once at or after it, or only before it. Spans share the time of ops that serve several,
// so in the end a branch also decides about spans that do not need the shared run, and only leave others less
// to pay.
//
// The lowest bound of all open branches is the bound. The branch with the lowest bound is split next, at the
// span that the ascent recomputed most often, weighted by size.

// branch is a case of the bound.
type branch struct {
	decided []decision
	value   float64
	rates   rates
	next    int // the next span to decide on, or none
	at      int // the index of the making to split it at
}

// prove returns a bound as close to the known plan's time as the given work allows. It stops once that plan
// takes at most the share enough longer than the bound.
func (s *intervals) prove(known, enough float64, work int64) float64 {
	par := &s.m.params.proof
	done, rootWork := known/(1+enough), work
	work += s.work // reading the problem does not count
	if slices.ContainsFunc(s.spans, func(x span) bool { return len(x.makings) > 0 }) {
		rootWork /= par.rootPart // there is something to branch on
	}
	open := []branch{s.root(known, done, rootWork)} // the lowest first
	for s.work < work && open[0].value < done && open[0].next >= 0 {
		x := open[0]
		open = open[1:]
		left, right := slices.Clone(x.decided), slices.Clone(x.decided)
		left[x.next].until, right[x.next].since = x.at, x.at
		for _, decided := range [][]decision{left, right} {
			s.settle(decided)
			y := s.branch(decided, x.rates, known, done, min(work-s.work, work/par.branchPart))
			y.value = max(y.value, x.value)
			at, _ := slices.BinarySearchFunc(open, y.value, func(z branch, v float64) int {
				return cmp.Compare(z.value, v)
			})
			open = slices.Insert(open, at, y)
		}
	}
	return open[0].value
}

// root bounds the undecided problem, level by level with the memory of more ops.
func (s *intervals) root(known, done float64, work int64) (x branch) {
	work += s.work
	nothing := make([]decision, len(s.spans))
	for k := range s.spans {
		nothing[k] = s.spans[k].decided
	}
	all := levels(s.bounder.tight, &s.m.params.proof)
	for k, ops := range all {
		next := newPhases(ops, s.fixed)
		if k > 0 && s.turn(&next)*s.m.params.proof.fewestTurns > work-s.work {
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

// turn returns the work counted for a turn of the ascent over some phases.
func (s *intervals) turn(p *phases) int64 {
	work := int64(len(p.instants))
	for k := range s.spans {
		first, last := s.spans[k].away(p)
		work += int64(max(0, last-first))
	}
	return work
}

// settle sets the decisions of the current case.
func (s *intervals) settle(d []decision) {
	for k := range s.spans {
		s.spans[k].decided = d[k]
	}
	s.share()
	s.pair()
}

// branch bounds the current case, starting from the given rates.
func (s *intervals) branch(d []decision, from rates, known, done float64, work int64) branch {
	for k := range s.spans {
		x := &s.spans[k]
		x.reran, x.unpaid, x.latest = 0, 0, 0
	}
	s.rates.copy(&from)
	x := branch{decided: d, next: none}
	x.value, x.rates = s.ascend(known, done, s.work+work)
	x.next, x.at = s.split()
	return x
}

// split picks the span to decide on next, and the making to split it at. It prefers spans that the ascent
// recomputed although nothing decides that they are; then spans recomputed in makings that cost more than the
// least.
func (s *intervals) split() (span, at int) {
	span = none
	var most float64
	for k := range s.spans {
		if y := &s.spans[k]; y.decided.since < 0 && y.reran*y.size > most {
			span, most = k, y.reran*y.size
		}
	}
	if span >= 0 {
		return span, s.spans[span].latest
	}
	for k := range s.spans {
		y := &s.spans[k]
		if y.unpaid > most && y.latest > y.decided.since {
			span, at, most = k, y.latest, y.unpaid
		}
	}
	if span >= 0 {
		return span, at
	}
	return s.splitSharer()
}

// splitSharer picks a span that pays for a part of what a branch has decided to rerun for another, because it
// may use the same run, and the making from which on it may. If it does not, the other one pays more.
func (s *intervals) splitSharer() (span, at int) {
	span = none
	var most float64
	pays := make([]float64, s.m.n) // of each op of the rerun, its time
	for k := range s.spans {
		x := &s.spans[k]
		if !x.sure() {
			continue
		}
		from, until := x.leastMaking(s.bounder.dur, pays)
		for l := range s.spans {
			y := &s.spans[l]
			if l == k {
				continue
			}
			if j := y.meets(from, until); j > y.decided.since && j < len(y.open()) {
				var shared float64
				for _, o := range y.makings[j].ops {
					shared += pays[o]
				}
				if s.work += int64(len(y.makings[j].ops)); shared*y.size > most {
					span, at, most = l, j, shared*y.size
				}
			}
		}
		clear(pays)
	}
	return span, at
}

// leastMaking returns the positions of the making that a recomputed span pays for, and notes the times of its
// ops.
func (x *span) leastMaking(dur []int64, times []float64) (from, until plan.OpID) {
	least := x.decided.since
	for i := range x.open() {
		if i > least && x.makings[i].time < x.makings[least].time {
			least = i
		}
	}
	for _, o := range x.makings[least].ops {
		times[o] = float64(dur[o])
	}
	if from = x.from; least > 0 {
		from = x.makings[least-1].until + 1
	}
	return from, x.makings[least].until
}

// meets returns the index of the first of a span's open makings with a position in [from, until]; their
// number if there is none.
func (x *span) meets(from, until plan.OpID) int {
	begin := x.from
	for j := range x.open() {
		if begin <= until && from <= x.makings[j].until {
			return j
		}
		begin = x.makings[j].until + 1
	}
	return len(x.open())
}

// ascend improves the current rates until it has spent work, reached done, or stops gaining. It returns the
// best value and its rates.
func (s *intervals) ascend(known, done float64, work int64) (float64, rates) {
	par := &s.m.params.proof
	best := s.value()
	at, mean := s.rates.clone(), s.slope.clone()
	step, lost, share := par.firstStep, 0, par.newestShare
	reviewed := math.Inf(-1) // the best value at the last par.review of progress
	for turn := 1; s.work < work && best < done; turn++ {
		length := at.upwards(&mean)
		if length == 0 {
			break
		}
		target := max(known, best*(1+par.above))
		s.rates.move(&at, &mean, step*(target-best)/length, s.between)
		v := s.value()
		old, both, newest := mean.dot(&mean), mean.dot(&s.slope), s.slope.dot(&s.slope)
		part := share
		if d := old - 2*both + newest; d > 0 {
			part = min(max((old-both)/d, share/par.leastMixed), share)
		}
		mean.mix(&s.slope, part)
		if v > best {
			if both > 0 {
				step = min(step*par.longer, par.largestStep)
			}
			best, lost = v, 0
			at.copy(&s.rates)
		} else if lost++; lost >= par.fallow {
			lost, step = 0, step*par.shorter
		}
		if turn%par.review == 0 && step < par.firstStep/par.settled {
			share = max(share/2, par.leastShare)
		}
		if turn%par.patience == 0 {
			if best < reviewed*(1+par.worthwhile) {
				break
			}
			reviewed = best
		}
	}
	return best, at
}
