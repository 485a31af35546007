package joint

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// arbitrary sets random choices, positions and variants, and returns them as a candidate.
func (v *view) arbitrary(r *rand.Rand) *candidate {
	m, set := v.m, &v.schedule.setting
	set.timing = newTiming(m)
	for g := range m.gaps {
		x := &m.gaps[g]
		set.choice[g] = keep
		if x.dead {
			continue
		}
		if k := r.IntN(3); k == 1 && x.canSwap {
			set.choice[g] = swap
		} else if k == 2 && x.canRecompute {
			set.choice[g] = recompute
		}
		set.timing.leave[g] += plan.OpID(r.IntN(2))
		set.timing.source[g] = source(r.IntN(int(sources)))
	}
	for i := range m.variants {
		o := int(m.variants[i].op)
		set.setWay(o, []uint8{m.fast[o], m.variants[i].index}[r.IntN(2)])
	}
	x := v.estimate()
	v.schedule.take(&x)
	return &x
}

// TestAStretchIsBorrowedAsItIsAndGivenBack: within a borrowed stretch every gap has what the other plan has,
// elsewhere nothing changes, and undo restores all of it.
func TestAStretchIsBorrowedAsItIsAndGivenBack(t *testing.T) {
	t.Parallel()
	f, err := newFinder(t.Context(), network(t, "AlexNet"), plan.Request{}, mechanisms{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	v := f.views[0]
	v.applyMargin(v.m.floor, 0)
	v.cover.excess()
	v.rnd = rand.New(rand.NewPCG(1, 2))
	r := rand.New(rand.NewPCG(3, 4))
	set := &v.schedule.setting
	borrowed, varied, elsewhere := 0, 0, 0
	for range 400 {
		other, mine := v.arbitrary(r), v.arbitrary(r)
		v.schedule.choose(mine)
		w, _ := v.moves()
		w.begin()
		if !w.borrow(other, w.byBefore, w.slower) {
			continue
		}
		flipped := map[int32]bool{}
		for _, u := range w.undone {
			flipped[u.index] = true
			if k := int(u.index) - len(v.m.gaps); k >= 0 {
				varied++
				if set.way[k] != other.way[k] {
					t.Fatalf("op %d has variant %d, not the other's %d", k, set.way[k], other.way[k])
				}
			}
		}
		for _, u := range w.retimed {
			flipped[u.gap] = true
		}
		for g := range int32(len(v.m.gaps)) {
			want := mine
			if flipped[g] {
				want = other
				borrowed++
			} else if mine.choice[g] != other.choice[g] {
				elsewhere++
			}
			if set.choice[g] != want.choice[g] || set.timing.of(g) != want.timing.of(g) {
				t.Fatalf("gap %d (borrowed: %t) has %d and %v, not %d and %v", g, flipped[g],
					set.choice[g], set.timing.of(g), want.choice[g], want.timing.of(g))
			}
		}
		for i := range v.m.variants {
			o := v.m.variants[i].op
			if !flipped[int32(len(v.m.gaps))+o] && set.way[o] != mine.way[o] {
				t.Fatalf("op %d has variant %d, not its own %d", o, set.way[o], mine.way[o])
			}
		}
		w.undo()
		var back candidate
		v.schedule.take(&back)
		if !reflect.DeepEqual(back.choice, mine.choice) || !reflect.DeepEqual(back.way, mine.way) ||
			!reflect.DeepEqual(back.timing, mine.timing) {
			t.Fatal("undo left something of the other plan")
		}
	}
	if borrowed < 1000 || varied < 100 || elsewhere < 1000 {
		t.Errorf("%d gaps and %d variants borrowed, %d left: the law was hardly tried",
			borrowed, varied, elsewhere)
	}
}
