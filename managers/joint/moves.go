package joint

import "slices"

// change is one choice undone.
type change struct {
	index int32 // of a gap; behind the gaps, of an op
	was   uint8
}

// moves change a few choices of a schedule at a time, where limits press at all, and take them back.
type moves struct {
	v        *view
	list     []int32 // gaps that can be treated in another way
	byBefore []int32 // the same, in order of when they are needed again
	slower   []int32 // of model.slower, ops that have another way
	undone   []change
	moved    []moved
	lead     float64
}

// moves lists what can be changed; ok is false where nothing can.
func (v *view) moves() (w moves, ok bool) {
	m := v.m
	w.v = v
	for _, g := range m.choices {
		x := &m.gaps[g]
		pressed := v.cover.sum[x.before] > v.cover.sum[x.after+1] || v.schedule.setting.nest != nil
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
	return w, len(w.list)+len(w.slower) > 0
}

func (w *moves) flip(g int32, to choice) {
	if s := w.v.schedule; s.setting.choice[g] != to {
		w.undone = append(w.undone, change{g, uint8(s.setting.choice[g])})
		s.setting.choice[g] = to
	}
}

// random changes something at random.
func (w *moves) random() {
	v, s, m := w.v, w.v.schedule, w.v.m
	list := w.list
	w.undone, w.lead = w.undone[:0], s.setting.lead
	w.moved = w.moved[:0]
	if s.setting.nest != nil && v.rnd.IntN(3) == 0 && w.nest() {
		return
	}
	mix := &v.finder.params.moves
	switch kind := v.rnd.IntN(16); {
	case len(list) == 0 || kind < mix[0] && len(w.slower) > 0:
		x := &m.variants[w.slower[v.rnd.IntN(len(w.slower))]]
		w.undone = append(w.undone, change{int32(len(m.gaps)) + x.op, s.setting.way[x.op]})
		if s.setting.way[x.op] == x.index {
			s.setting.setWay(int(x.op), m.fast[x.op])
		} else {
			s.setting.setWay(int(x.op), x.index)
		}
	case mix[0] <= kind && kind < mix[1]:
		s.setting.lead = float64(v.rnd.IntN(5)) / 4
	case kind < mix[2]: // one alone
		g := list[v.rnd.IntN(len(list))]
		w.flip(g, v.other(g))
	case kind < mix[3]: // one that compute waits for
		g := v.waited(list)
		w.flip(g, v.other(g))
	case kind < mix[4]: // neighbours in time alike
		n := 2 + v.rnd.IntN(8<<v.rnd.IntN(4))
		from := v.rnd.IntN(len(w.byBefore))
		to := v.other(w.byBefore[from])
		for _, g := range w.byBefore[from:min(from+n, len(w.byBefore))] {
			if x := &m.gaps[g]; to == keep || to == swap && x.canSwap || to == recompute && x.canRecompute {
				w.flip(g, to)
			}
		}
	default: // one comes, one goes
		g, h := list[v.rnd.IntN(len(list))], list[v.rnd.IntN(len(list))]
		for range 20 {
			if (s.setting.choice[h] == keep) != (s.setting.choice[g] == keep) {
				break
			}
			h = list[v.rnd.IntN(len(list))]
		}
		if s.setting.choice[g] == keep {
			g, h = h, g
		}
		w.flip(g, keep)
		if h != g {
			w.flip(h, v.other(h))
		}
	}
}

// undo undoes the last change.
func (w *moves) undo() {
	s := w.v.schedule
	for k := len(w.undone) - 1; k >= 0; k-- {
		if u := w.undone[k]; int(u.index) < len(w.v.m.gaps) {
			s.setting.choice[u.index] = choice(u.was)
		} else {
			s.setting.setWay(int(u.index)-len(w.v.m.gaps), u.was)
		}
	}
	s.setting.lead = w.lead
	for k := len(w.moved) - 1; k >= 0; k-- {
		s.setting.nest.set(w.moved[k])
	}
}

// waited returns a gap whose copies some op of the last schedule waits for, or any gap where none waits.
func (v *view) waited(list []int32) int32 {
	s, m := v.schedule, v.m
	if s.queues.stall > 0 && len(s.prefetches.order) > 0 {
		left := v.rnd.Int64N(s.queues.stall)
		for i := range m.n {
			if left -= s.queues.wait[i]; left < 0 {
				// A copy back that is due about here, or one that left before.
				for range 8 {
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

// other returns another way of treating gap g.
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
	for range 8 {
		if w := ways[v.rnd.IntN(n)]; w != v.schedule.setting.choice[g] {
			return w
		}
	}
	return keep
}
