package joint

import (
	"math"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// intervals is the relaxation for one problem and one limit.
type intervals struct {
	m       *model
	bounder *bounder
	limit   int64
	unit    float64 // bytes that count as a nanosecond of copying
	spans   []span
	roomOf  []float64 // for each op, the room beside what cannot leave, in units
	fixed   []float64 // the time of each op; 0 if it has variants
	varied  []int32   // the ops with variants
	phases            // the current ones; what follows is by their instants and phases
	room    []float64 // at each instant
	rates   rates
	slope   rates     // of the value, with respect to the rates
	sum     []float64 // rates.memory summed before each instant
	delta   []float64 // changes of what is in memory, by instant
	work    int64     // instants looked at
	// for the inputs of the current span: their courses, and for one of them the cheapest copy out before
	// each instant
	present []presence
	copies  []cheapestCopy
}

// span is an idle interval whose buffer may leave memory.
type span struct {
	buffer        plan.BufferID
	after, before plan.OpID // the accesses around it
	writer        plan.OpID // as in [gap]
	first, last   int32     // the instants at which it may be absent; none if last is below first
	written       int32     // the first phase in which it can be copied out
	size          float64   // in units
	weight        int64     // in bytes
	out, in       float64   // times of its copies
	canSwap       bool
	from          plan.OpID   // the first position at which it may be recomputed
	own           []plan.OpID // the ops that write it
	makings       []making    // what recomputing it takes, position by position
	least         float64     // the least of the times in makings
	decided       decision
	inputs        []int32 // the spans that hold what its producers read
	with          []int32 // those of inputs that are considered together with it
	taken         bool    // it is considered together with a span that it is an input of
	reran         float64 // how often the last ascent recomputed it
	unpaid        float64 // the time of these reruns that oneRun does not pay for
	latest        int     // the latest making used in these reruns
}

// course is what becomes of a span under given rates.
type course struct {
	cost            float64
	how             choice
	leaves, returns int32   // the instant from which it is absent, and the phase in which it comes back
	copied          int32   // the phase of the copy out
	time            float64 // of the ops that are rerun
	making          int     // the index of the span's making
}

// open returns the makings that a branch leaves open.
func (x *span) open() []making { return x.makings[:x.decided.until] }

// sure reports whether a branch has decided that the span is recomputed.
func (x *span) sure() bool { return x.decided.since >= 0 }

// cheapestCopy is the lowest price of a copy out in the phases before a given one.
type cheapestCopy struct {
	price  float64
	phase  int32 // the phase with this price
	before int32
}

// copiesFrom returns an empty search for copies from a phase on.
func copiesFrom(phase int32) cheapestCopy {
	return cheapestCopy{price: math.Inf(1), phase: phase, before: phase}
}

// extend includes the phases before another one.
func (c *cheapestCopy) extend(prices []float64, before int32) {
	for ; c.before < before; c.before++ {
		if p := prices[c.before]; p < c.price {
			c.price, c.phase = p, c.before
		}
	}
}

// making is the least work that recomputes a span, over a stretch of positions.
type making struct {
	until       plan.OpID   // the last position
	first, last int32       // the phases of the positions
	ops         []plan.OpID // that are rerun
	time        float64     // the span's part of their time, in the current branch
}

// decision is what a branch has decided for a span, as indices of its makings.
type decision struct {
	until int // it is not recomputed in this one or a later one
	since int // it is recomputed at least once in this one or a later one; none if undecided
}

// presence holds the cheapest courses of an input, by the phase in which it must be in memory.
type presence struct {
	any     course
	keep    course
	back    []course // by instant: it is back by then
	leaving []course // by instant: it leaves then or later
	loads   []load   // by phase: of loading it for a rerun there alone
}

// load is the cheapest copy in of an input for one rerun: its cost, and the phase in which it is made.
type load struct {
	cost float64
	at   int32
}

// follow adds a span's course to the slope.
func (s *intervals) follow(x *span, c *course) {
	g := &s.slope
	s.delta[x.first] += x.size
	s.delta[x.last+1] -= x.size
	if c.how == keep {
		return
	}
	s.delta[c.leaves] -= x.size
	s.delta[c.returns+1] += x.size
	if c.how == swap {
		g.out[c.copied] += x.out
		g.in[c.returns] += x.in
		return
	}
	x.reran++
	if !x.sure() {
		x.latest = max(x.latest, c.making)
	}
	if x.sure() && c.time > 0 {
		x.unpaid += c.time
		x.latest = max(x.latest, c.making)
	}
	g.out[c.returns] -= c.time
	g.in[c.returns] -= c.time
}
