package pack

import (
	"math/rand/v2"
	"testing"
)

// The search skips states in which it has failed, so its record of a state must distinguish it from every
// other: the stretch, which items remain where, each section's floor, and whether an item makes that floor.
func TestStatesThatDifferHaveHashesThatDiffer(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 14))
	compared := 0
	for seed := range uint64(60) {
		p := largerProblem(12, 4, seed)
		in := compile(p)
		s := newSearcher(newGraph(in), in.bound()*2, allKnobs)
		s.growTable()
		if !s.reset() {
			t.Fatal("no room for any item")
		}
		end := int32(in.sections)
		for t := range end {
			s.sec[t].floor, s.sec[t].real = r.Int64N(4), r.IntN(2) == 0
		}
		is := s.stateHash(0, end)
		differs := func(what string, t1 *testing.T) {
			t1.Helper()
			compared++
			if now := s.stateHash(0, end); now[0] == is[0] || now[1] == is[1] {
				t1.Errorf("seed %d: %s, and the hash is %x as before", seed, what, now)
			}
		}
		for a := range end {
			if s.cnt[a] == 0 {
				continue
			}
			at := &s.sec[a]
			at.floor += 1 << 20
			differs("a floor is higher", t)
			at.floor -= 1 << 20
			at.real = !at.real
			differs("a floor is made by an item, or no longer", t)
			at.real = !at.real
			for b := range a {
				if x := &s.sec[b]; s.cnt[b] > 0 && *x != *at && (x.floor != at.floor || x.real != at.real) {
					x.floor, at.floor, x.real, at.real = at.floor, x.floor, at.real, x.real
					differs("two floors have changed places", t)
					x.floor, at.floor, x.real, at.real = at.floor, x.floor, at.real, x.real
				}
			}
		}
		if s.stateHash(0, end) != is {
			t.Errorf("seed %d: equal states have different hashes", seed)
		}
		if end > 1 && (s.stateHash(0, end-1) == is || s.stateHash(1, end) == is) {
			t.Errorf("seed %d: a shorter stretch has the same hash", seed)
		}
	}
	if compared < 500 {
		t.Errorf("only %d states were compared", compared)
	}
}
