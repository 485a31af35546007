package joint

// cut is the search for the margin, in bytes, by which limits are lowered for choices, because addresses take
// the plan above its live bytes.
type cut struct {
	margin     int64 // the current margin
	tooLittle  int64 // the largest margin that was too little
	sufficient int64 // the smallest margin that was enough, once one has been
	enough     bool  // one has been
	seed       int64 // the margin that was enough at neighbouring limits, 0 if unknown
	step       int64 // the most by which the margin grows at first
	tolerance  int64 // tooLittle and sufficient need not come closer than this
	limit      int64
	rounds     int
	params     *params
	last       bool // limits are as low as they can be
	greedy     bool // the last plan was too large for a search for places
}

// move is what to do after a round of a cut.
type move int

const (
	stop    move = iota
	tighten      // lower limits only where places lie above the limit
	lower        // lower all limits by the margin
)

// packedBy notes how places were looked for. The results of a greedy pass scatter, so margins that differ by
// less than a step then count as equal.
func (c *cut) packedBy(greedy bool) {
	if c.greedy = greedy; greedy {
		c.tolerance = c.step
	}
}

// next chooses the margin after a round in which the plan exceeded the limit by miss bytes, or fits if miss
// is at most 0. over says that the choices did not meet their own limits, known that a plan that fits is
// known, and tightens that tightening may be tried.
func (c *cut) next(round int, miss int64, over, known, tightens bool) move {
	near := c.margin-c.tooLittle <= c.tolerance
	switch {
	case miss <= 0: // perhaps less would have been enough
		c.sufficient, c.enough = c.margin, true
	case c.enough:
		c.tooLittle = c.margin
	case c.last || known && over && near:
		return stop
	case over && near: // the choices cannot go lower
		c.last = true
	case over: // they cannot go this low
		c.margin = (c.tooLittle + c.margin) / 2
	case c.seed > c.margin && (round < c.rounds-2 || c.seed > miss):
		c.tooLittle, c.margin = c.margin, c.seed
	case c.greedy && round < c.rounds-2: // the next limits will waste about as much
		c.tooLittle = c.margin
		c.margin += miss
	case tightens && c.seed == 0:
		return tighten
	case round == c.rounds-2: // the last round: add the whole excess
		c.tooLittle = c.margin
		c.margin += miss + c.step
	default:
		c.tooLittle = c.margin
		c.margin += c.margin + min(miss/c.params.missShare, c.step)
	}
	if c.enough {
		lastRound := c.greedy && round == c.rounds-2 && miss <= 0
		if c.sufficient-c.tooLittle <= c.tolerance || lastRound && -miss <= c.params.leftOver*c.step {
			return stop // too little to gain
		}
		c.margin = (c.tooLittle + c.sufficient) / 2
		// halfway would take back more than what was left over
		if c.greedy && c.sufficient+miss > c.margin && miss <= 0 {
			c.margin = c.sufficient + miss
		}
	}
	if c.last = c.last || !known && round == c.rounds-2; c.last && !c.enough {
		c.margin = c.limit
	}
	return lower
}

// found returns the margin from which neighbouring limits start.
func (c *cut) found() int64 {
	if c.sufficient > 0 && c.sufficient < c.limit {
		return c.sufficient
	}
	return c.seed
}
