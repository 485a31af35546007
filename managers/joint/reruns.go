package joint

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// The least work that recomputes a span, for the bound over intervals.
//
// The later a span is recomputed, the more of what its ops read is gone and must be recomputed first, so from
// one position to the next the set of ops only grows. The chain is therefore computed at both ends of the
// span and, by a few bisections, between them wherever the answers differ. Where the bisection stops, the
// smaller set counts.

// findReruns computes what must be rerun to recompute each span. ids are the gaps of the spans.
func (s *intervals) findReruns(ids []int32) {
	m := s.m
	chains := chain.New(m.p)
	for k, g := range ids {
		x := &m.gaps[g]
		s.spans[k].from = x.after + 2
		if x.producersRerun && x.before >= x.after+2 {
			s.spans[k].own = m.producers.of(g)
			s.spans[k].makings = makings(chains, x, s.spans[k].own, &m.params.proof)
		}
		s.spans[k].decided = decision{until: len(s.spans[k].makings), since: none}
	}
	s.share()
}

// share divides the time of rerun ops among the spans that a branch may recompute.
func (s *intervals) share() {
	n := s.m.n
	makes := make([]uses, n)  // for each op, the spans that it writes
	serves := make([]uses, n) // for each op, the other spans that it helps to recompute
	for k := range s.spans {
		x := &s.spans[k]
		all := x.open()
		if len(all) == 0 {
			continue
		}
		for _, o := range x.own {
			makes[o].add(use{k, x.from, all[len(all)-1].until, x.weight})
		}
		from := x.from
		for _, y := range all {
			for _, o := range y.ops {
				if !slices.Contains(x.own, o) {
					serves[o].add(use{k, from, y.until, x.weight})
				}
			}
			from = y.until + 1
		}
	}
	for o := range n {
		makes[o].sort()
		serves[o].sort()
	}
	for k := range s.spans {
		x := &s.spans[k]
		x.least = 0
		from := x.from
		for i := range x.open() {
			y := &x.makings[i]
			y.time = 0
			s.work += s.m.params.proof.sharing * int64(len(y.ops))
			for _, o := range y.ops {
				part := float64(s.bounder.dur[o]) * float64(x.weight)
				switch {
				case slices.Contains(x.own, o):
					y.time += part / float64(makes[o].meet(from, y.until))
				case makes[o].meet(from, y.until) == 0: // otherwise the spans that it writes pay for it
					y.time += part / float64(serves[o].meet(from, y.until))
				}
			}
			if i == max(x.decided.since, 0) || i > x.decided.since && y.time < x.least {
				x.least = y.time
			}
			from = y.until + 1
		}
	}
}

// makings computes which ops are rerun to recompute a gap's buffer, position by position. own are the ops
// that write it: they run in any case. After the last listed position recomputation is impossible, because
// what is gone stays gone.
func makings(chains *chain.Builder, x *gap, own []plan.OpID, par *proving) []making {
	at := func(position plan.OpID) []plan.OpID {
		c, err := chains.AtMost(position, []plan.BufferID{x.buffer}, nil, par.longestMaking)
		var no *chain.Impossible
		switch {
		case errors.As(err, &no) && no.Always:
			return nil
		case err != nil || len(c.Ops) < len(own): // too many, or only while something else is absent
			return own
		}
		return c.Ops
	}
	var all []making
	add := func(until plan.OpID, ops []plan.OpID) {
		if ops == nil {
			return
		}
		if n := len(all); n > 0 && slices.Equal(all[n-1].ops, ops) {
			all = all[:n-1]
		}
		all = append(all, making{until: until, ops: ops})
	}
	var split func(low, high plan.OpID, atLow, atHigh []plan.OpID, left int) // positions (low, high]
	split = func(low, high plan.OpID, atLow, atHigh []plan.OpID, left int) {
		switch {
		case slices.Equal(atLow, atHigh) || high-low <= 1:
			add(high, atHigh)
		case left == 0:
			add(high-1, atLow)
			add(high, atHigh)
		default:
			middle := (low + high) / 2
			ops := at(middle)
			split(low, middle, atLow, ops, left-1)
			split(middle, high, ops, atHigh, left-1)
		}
	}
	first, last := x.after+2, x.before
	atFirst, atLast := at(first), at(last)
	add(first, atFirst)
	if first < last {
		split(first, last, atFirst, atLast, par.halvings)
	}
	return all
}

// uses are the stretches of positions at which spans can use a run of an op. Once sorted, begins and ends are
// the positions at which stretches begin and end, ascending; begun and ended are the running sums of their
// sizes.
type uses struct {
	all          []use
	begins, ends []plan.OpID
	begun, ended []int64
}

// use is a stretch of positions at which a span can use a run of an op.
type use struct {
	span     int
	from, to plan.OpID
	size     int64 // of the span
}

// add adds a stretch. It begins after earlier ones of the same span.
func (u *uses) add(x use) {
	if n := len(u.all); n > 0 && u.all[n-1].span == x.span && u.all[n-1].to+1 == x.from {
		u.all[n-1].to = x.to
		return
	}
	u.all = append(u.all, x)
}

// sort prepares for calls of meet.
func (u *uses) sort() {
	sums := func(at func(*use) plan.OpID) (sizes []int64, positions []plan.OpID) {
		slices.SortFunc(u.all, func(x, y use) int { return cmp.Compare(at(&x), at(&y)) })
		sum := int64(0)
		sizes = append(sizes, 0)
		for i := range u.all {
			sum += u.all[i].size
			sizes, positions = append(sizes, sum), append(positions, at(&u.all[i]))
		}
		return sizes, positions
	}
	u.begun, u.begins = sums(func(x *use) plan.OpID { return x.from })
	u.ended, u.ends = sums(func(x *use) plan.OpID { return x.to })
}

// meet returns the total size of the stretches that have a position in [from, to].
func (u *uses) meet(from, to plan.OpID) int64 {
	begun, _ := slices.BinarySearch(u.begins, to+1)
	ended, _ := slices.BinarySearch(u.ends, from)
	return u.begun[begun] - u.ended[ended]
}
