package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// Moves for when values leave, and when they are made again.
//
// The problem: by default what is absent leaves at once, is made again when it is needed, and a chain retains
// of its results what memory allows, those needed soonest first. That is not always the best. In little
// memory a sweep should leave checkpoints far apart, and the sweeps between them others, as rotor has it. A
// chain may have to run earlier than its result is needed, while its input is still there; or the input
// leaves late, behind a chain that reads it; or it comes back from the host for one op. No single choice
// leads to any of these.
//
// Way chosen: each gap has three positions beside its choice (timing), which moves change, alone or together
// for a chain and what it reads. A plan of another manager gives them to begin with. Only the search from
// plans does this (seeds.go). The exact search of the tests showed which of these were missing.
//
// Complexity: a schedule for each try, as for other moves. Rejected: the number of sweeps that a value stays
// for instead of a position: when chains before it change, its meaning does.

// timing are the positions of each gap.
type timing struct {
	leave  []plan.OpID // the first at which its value may be gone
	remake []plan.OpID // where the value is made again at the latest
	retain []plan.OpID // the first at which a chain may retain the value, 0 for any
}

// newTiming returns the positions that gaps have by default.
func newTiming(m *model) *timing {
	n := &timing{
		leave:  make([]plan.OpID, len(m.gaps)),
		remake: make([]plan.OpID, len(m.gaps)),
		retain: make([]plan.OpID, len(m.gaps)),
	}
	for g := range m.gaps {
		n.leave[g], n.remake[g] = m.gaps[g].after+1, m.gaps[g].before
	}
	return n
}

// copy takes over all positions of another.
func (n *timing) copy(of *timing) {
	copy(n.leave, of.leave)
	copy(n.remake, of.remake)
	copy(n.retain, of.retain)
}

// timed is what a gap's positions were.
type timed struct {
	gap                   int32
	leave, remake, retain plan.OpID
}

// restore gives a gap its positions back.
func (n *timing) restore(to timed) {
	n.leave[to.gap], n.remake[to.gap], n.retain[to.gap] = to.leave, to.remake, to.retain
}

// retime tries a move of positions, and reports whether it found one.
func (w *moves) retime() bool {
	v := w.v
	if len(w.list) == 0 || v.off.recompute {
		return false
	}
	g := w.list[v.rnd.IntN(len(w.list))]
	if x := &v.m.gaps[g]; !x.canRecompute {
		if !x.producersRerun || v.rnd.IntN(3) == 0 {
			return w.stay(g)
		}
		return w.runEarlier(g) && (v.rnd.IntN(2) == 0 || w.inputsStay(g))
	}
	mix := &v.finder.params.retimings
	switch kind := v.rnd.IntN(16); {
	case kind < mix.fromHost && !v.off.swap:
		return w.fromHost(g)
	case kind < mix.earlier:
		return w.runEarlier(g)
	case kind < mix.inputsStay:
		return w.inputsStay(g)
	case kind < mix.earlierAndStay:
		return w.runEarlier(g) && w.inputsStay(g)
	case kind < mix.stay:
		return w.stay(g)
	}
	return w.retainFrom(g)
}

// retiming remembers the positions of a gap that is about to get others, and returns those of all.
func (w *moves) retiming(g int32) *timing {
	n := w.v.schedule.setting.timing
	w.retimed = append(w.retimed, timed{g, n.leave[g], n.remake[g], n.retain[g]})
	return n
}

// retainFrom gives a recomputed gap another position from which on it is retained.
func (w *moves) retainFrom(g int32) bool {
	v := w.v
	s, x := v.schedule, &v.m.gaps[g]
	to := plan.OpID(0)
	switch reruns := s.chains.reruns; {
	case len(reruns) > 0 && v.rnd.IntN(4) > 0:
		if to = reruns[v.rnd.IntN(len(reruns))].at; to <= x.after || x.before < to {
			return false
		}
	case v.rnd.IntN(2) == 0:
		to = x.before
	}
	if s.setting.choice[g] == recompute && s.setting.timing.retain[g] == to {
		return false
	}
	w.flip(g, recompute)
	w.retiming(g).retain[g] = to
	return true
}

// fromHost recomputes a gap from inputs that come back from the host.
func (w *moves) fromHost(g int32) bool {
	s := w.v.schedule
	w.flip(g, recompute)
	w.inputs(g, s.setting.timing.remake[g], func(h int32) {
		if w.v.m.gaps[h].canSwap && s.setting.choice[h] == recompute {
			w.flip(h, swap)
		}
	})
	return len(w.undone) > 0
}

// inputs calls do for each gap in which something lies at a position that what makes gap g reads.
func (w *moves) inputs(g int32, at plan.OpID, do func(h int32)) {
	m := w.v.m
	for _, o := range m.producers.of(g) {
		for _, a := range m.p.AccessesOf(o) {
			if h := m.gapOf(a.Buffer, at); a.Mode.Reads() && h >= 0 && h != g {
				do(h)
			}
		}
	}
}

// runEarlier makes a gap's value again before an op that reads what it is made from, while compute waits
// anyway, or when it is needed.
func (w *moves) runEarlier(g int32) bool {
	v, m := w.v, w.v.m
	x := &m.gaps[g]
	to, seen := x.before, 1
	if !x.canRecompute { // when it is needed is too late
		seen = 0
	}
	switch v.rnd.IntN(4) {
	case 0: // or anywhere, so that it is copied out earlier
		to, seen = x.after+1+plan.OpID(v.rnd.IntN(int(x.before-x.after))), seen+1
	case 1: // or where compute waits for something else
		for at := x.after + 1; at < x.before; at++ {
			if v.schedule.queues.wait[at] > 0 {
				if seen++; v.rnd.IntN(seen) == 0 {
					to = at
				}
			}
		}
	}
	for _, o := range m.producers.of(g) {
		for _, a := range m.p.AccessesOf(o) {
			if !a.Mode.Reads() {
				continue
			}
			for _, t := range m.p.TouchesOf(a.Buffer) {
				if x.after < t.Op && t.Op < x.before {
					if seen++; v.rnd.IntN(seen) == 0 {
						to = t.Op
					}
				}
			}
		}
	}
	if to == x.before && seen == 1 || !x.canRunAgain(to) ||
		v.schedule.setting.choice[g] == recompute && v.schedule.setting.timing.remake[g] == to {
		return false
	}
	w.flip(g, recompute)
	w.retiming(g).remake[g] = to
	return true
}

// inputsStay recomputes a gap, and has what that reads stay until then.
func (w *moves) inputsStay(g int32) bool {
	s := w.v.schedule
	w.flip(g, recompute)
	at := s.setting.timing.remake[g]
	w.inputs(g, at, func(h int32) {
		if x := &w.v.m.gaps[h]; s.setting.choice[h] != keep && at < x.before {
			w.retiming(h).leave[h] = at + 1
		}
	})
	return len(w.undone)+len(w.retimed) > 0
}

// stay has a gap's value leave behind some chain, or at once.
func (w *moves) stay(g int32) bool {
	v := w.v
	x, n := &v.m.gaps[g], v.schedule.setting.timing
	to := x.after + 1
	if reruns := v.schedule.chains.reruns; len(reruns) > 0 && v.rnd.IntN(3) > 0 {
		to = reruns[v.rnd.IntN(len(reruns))].at + 1
	}
	if v.schedule.setting.choice[g] == keep || to <= x.after || x.before <= to || n.leave[g] == to {
		return false
	}
	w.retiming(g).leave[g] = to
	return true
}

// canRunAgain reports whether what makes a gap's value may be run again before op at: when the value is
// needed, only if that is possible whatever else is absent; earlier, if its ops can run again at all.
func (x *gap) canRunAgain(at plan.OpID) bool {
	return x.canRecompute || x.producersRerun && at < x.before
}
