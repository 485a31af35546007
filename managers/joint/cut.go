package joint

// cut is the search for the margin by which limits are lowered for choices, since addresses take the plan
// above them. Bytes.
type cut struct {
	margin     int64 // at present
	tooLittle  int64 // the largest margin that was too little
	sufficient int64 // the smallest that did, -1 where none has yet
	seed       int64 // the one that did for the neighbours, 0 where it is not known
	step       int64 // the most by which the margin grows at first
	tolerance  int64 // how close to each other too little and sufficient need come
	limit      int64
	rounds     int
	last       bool // limits are as low as can be
	greedy     bool // the last plan was too large for a search for places
}

// move is what to do after a round of a cut.
type move int

const (
	stop    move = iota
	tighten      // limits only where places stick out
	lower        // limits by the margin
)

// packedBy notes how places were looked for. Those of a greedy pass scatter, and margins are told apart by
// steps only.
func (c *cut) packedBy(greedy bool) {
	if c.greedy = greedy; greedy {
		c.tolerance = c.step
	}
}

// next chooses the margin after a round in which the plan missed the limit by miss bytes; at most 0 means
// that it fits. over says that the choices did not meet their own limits, known that a plan is known that
// fits, and tightens that tightening may be tried.
func (c *cut) next(round int, miss int64, over, known, tightens bool) move {
	near := c.margin-c.tooLittle <= c.tolerance
	switch {
	case miss <= 0: // perhaps less would have done
		c.sufficient = c.margin
	case c.sufficient >= 0:
		c.tooLittle = c.margin
	case c.last || known && over && near:
		return stop
	case over && near: // the choices cannot follow
		c.last = true
	case over: // nor so far
		c.margin = (c.tooLittle + c.margin) / 2
	case c.seed > c.margin && (round < c.rounds-2 || c.seed > miss):
		c.tooLittle, c.margin = c.margin, c.seed
	case c.greedy && round < c.rounds-2: // about as much is wasted under the next limits
		c.tooLittle = c.margin
		c.margin += miss
	case tightens && c.seed == 0:
		return tighten
	case round == c.rounds-2: // the last that there is time for: all of what sticks out
		c.tooLittle = c.margin
		c.margin += miss + c.step
	default:
		c.tooLittle = c.margin
		c.margin += c.margin + min(miss/2, c.step)
	}
	if c.sufficient >= 0 {
		lastRound := c.greedy && round == c.rounds-2 && miss <= 0
		if c.sufficient-c.tooLittle <= c.tolerance || lastRound && -miss <= 2*c.step { // not for so little
			return stop
		}
		c.margin = (c.tooLittle + c.sufficient) / 2
		// halfway is farther than what was left over
		if c.greedy && c.sufficient+miss > c.margin && miss <= 0 {
			c.margin = c.sufficient + miss
		}
	}
	if c.last = c.last || !known && round == c.rounds-2; c.last && c.sufficient < 0 {
		c.margin = c.limit
	}
	return lower
}

// found returns the margin that neighbours begin with.
func (c *cut) found() int64 {
	if c.sufficient > 0 && c.sufficient < c.limit {
		return c.sufficient
	}
	return c.seed
}
