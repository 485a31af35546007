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

// making is the least work that makes a span again, over a stretch of positions.
type making struct {
	until plan.OpID   // the last of them
	last  int32       // the phase before it
	ops   []plan.OpID // that run
	time  float64     // the span's part of the time of these, in the branch at hand
}

const (
	// halvings bounds how often the positions of a span are halved. One more doubles the questions.
	halvings = 5
	// longestMaking bounds the ops of an answer. Beyond it the makers alone count.
	longestMaking = 400
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
			s.spans[k].makings = makings(chains, x, s.spans[k].own)
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
		if len(x.makings) == 0 || x.decided == neverMade {
			continue
		}
		for _, o := range x.own {
			makes[o].add(x.from, x.makings[len(x.makings)-1].until)
		}
		from := x.from
		for _, y := range x.makings {
			for _, o := range y.ops {
				if !slices.Contains(x.own, o) {
					serves[o].add(from, y.until)
				}
			}
			from = y.until + 1
		}
	}
	for k := range s.spans {
		x := &s.spans[k]
		x.least = 0
		from := x.from
		for i := range x.makings {
			y := &x.makings[i]
			y.time = 0
			for _, o := range y.ops {
				switch {
				case slices.Contains(x.own, o):
					y.time += float64(s.bounder.dur[o]) / max(1, makes[o].meet(from, y.until))
				case makes[o].meet(from, y.until) == 0: // or those that it writes pay for it
					y.time += float64(s.bounder.dur[o]) / max(1, serves[o].meet(from, y.until))
				}
			}
			if i == 0 || y.time < x.least {
				x.least = y.time
			}
			from = y.until + 1
		}
	}
}

// makings asks which ops run to make a gap's buffer again, position by position. own are those that write it:
// they run in any case. Behind the last position that is listed it is impossible: what is gone stays gone.
func makings(chains *chain.Builder, x *gap, own []plan.OpID) []making {
	at := func(position plan.OpID) []plan.OpID {
		c, err := chains.AtMost(position, []plan.BufferID{x.buffer}, nil, longestMaking)
		var no *chain.Impossible
		switch {
		case errors.As(err, &no) && no.Always:
			return nil
		case err != nil || len(c.Ops) < len(own): // too many, or only possible while something else is away
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
		all = append(all, making{until: until, last: 2*int32(until) - 1, ops: ops})
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
