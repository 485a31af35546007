package joint

// change is one changed choice and its previous value.
type change struct {
	index int32 // of a gap, or of an op plus the number of gaps
	was   uint8
}

// changes changes choices and positions of a view's schedule, and can undo them.
type changes struct {
	v    *view
	list []int32 // gaps whose choice can change
	// what the last move changed
	undone  []change
	retimed []timed
	lead    float64
	hasten  bool
}

// begin begins a move.
func (w *changes) begin() {
	set := &w.v.schedule.setting
	w.undone, w.retimed, w.lead, w.hasten = w.undone[:0], w.retimed[:0], set.lead, set.hasten
}

// flip changes the choice of a gap.
func (w *changes) flip(g int32, to choice) {
	if s := w.v.schedule; s.setting.choice[g] != to {
		w.undone = append(w.undone, change{g, uint8(s.setting.choice[g])})
		s.setting.choice[g] = to
	}
}

// vary changes the variant of an op.
func (w *changes) vary(op int32, to uint8) {
	if set := &w.v.schedule.setting; set.way[op] != to {
		w.undone = append(w.undone, change{int32(len(w.v.m.gaps)) + op, set.way[op]})
		set.setWay(int(op), to)
	}
}

// retiming records the positions of a gap that is about to change, and returns those of all gaps.
func (w *changes) retiming(g int32) *timing {
	n := w.v.schedule.setting.timing
	w.retimed = append(w.retimed, n.of(g))
	return n
}

// undo reverts the last move.
func (w *changes) undo() {
	s := w.v.schedule
	for k := len(w.undone) - 1; k >= 0; k-- {
		if u := w.undone[k]; int(u.index) < len(w.v.m.gaps) {
			s.setting.choice[u.index] = choice(u.was)
		} else {
			s.setting.setWay(int(u.index)-len(w.v.m.gaps), u.was)
		}
	}
	s.setting.lead, s.setting.hasten = w.lead, w.hasten
	for k := len(w.retimed) - 1; k >= 0; k-- {
		s.setting.timing.restore(w.retimed[k])
	}
}
