package joint

import (
	"errors"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// What it takes at the least to make a span again, for the bound over intervals.
//
// The later a span is made again, the more of what its ops read is gone and has to be made first: the ops
// that run only become more from one position to the next. So they are asked for at both ends of the span,
// and between them by halving wherever the answers differ, a few times; where the halving stops, the fewer
// ops count.

// again are the ops that run, at the least, to make a span again at positions up to last.
type again struct {
	last plan.OpID
	ops  []plan.OpID
}

const (
	// halvings bounds how often the positions of a span are halved. One more doubles the questions.
	halvings = 5
	// longestAgain bounds the ops of an answer. Beyond it the makers alone count.
	longestAgain = 400
)

// findReruns works out what has to run to make each span again. ids are the gaps of the spans.
func (s *intervals) findReruns(ids []int32) {
	m := s.m
	chains := chain.New(m.p)
	for k, g := range ids {
		x := &m.gaps[g]
		s.spans[k].from = x.after + 2
		if x.producersRerun && x.before >= x.after+2 {
			s.spans[k].own = m.producers.of(g)
			s.spans[k].agains = agains(chains, x, s.spans[k].own)
		}
	}
	s.share()
}

// share divides the time of ops that run again among the spans that a branch may make again.
func (s *intervals) share() {
	n := s.m.n
	makes := make([]uses, n)  // of each op, the spans that it writes
	serves := make([]uses, n) // and those that it helps to make
	for k := range s.spans {
		x := &s.spans[k]
		if len(x.agains) == 0 || x.decided == neverMade {
			continue
		}
		for _, o := range x.own {
			makes[o].add(x.from, x.agains[len(x.agains)-1].last)
		}
		from := x.from
		for _, a := range x.agains {
			for _, o := range a.ops {
				if !slices.Contains(x.own, o) {
					serves[o].add(from, a.last)
				}
			}
			from = a.last + 1
		}
	}
	for k := range s.spans {
		x := &s.spans[k]
		x.makings, x.least = x.makings[:0], 0
		from := x.from
		for i, a := range x.agains {
			var time float64
			for _, o := range a.ops {
				switch {
				case slices.Contains(x.own, o):
					time += float64(s.bounder.dur[o]) / max(1, makes[o].meet(from, a.last))
				case makes[o].meet(from, a.last) == 0: // or those that it writes pay for it
					time += float64(s.bounder.dur[o]) / max(1, serves[o].meet(from, a.last))
				}
			}
			if i == 0 || time < x.least {
				x.least = time
			}
			x.makings = append(x.makings, making{2*int32(a.last) - 1, time})
			from = a.last + 1
		}
	}
}

// agains asks which ops run to make a gap's buffer again, position by position. own are those that write it:
// they run in any case. Behind the last position that is listed it is impossible: what is gone stays gone.
func agains(chains *chain.Builder, x *gap, own []plan.OpID) []again {
	at := func(position plan.OpID) []plan.OpID {
		c, err := chains.AtMost(position, []plan.BufferID{x.buffer}, nil, longestAgain)
		var no *chain.Impossible
		switch {
		case errors.As(err, &no) && no.Always:
			return nil
		case err != nil || len(c.Ops) < len(own): // too many, or only possible while something else is away
			return own
		}
		return c.Ops
	}
	var all []again
	add := func(last plan.OpID, ops []plan.OpID) {
		if ops == nil {
			return
		}
		if n := len(all); n > 0 && slices.Equal(all[n-1].ops, ops) {
			all[n-1].last = last
			return
		}
		all = append(all, again{last, ops})
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
		split(first, last, atFirst, atLast, halvings)
	}
	return all
}

// uses are the stretches of positions at which spans have use for a run of an op.
type uses struct{ from, to []plan.OpID }

func (u *uses) add(from, to plan.OpID) { u.from, u.to = append(u.from, from), append(u.to, to) }

// meet returns how many of them have a position in [from, to].
func (u *uses) meet(from, to plan.OpID) (n float64) {
	for i := range u.from {
		if u.from[i] <= to && from <= u.to[i] {
			n++
		}
	}
	return n
}
