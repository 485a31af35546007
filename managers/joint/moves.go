package joint

import "slices"

// Moves of the local search: a few choices change at a time, and change back if the result is worse.
//
// Each kind of move reaches what the others miss: one gap alone, or one whose copies compute waits for;
// neighbours in time, since successive copies pay off together or not at all; an exchange of two gaps, where
// there is no room for one more; the variant of an op; how early copies back begin. retime.go has the moves
// of positions, borrow.go takes over stretches of other plans.

// moves changes a few choices of a schedule at a time, where memory is short, and can undo them.
type moves struct {
	changes
	byBefore []int32      // the same, ordered by when they are needed again
	slower   []int32      // indices into model.variants, for ops where limits are exceeded
	lenders  []*candidate // plans to borrow from
}

// moves lists what can be changed; ok is false if nothing can.
func (v *view) moves() (w moves, ok bool) {
	m := v.m
	w.v = v
	for _, g := range m.choices {
		x := &m.gaps[g]
		pressed := v.cover.sum[x.before] > v.cover.sum[x.after+1] || v.schedule.setting.timing != nil
		if pressed && (x.canRecompute && !v.off.recompute || x.canSwap && !v.off.swap) {
			w.list = append(w.list, g)
		}
	}
	for i := range m.variants {
		if o := m.variants[i].op; v.cover.sum[o+1] > v.cover.sum[o] {
			w.slower = append(w.slower, int32(i))
		}
	}
	w.byBefore = slices.Clone(w.list)
	slices.SortStableFunc(
		w.byBefore,
		func(a, b int32) int { return int(m.gaps[a].before) - int(m.gaps[b].before) },
	)
	w.lenders = v.lenders()
	return w, len(w.list)+len(w.slower) > 0
}

// random makes a random move.
func (w *moves) random() {
	v, s, list := w.v, w.v.schedule, w.list
	w.begin()
	par := &v.task.params
	if n := len(w.lenders); n > 0 && v.rnd.IntN(par.borrowOften) == 0 &&
		w.borrow(w.lenders[v.rnd.IntN(n)], w.byBefore, w.slower) {
		return
	}
	if s.setting.timing != nil && v.rnd.IntN(par.retimeOften) == 0 && w.retime() {
		return
	}
	mix := &par.mix
	switch kind := v.rnd.IntN(sixteenths); {
	case len(list) == 0 || kind < mix.variant && len(w.slower) > 0:
		w.variant()
	case mix.variant <= kind && kind < mix.lead:
		k := v.rnd.IntN(2 * par.leads)
		s.setting.lead, s.setting.hasten = float64(k%par.leads)/float64(par.leads-1), k >= par.leads
	case kind < mix.one:
		g := list[v.rnd.IntN(len(list))]
		w.flip(g, v.other(g))
	case kind < mix.waited:
		g := v.waited(list)
		w.flip(g, v.other(g))
	case kind < mix.neighbours:
		w.neighbours()
	default:
		w.exchange()
	}
}

// variant switches an op to another variant, or back to the fastest.
func (w *moves) variant() {
	m := w.v.m
	x := &m.variants[w.slower[w.v.rnd.IntN(len(w.slower))]]
	if w.v.schedule.setting.way[x.op] == x.index {
		w.vary(x.op, m.fast[x.op])
	} else {
		w.vary(x.op, x.index)
	}
}

// neighbours sets two to about sixty successive gaps, in order of their ends, to the same choice.
func (w *moves) neighbours() {
	v := w.v
	par := &v.task.params
	n := 2 + v.rnd.IntN(par.fewNeighbours<<v.rnd.IntN(par.neighbourSizes))
	from := v.rnd.IntN(len(w.byBefore))
	to := v.other(w.byBefore[from])
	for _, g := range w.byBefore[from:min(from+n, len(w.byBefore))] {
		if x := &v.m.gaps[g]; to == keep || to == swap && x.canSwap || to == recompute && x.canRecompute {
			w.flip(g, to)
		}
	}
}

// exchange keeps one gap and makes another absent instead.
func (w *moves) exchange() {
	v, list, choice := w.v, w.list, w.v.schedule.setting.choice
	g, h := list[v.rnd.IntN(len(list))], list[v.rnd.IntN(len(list))]
	for range v.task.params.exchangeTries {
		if (choice[h] == keep) != (choice[g] == keep) {
			break
		}
		h = list[v.rnd.IntN(len(list))]
	}
	if choice[g] == keep {
		g, h = h, g
	}
	w.flip(g, keep)
	if h != g {
		w.flip(h, v.other(h))
	}
}

// waited returns a gap whose copies some op of the last schedule waits for, or a random gap if no op waits.
func (v *view) waited(list []int32) int32 {
	s, m := v.schedule, v.m
	if s.queues.stall > 0 && len(s.prefetches.order) > 0 {
		left := v.rnd.Int64N(s.queues.stall)
		for i := range m.n {
			if left -= s.queues.wait[i]; left < 0 {
				// any swap across this position: due about here, or copied out before
				for range v.task.params.drawTries {
					g := s.prefetches.order[v.rnd.IntN(len(s.prefetches.order))]
					if x := &m.gaps[g]; int(x.after) < i && i <= int(x.before) {
						return g
					}
				}
				break
			}
		}
	}
	return list[v.rnd.IntN(len(list))]
}

// other returns another choice for gap g, at random.
func (v *view) other(g int32) choice {
	x := &v.m.gaps[g]
	ways := [3]choice{keep}
	n := 1
	if x.canSwap && !v.off.swap {
		ways[n] = swap
		n++
	}
	if x.canRecompute && !v.off.recompute {
		ways[n] = recompute
		n++
	}
	for range v.task.params.drawTries {
		if w := ways[v.rnd.IntN(n)]; w != v.schedule.setting.choice[g] {
			return w
		}
	}
	return keep
}
