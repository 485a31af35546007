package combine

import (
	"math/rand/v2"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
)

func TestTheFilterPicksWhatAScanWouldPick(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := plantest.Random(5, 80)
	v, err := look(p, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := newOnline(v, 1, delta{})
	in := map[plan.BufferID]bool{}
	for range 3000 {
		o.now += int64(r.IntN(1000))
		b := plan.BufferID(r.IntN(len(p.Buffers)))
		if p.Buffers[b].Life == plan.Persistent {
			continue
		}
		if in[b] = r.IntN(3) > 0; in[b] {
			o.used[b] = o.now
			o.lists.append(b)
		} else {
			o.lists.remove(b)
		}
		o.lock[r.IntN(len(p.Buffers))] = 8 // op 7 needs it
		var most float64
		for b, ok := range in {
			if ok && o.lock[b] != 8 {
				most = max(most, float64(p.Rounded(b))*float64(o.now-o.used[b]+1))
			}
		}
		var got float64
		if b := o.filter(7); b != plan.NoBuffer {
			got = float64(p.Rounded(b)) * float64(o.now-o.used[b]+1)
		}
		if got != most {
			t.Fatalf("the filter picks %.0f byte-ns, the best is %.0f", got, most)
		}
		if r.IntN(50) == 0 {
			clear(o.lock)
		}
	}
}

func TestTheTimetableNeverRunsTwoCopiesOfOneDirectionAtOnce(t *testing.T) {
	for seed := range uint64(60) {
		p := plantest.Random(seed, 60)
		v, err := look(p, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		at, _, err := measure(t.Context(), p, nil, plan.Decisions{})
		if err != nil {
			t.Fatal(err)
		}
		s := newSelection(v, at)
		var swaps []int32
		for g := range s.gaps {
			if !s.gaps[g].Dead {
				swaps = append(swaps, int32(g))
			}
		}
		s.timetable(swaps)
		// All copies out that are done by a position, and are not cut off by their own return, fit into the
		// time up to it.
		for _, g := range swaps {
			if s.release[g] == s.gaps[g].Before {
				continue
			}
			var work int64
			for _, h := range swaps {
				if s.gaps[h].After >= s.gaps[g].After && s.release[h] <= s.release[g] &&
					s.release[h] < s.gaps[h].Before {
					work += s.outTime(h)
				}
			}
			if room := at.reach[s.release[g]] - at.reach[s.gaps[g].After+1]; work > room {
				t.Fatalf("seed %d: %d ns of copies in %d ns", seed, work, room)
			}
		}
	}
}

func TestTheFastestVariantThatFitsIsTaken(t *testing.T) {
	p := plantest.Chain(2, 1, 1)
	variants := []plan.Variant{{Duration: 10, Workspace: 100}, {Duration: 30, Workspace: 0},
		{Duration: 20, Workspace: 50}, {Duration: 5, Workspace: 200}}
	for _, c := range []struct {
		room int64
		want int
	}{{300, 0}, {100, 0}, {99, 2}, {50, 2}, {49, 1}, {0, 1}, {-5, 1}} {
		if got := fastest(p, variants, c.room); got != c.want {
			t.Errorf("in %d bytes variant %d, not %d", c.room, c.want, got)
		}
	}
}
