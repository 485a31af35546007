package joint

import (
	"cmp"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// rerunAll places a rerun before every op that needs something dropped and not yet back, in order of time.
func (s *schedule) rerunAll() {
	m := s.m
	for k := 0; k < len(m.byBefore); {
		at := m.gaps[m.byBefore[k]].before
		s.targets = s.targets[:0]
		for ; k < len(m.byBefore) && m.gaps[m.byBefore[k]].before == at; k++ {
			if g := m.byBefore[k]; s.eff[g] == drop && s.fetch[g] == at {
				s.targets = append(s.targets, g)
			}
		}
		if len(s.targets) > 0 {
			s.rerunAt(at)
		}
	}
}

// rerunAt brings the targets back before op at. A target whose chain cannot be run is kept after all.
func (s *schedule) rerunAt(at plan.OpID) {
	from := int32(len(s.ops))
	s.stamp++
	s.pulls = s.pulls[:0]
	for _, g := range s.targets {
		size, pulls := len(s.ops), len(s.pulls)
		if !s.chain(s.m.gaps[g].buffer, at, from) {
			for _, o := range s.ops[size:] {
				s.opMark[o] = 0
			}
			s.ops, s.pulls = s.ops[:size], s.pulls[:pulls]
			s.instead(g)
		}
	}
	if int32(len(s.ops)) == from {
		return
	}
	for k, g := range s.pulls { // what a chain reads and was to come back later comes back in time for it
		if s.due[g] <= at {
			s.pulls[k] = -1 // twice in the list
			continue
		}
		s.put(s.m.gaps[g].size, at, s.due[g])
		s.due[g], s.fetch[g] = at, at
	}
	chain := s.ops[from:]
	slices.Sort(chain)
	s.keepMade(at, chain)
	for {
		s.spare[at] = s.chainPeak(at, chain)
		if s.spare[at] <= s.limit[at] || len(s.keeps) == 0 {
			break
		}
		g := s.keeps[len(s.keeps)-1] // the one needed last goes again
		s.keeps = s.keeps[:len(s.keeps)-1]
		x := &s.m.gaps[g]
		s.add(-x.size, at, x.before)
		s.fetch[g] = x.before
	}
	if s.spare[at] > s.limit[at] && s.swapInstead(at, from) {
		return
	}
	s.reruns = append(s.reruns, rerun{at, from, int32(len(s.ops))})
	for _, o := range chain {
		s.redo[at] += s.dur[o] + s.m.p.Hardware.AgainTime
	}
}

// swapInstead gives up a rerun that needs more memory than there is, where all that it was to bring back can be swapped.
func (s *schedule) swapInstead(at plan.OpID, from int32) bool {
	if s.noSwap {
		return false
	}
	for _, g := range s.targets {
		if !s.m.gaps[g].canSwap {
			return false
		}
	}
	for _, g := range s.pulls {
		if g >= 0 {
			x := &s.m.gaps[g]
			s.put(-x.size, at, x.before)
			s.due[g], s.fetch[g] = x.before, x.before
		}
	}
	for _, g := range s.targets {
		if s.eff[g] == drop {
			s.eff[g] = swap
		}
	}
	s.ops, s.spare[at] = s.ops[:from], 0
	return true
}

// instead treats gap g, whose chain cannot be run, in another way: swapped where it can be, else kept after all.
func (s *schedule) instead(g int32) {
	x := &s.m.gaps[g]
	if x.canSwap && !s.noSwap {
		s.eff[g] = swap
		return
	}
	s.eff[g] = keep
	s.add(x.size, x.after+1, x.before)
}

// chain adds to the rerun at position at the ops that make the value which b holds there. Its ops begin at from.
func (s *schedule) chain(b plan.BufferID, at plan.OpID, from int32) bool {
	p := s.m.p
	s.stack = append(s.stack[:0], need{b, at})
	for len(s.stack) > 0 {
		w := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		touches := s.m.writesOf(w.buffer)
		buf := &p.Buffers[w.buffer]
		again := buf.Life == plan.Carried && w.at >= buf.Start // its value is of this iteration
		k, _ := slices.BinarySearchFunc(touches, w.at, func(t plan.Touch, at plan.OpID) int { return cmp.Compare(t.Op, at) })
		found := false
		for k--; k >= 0 && !found; k-- {
			t := touches[k]
			if again && t.Op < buf.Start || t.Mode == plan.Use {
				return false
			}
			found = t.Mode == plan.Write
			if s.opMark[t.Op] == s.stamp {
				continue
			}
			if !p.Ops[t.Op].Rerunnable || len(s.ops)-int(from) >= s.m.set.longestChain || s.looked > s.m.set.mostLooked*s.m.n {
				return false
			}
			s.opMark[t.Op] = s.stamp
			s.looked++
			s.ops = append(s.ops, t.Op)
			if !s.reads(t.Op, at) {
				return false
			}
		}
		if !found {
			return false
		}
	}
	return true
}

// reads asks for what op o reads if it runs again before op at, and checks that it overwrites nothing that is there.
func (s *schedule) reads(o, at plan.OpID) bool {
	p := s.m.p
	s.steps += 4 * int64(len(p.AccessesOf(o)))
	for _, a := range p.AccessesOf(o) {
		there, g := s.present(a.Buffer, at)
		if !there && g >= 0 && s.eff[g] == swap { // made again as scratch, unless pulled: its first stay must be over
			s.gone[g] = min(s.gone[g], at)
		}
		switch {
		case there && a.Mode == plan.Read:
			if s.writtenIn(a.Buffer, o, at) {
				return false
			}
		case there && a.Mode == plan.Write:
			if s.writtenIn(a.Buffer, o+1, at) {
				return false
			}
		case there:
			return false
		case !a.Mode.Reads():
		case g >= 0 && s.eff[g] == swap && !s.writtenIn(a.Buffer, o, at) && a.Mode == plan.Read && s.fits(s.m.gaps[g].size, at, s.due[g]):
			s.pulls = append(s.pulls, g)
		default:
			s.stack = append(s.stack, need{a.Buffer, o})
		}
	}
	return true
}

// keepMade decides what of a chain's results stays for its own use: what is dropped, has its value, and fits until then.
func (s *schedule) keepMade(at plan.OpID, chain []plan.OpID) {
	m, p := s.m, s.m.p
	s.keeps = s.keeps[:0]
	for _, o := range chain {
		for _, a := range p.AccessesOf(o) {
			if !a.Mode.Writes() {
				continue
			}
			there, g := s.present(a.Buffer, at)
			if there || g < 0 || s.eff[g] != drop || m.gaps[g].before == at || m.gaps[g].after+1 >= at || int(m.gaps[g].before-at) > m.set.farthestKeep || s.writtenIn(a.Buffer, o+1, at) {
				continue
			}
			s.keeps = append(s.keeps, g)
		}
	}
	slices.SortFunc(s.keeps, func(a, b int32) int {
		return cmp.Or(cmp.Compare(m.gaps[a].before, m.gaps[b].before), cmp.Compare(a, b))
	})
	s.keeps = slices.Compact(s.keeps)
	kept := s.keeps[:0]
	for _, g := range s.keeps {
		x := &m.gaps[g]
		if s.fits(x.size, at, x.before) {
			s.add(x.size, at, x.before)
			s.fetch[g] = at
			kept = append(kept, g)
		}
	}
	s.keeps = kept
}

// chainPeak returns the most bytes in memory while the chain runs before op at.
func (s *schedule) chainPeak(at plan.OpID, chain []plan.OpID) int64 {
	m, p := s.m, s.m.p
	live := s.load[at] - m.born[at] - (s.work[at] - m.work[at])
	for _, g := range s.targets {
		if s.eff[g] == drop {
			live -= m.gaps[g].size
		}
	}
	for _, g := range s.keeps {
		live -= m.gaps[g].size
	}
	for k, o := range chain {
		for _, a := range p.AccessesOf(o) {
			s.lastUse[a.Buffer] = int32(k)
		}
	}
	s.stamp++ // marks of buffers that the chain has made; those of ops have served
	peak := live
	s.freed = slices.Grow(s.freed[:0], len(chain))[:len(chain)]
	clear(s.freed)
	for k, o := range chain {
		for _, a := range p.AccessesOf(o) {
			if s.useMark[a.Buffer] == s.stamp {
				continue
			}
			there, g := s.present(a.Buffer, at)
			if there {
				continue
			}
			kept := g >= 0 && s.eff[g] == drop && s.fetch[g] == at
			s.useMark[a.Buffer] = s.stamp
			size := p.Rounded(a.Buffer)
			live += size
			if !kept {
				s.freed[s.lastUse[a.Buffer]] += size
			}
		}
		peak = max(peak, live+s.work[o])
		live -= s.freed[k]
	}
	return peak
}
