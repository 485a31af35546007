package joint

// candidate is a set of choices and variants, and the result of their schedule.
type candidate struct {
	choice []choice
	way    []uint8
	lead   float64
	hasten bool
	timing *timing // nil if the schedule has none
	over   int64
	time   int64
	price  prices // the prices under which it was covered
	cost   int64  // time of copies and recomputation, to break ties
	margin int64  // by how much limits had to be lowered for its plan to fit, if known
	greedy bool   // its plan had too many instances to search for places
}

// better reports whether a meets the limits better than b, or is faster, or copies and recomputes less, in
// this order.
func (a *candidate) better(b *candidate) bool {
	if a.over != b.over {
		return a.over < b.over
	}
	if a.time != b.time {
		return a.time < b.time
	}
	return a.cost < b.cost
}

// choose sets the choices of a candidate.
func (s *schedule) choose(c *candidate) {
	copy(s.setting.choice, c.choice)
	for i := range s.m.variants {
		o := s.m.variants[i].op
		s.setting.setWay(int(o), c.way[o])
	}
	s.setting.lead, s.setting.hasten = c.lead, c.hasten
	if s.setting.timing != nil && c.timing != nil {
		s.setting.timing.copy(c.timing)
	}
}

// runAs makes the schedule of a candidate.
func (s *schedule) runAs(c *candidate) {
	s.choose(c)
	s.run()
}

// take copies the schedule's choices into a candidate.
func (s *schedule) take(c *candidate) {
	c.choice, c.way = append(c.choice[:0], s.setting.choice...), append(c.way[:0], s.setting.way...)
	c.lead, c.hasten = s.setting.lead, s.setting.hasten
	if c.timing = nil; s.setting.timing != nil {
		c.timing = newTiming(s.m)
		c.timing.copy(s.setting.timing)
	}
}

// near reports whether a candidate is no worse than the current one, or slower than the best by at most the
// share slack.
func (x *candidate) near(now, best *candidate, slack float64) bool {
	if x.over != now.over {
		return x.over < now.over
	}
	return x.time < now.time || x.time == now.time && x.cost <= now.cost ||
		slack > 0 && float64(x.time) < float64(best.time)*(1+slack)
}
