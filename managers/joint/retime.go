package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// Moves that change when values leave, and when they are recomputed.
//
// The problem: by default an absent value leaves at once and is recomputed when it is needed, and a chain
// retains those of its results that memory allows, soonest needed first. That is not always the best. In
// little memory a sweep should leave checkpoints far apart, and the sweeps between them other checkpoints, as
// in rotor. A chain may have to run before its result is needed, while its input is still present; or the
// input leaves late, after a chain that reads it; or it comes back from the host for one op. A small value
// may have room to return before a large one that is needed sooner. No single choice leads to any of these.
//
// The approach: each gap has four positions beside its choice, and the source from which chains get its
// value (timing). Moves change them, individually or together for a chain and its inputs. They start from
// another manager's plan. Only the search from plans does this (seeds.go). The exact search of the tests
// showed which of these moves were missing.
//
// Complexity: a schedule per try, as for other moves. Rejected: the number of sweeps for which a value stays
// instead of a position, because its meaning changes with the chains before it.

// retime tries a move of positions, and reports whether it found one.
func (w *changes) retime() bool {
	v := w.v
	if len(w.list) == 0 || v.off.recompute {
		return false
	}
	g := w.list[v.rnd.IntN(len(w.list))]
	par := &v.task.params
	if v.returns && v.schedule.setting.choice[g] == swap && v.rnd.IntN(par.backOften) == 0 {
		return w.returnEarly(g)
	}
	if x := &v.m.gaps[g]; !x.canRecompute {
		if !x.producersRerun || v.rnd.IntN(par.stayOften) == 0 {
			return w.stay(g)
		}
		return w.runEarlier(g) && (v.rnd.IntN(2) == 0 || w.inputsStay(g))
	}
	mix := &par.retimings
	switch kind := v.rnd.IntN(sixteenths); {
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

// retainFrom changes the position from which a recomputed gap is retained.
func (w *changes) retainFrom(g int32) bool {
	v := w.v
	s, x := v.schedule, &v.m.gaps[g]
	to := plan.OpID(0)
	switch reruns := s.chains.reruns; {
	case len(reruns) > 0 && v.rnd.IntN(v.task.params.retainElsewhere) > 0:
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

// fromHost recomputes a gap from inputs that come back from the host, in one way or another.
func (w *changes) fromHost(g int32) bool {
	s := w.v.schedule
	w.flip(g, recompute)
	from := source(w.v.rnd.IntN(int(sources)))
	w.inputs(g, s.setting.timing.remake[g], func(h int32) {
		if w.v.m.gaps[h].canSwap && s.setting.choice[h] == recompute {
			w.flip(h, swap)
		}
		if s.setting.choice[h] == swap && s.setting.timing.source[h] != from {
			w.retiming(h).source[h] = from
		}
	})
	return len(w.undone)+len(w.retimed) > 0
}

// inputs calls do for each gap, across a position, of a buffer that the producers of gap g read.
func (w *changes) inputs(g int32, at plan.OpID, do func(h int32)) {
	m := w.v.m
	for _, o := range m.producers.of(g) {
		for _, a := range m.p.AccessesOf(o) {
			if h := m.gapOf(a.Buffer, at); a.Mode.Reads() && h >= 0 && h != g {
				do(h)
			}
		}
	}
}

// runEarlier moves the recomputation of a gap's value to an op that reads one of its inputs, to a wait of
// compute, to any position, or to where it is needed.
func (w *changes) runEarlier(g int32) bool {
	v, m := w.v, w.v.m
	x := &m.gaps[g]
	to, seen := x.before, 1
	if !x.canRecompute { // recomputing it only when it is needed is too late
		seen = 0
	}
	switch v.rnd.IntN(v.task.params.earlierElsewhere) {
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

// inputsStay recomputes a gap and keeps its inputs in memory until then.
func (w *changes) inputsStay(g int32) bool {
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

// stay makes a gap's value leave after some chain, or at once.
func (w *changes) stay(g int32) bool {
	v := w.v
	x, n := &v.m.gaps[g], v.schedule.setting.timing
	to := x.after + 1
	if reruns := v.schedule.chains.reruns; len(reruns) > 0 && v.rnd.IntN(v.task.params.leaveElsewhere) > 0 {
		to = reruns[v.rnd.IntN(len(reruns))].at + 1
	}
	if v.schedule.setting.choice[g] == keep || to <= x.after || x.before <= to || n.leave[g] == to {
		return false
	}
	w.retiming(g).leave[g] = to
	return true
}

// returnEarly has a swapped value back before its op needs it. The engine brings values in the order in which
// they are due, so one for which there is room then passes one that still has to wait for memory.
func (w *changes) returnEarly(g int32) bool {
	v := w.v
	n, before := v.schedule.setting.timing, v.m.gaps[g].before
	to := before - plan.OpID(v.rnd.IntN(int(max(before-n.leave[g], 1))))
	if n.back[g] == to {
		return false
	}
	w.retiming(g).back[g] = to
	return true
}
