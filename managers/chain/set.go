package chain

import "github.com/gmemtop/gmemtop/managers/plan"

// Set records which buffers are out of memory when: the absences that a planner has decided on, or is
// considering. A buffer has few absences, so each has a short list of them.
type Set struct {
	head []int32 // of each buffer, its first stay away; 0 for none
	stay []stay  // entry 0 is unused
	idle int32   // the first entry to use again
	used []plan.BufferID
}

type stay struct {
	release, fetch, back plan.OpID
	how                  plan.How
	next                 int32
}

// NewSet returns an empty set.
func (b *Builder) NewSet() *Set {
	return &Set{head: make([]int32, len(b.p.Buffers)), stay: make([]stay, 1, 64)}
}

// Add puts an absence into the set. Two absences of one buffer that overlap are the caller's mistake, which
// [plan.Assemble] finds.
func (s *Set) Add(x plan.Absence) {
	i := s.idle
	if i != 0 {
		s.idle = s.stay[i].next
	} else {
		i = int32(len(s.stay))
		s.stay = append(s.stay, stay{})
	}
	if s.head[x.Buffer] == 0 {
		s.used = append(s.used, x.Buffer)
	}
	s.stay[i] = stay{release: x.Release, fetch: x.Fetch, back: x.Before, how: x.How, next: s.head[x.Buffer]}
	s.head[x.Buffer] = i
}

// AddGap puts the absence of a buffer throughout a gap into the set.
func (s *Set) AddGap(g plan.Gap, how plan.How) {
	s.Add(plan.Absence{Buffer: g.Buffer, After: g.After, Before: g.Before, Release: g.After + 1,
		Fetch: g.Before, How: how})
}

// Remove takes the absence that releases the buffer at that position out of the set, and reports whether
// there was one.
func (s *Set) Remove(buffer plan.BufferID, release plan.OpID) bool {
	for at := &s.head[buffer]; *at != 0; at = &s.stay[*at].next {
		if i := *at; s.stay[i].release == release {
			*at = s.stay[i].next
			s.stay[i].next, s.idle = s.idle, i
			return true
		}
	}
	return false
}

// Reset empties the set.
func (s *Set) Reset() {
	for _, b := range s.used {
		s.head[b] = 0
	}
	s.stay, s.used, s.idle = s.stay[:1], s.used[:0], 0
}

// Away reports whether an absence has the buffer out of memory when a rerun at position x begins.
func (s *Set) Away(buffer plan.BufferID, x plan.OpID) bool { return s.state(buffer, x) != present }

// state is how a buffer finds itself when a rerun begins.
type state uint8

const (
	present state = iota
	absent
	garbage // its memory is there, to be overwritten by the next op
	blocked // its memory is there and an earlier rerun may have written to it
)

func (s *Set) state(buffer plan.BufferID, x plan.OpID) state {
	for i := s.head[buffer]; i != 0; i = s.stay[i].next {
		switch t := &s.stay[i]; {
		case x < t.release || x > t.back:
		case x < t.fetch || x == t.fetch && t.how == plan.Recompute:
			return absent
		case t.how == plan.Discard && t.fetch == t.back:
			return garbage
		case t.how == plan.Discard:
			return blocked
		}
	}
	return present
}
