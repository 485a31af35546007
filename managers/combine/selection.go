package combine

import (
	"cmp"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// A selection is what the planners of this package build up: for each idle interval of a buffer, whether the
// buffer is kept, swapped, dropped and recomputed, or discarded because nobody reads it again; the resulting
// positions; and the effect of all of that on the load curve and on the link.
//
// The load counts a swapped buffer as away between its release (when its copy out is done by the reservation
// of lanes) and its fetch (when its copy back must be issued), a recomputed one between its two accesses, and
// the scratch of a chain at the op before which it runs. Scratch is an estimate until the decisions are
// assembled: a later drop can make an earlier chain longer.

// choice is what becomes of an idle interval.
type choice uint8

const (
	keep choice = iota
	swap
	recompute
	discard
)

// selection is the state of one choice of absences.
type selection struct {
	choices
	reruns
	at     *profile
	lanes  *lanes
	missed []bool // of each gap: the timetable could not hide its swap
	order  []int32
}

// newSelection returns a selection that keeps everything.
func newSelection(v *view, at *profile) *selection {
	s := &selection{choices: newChoices(v), at: at, lanes: newLanes(at), missed: make([]bool, len(v.gaps))}
	s.reruns = newReruns(&s.choices, v.chains, at)
	return s
}

// reset keeps everything again.
func (s *selection) reset(limit int64) {
	s.choices.reset(limit)
	s.reruns.reset()
	s.lanes.reset()
	clear(s.missed)
}

// freeTime is Capuchin's FT: the time between two accesses minus both copies.
func (s *selection) freeTime(g int32) int64 {
	x := &s.gaps[g]
	return s.at.begin[x.Before] - s.at.end[x.After] - s.outTime(g) - s.inTime(g)
}

// hide swaps a gap if the link can carry both copies without delaying compute and if that lowers the load
// where it is too high.
func (s *selection) hide(g int32) bool {
	x := &s.gaps[g]
	release, ok := s.lanes.out(x.After, x.Before, s.outTime(g))
	if !ok || s.missed[g] || !s.pinnable(g) {
		return false
	}
	fetch, ok := s.lanes.in(x.Before, release, s.inTime(g))
	if !ok || fetch < release || !s.helps(release, fetch) {
		return false
	}
	s.why[g] = "both copies hide behind compute"
	s.swap(g, release, fetch)
	return true
}

// swap swaps a gap between two positions, and reserves the link for it.
func (s *selection) swap(g int32, release, fetch plan.OpID) {
	x := &s.gaps[g]
	s.lanes.takeOut(x.After, s.outTime(g))
	s.lanes.takeIn(x.Before, s.inTime(g))
	if s.pinned != nil {
		s.pinned.Add(int(x.After), int(x.Before)+1, s.size(g))
	}
	s.leave(g, swap, release, fetch)
}

// exposure is how long compute would wait if the gap were swapped for all of its length, as far as the
// reservations tell.
func (s *selection) exposure(g int32) int64 {
	x := &s.gaps[g]
	out, in := s.outTime(g), s.inTime(g)
	var waits int64
	if release, ok := s.lanes.out(x.After, x.Before, out); ok {
		waits += min(out, s.at.reach[release]-s.at.reach[x.After+1])
	} else {
		waits += out
	}
	if fetch, ok := s.lanes.in(x.Before, x.After+1, in); ok {
		waits += min(in, s.at.begin[x.Before]-s.at.reach[fetch])
	} else {
		waits += in
	}
	return max(waits, 0)
}

// stretch makes swapped buffers leave earlier and return later, at the price of stalls, where the load is
// still too high.
func (s *selection) stretch() {
	for g := range s.gaps {
		if s.how[g] != swap {
			continue
		}
		x, release, fetch := &s.gaps[g], s.release[g], s.fetch[g]
		if at := s.tree.First(int(x.After)+1, int(release), s.limit); at >= 0 {
			release = plan.OpID(at)
		}
		if at := s.tree.Last(int(fetch), int(x.Before), s.limit); at >= 0 {
			fetch = plan.OpID(at) + 1
		}
		if release < s.release[g] || fetch > s.fetch[g] {
			s.move(int32(g), release, fetch)
		}
	}
}

// hidden swaps gaps of those given that the link can carry for nothing, those that come first first, until
// the limit holds.
func (s *selection) hidden(order []int32) {
	for range 3 {
		chosen := false
		for _, g := range order {
			if s.fits() {
				break
			}
			if s.how[g] == keep && !s.gaps[g].Dead && s.freeTime(g) >= 0 && s.hide(g) {
				chosen = true
			}
		}
		if !chosen || s.settle() {
			return
		}
	}
}

// settle gives the swaps chosen the positions of the timetable, keeps those that it cannot hide, and reports
// whether the limit holds.
func (s *selection) settle() bool {
	for {
		swaps := s.order[:0]
		for g := range s.gaps {
			if s.how[g] == swap {
				s.stay(int32(g))
				swaps = append(swaps, int32(g))
			}
		}
		s.order = swaps
		s.timetable(swaps)
		s.lanes.reset()
		s.unpin()
		short := false
		for _, g := range swaps {
			if s.fetch[g] <= s.release[g] {
				short = true
				s.missed[g] = true
				continue
			}
			s.swap(g, s.release[g], s.fetch[g])
		}
		if !short {
			return s.fits()
		}
	}
}

// discards drops what is overwritten before anybody reads it, where the load is too high: that costs nothing.
func (s *selection) discards(order []int32) {
	for _, g := range order {
		if x := &s.gaps[g]; x.Dead && s.how[g] == keep && s.helps(x.After+1, x.Before) {
			s.why[g] = "overwritten before it is read"
			s.leave(g, discard, x.After+1, x.Before)
		}
	}
}

// byFreeTime orders the gaps where the load is too high, the longest free time first.
func (s *selection) byFreeTime() []int32 {
	order := make([]int32, 0, len(s.gaps))
	free := make([]int64, len(s.gaps))
	for g := range s.gaps {
		if s.helps(s.gaps[g].After+1, s.gaps[g].Before) {
			order = append(order, int32(g))
			free[g] = s.freeTime(int32(g))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(free[b], free[a]), cmp.Compare(s.size(b), s.size(a)), cmp.Compare(a, b))
	})
	return order
}

// rate is bytes saved per nanosecond of overhead; what costs nothing comes first.
func rate(bytes, overhead int64) float64 {
	if overhead <= 0 {
		return math.Inf(1)
	}
	return float64(bytes) / float64(overhead)
}

// decisions returns the choices as decisions, and their peak of live bytes. Gaps that cannot be brought back,
// because what their chains read has been swapped out meanwhile, are kept.
func (s *selection) decisions() (plan.Decisions, int64) {
	var d plan.Decisions
	var drops []chain.Drop
	var dropped []int32
	for g := range s.gaps {
		switch s.how[g] {
		case swap, discard:
			d.Absences = append(d.Absences, s.absence(int32(g)))
		case recompute:
			drops = append(drops, chain.Drop{Gap: s.gaps[g], Release: s.release[g], Fetch: s.fetch[g],
				Why: s.why[g]})
			dropped = append(dropped, int32(g))
		}
	}
	made, kept := s.chains.PlanPossible(drops, d.Absences, s.longest)
	if len(kept) < len(drops) {
		for _, g := range dropped {
			if len(kept) > 0 && kept[0].Buffer == s.gaps[g].Buffer && kept[0].After == s.gaps[g].After {
				kept = kept[1:]
			} else {
				s.stay(g)
			}
		}
	}
	d.Absences, d.Reruns = append(d.Absences, made.Absences...), made.Reruns
	// Copies issued at one position run in this order: the one needed first comes first.
	slices.SortStableFunc(d.Absences, func(x, y plan.Absence) int { return cmp.Compare(x.Before, y.Before) })
	return d, s.chains.PeakLive(d.Absences, d.Reruns)
}
