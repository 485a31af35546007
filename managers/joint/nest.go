package joint

import "github.com/gmemtop/gmemtop/managers/plan"

// Moves for chains that run again in several sweeps.
//
// The problem: by default a chain retains of its results what memory allows, those needed soonest first. In
// little memory that is the wrong choice: a sweep should leave checkpoints far apart, and the sweeps between
// them others, as rotor has it. And a long chain can be cut short by bringing its input back from the host
// for one op, which no single choice leads to: the input's copy alone costs time, the op alone has no input.
//
// Way chosen: each gap has a first position from which on a chain may retain its value, 0 for any chain. A
// plan of another manager gives them to begin with; a move gives one gap another, from among the positions at
// which something runs again. A second move makes a gap's value again from inputs that come back from the
// host. Only the search from other plans does this (seeds.go).
//
// Complexity: a schedule for each try, as for other moves. Rejected: the number of sweeps that a value stays
// for instead of a position: when chains before it change, its meaning does.

// moved is a change of a gap's first position.
type moved struct {
	gap int32
	was plan.OpID
}

// nest tries a move for chains, and reports whether it found one.
func (w *moves) nest() bool {
	v := w.v
	if len(w.list) == 0 || v.off.recompute {
		return false
	}
	g := w.list[v.rnd.IntN(len(w.list))]
	if !v.m.gaps[g].canRecompute {
		return false
	}
	if v.rnd.IntN(4) == 0 && !v.off.swap {
		return w.fromHost(g)
	}
	return w.retainFrom(g)
}

// retainFrom gives a recomputed gap another first position.
func (w *moves) retainFrom(g int32) bool {
	v := w.v
	s, x := v.s, &v.m.gaps[g]
	to := plan.OpID(0)
	switch reruns := s.chains.reruns; {
	case len(reruns) > 0 && v.rnd.IntN(4) > 0:
		if to = reruns[v.rnd.IntN(len(reruns))].at; to <= x.after || x.before < to {
			return false
		}
	case v.rnd.IntN(2) == 0:
		to = x.before
	}
	if s.setting.choice[g] == recompute && s.setting.from[g] == to {
		return false
	}
	w.flip(g, recompute)
	w.moved = append(w.moved, moved{g, s.setting.from[g]})
	s.setting.from[g] = to
	return true
}

// fromHost recomputes a gap from inputs that come back from the host.
func (w *moves) fromHost(g int32) bool {
	m, s := w.v.m, w.v.s
	at := m.gaps[g].before
	w.flip(g, recompute)
	for _, o := range m.producer[m.producerAt[g]:m.producerAt[g+1]] {
		for _, a := range m.p.AccessesOf(o) {
			if !a.Mode.Reads() {
				continue
			}
			h := m.gapOf(a.Buffer, at)
			if h >= 0 && h != g && m.gaps[h].canSwap && s.setting.choice[h] == recompute {
				w.flip(h, swap)
			}
		}
	}
	return len(w.undone) > 0
}
