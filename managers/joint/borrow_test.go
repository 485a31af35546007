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

// TestAStretchIsBorrowedAsItIsAndGivenBack: within a stretch every gap and every op has what the other plan
// has, elsewhere nothing changes, and undo restores all of it.
func TestAStretchIsBorrowedAsItIsAndGivenBack(t *testing.T) {
	t.Parallel()
	f, err := newFinder(t.Context(), network(t, "AlexNet"), plan.Request{}, mechanisms{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	v := f.views[0]
	v.applyMargin(v.m.floor, 0)
	v.cover.excess()
	r := rand.New(rand.NewPCG(3, 4))
	set := &v.schedule.setting
	gaps, ops := [2]int{}, [2]int{} // how many differ within stretches, and elsewhere
	for seed := range uint64(400) {
		other, mine := v.arbitrary(r), v.arbitrary(r)
		v.schedule.choose(mine)
		w, _ := v.moves()
		n := len(w.byBefore)
		v.rnd = rand.New(rand.NewPCG(seed, 0))
		first, end := v.stretch(n)
		began, ended := plan.OpID(0), plan.OpID(v.m.n)
		if first > 0 {
			began = v.m.gaps[w.byBefore[first-1]].before
		}
		if end < n {
			ended = v.m.gaps[w.byBefore[end-1]].before
		}
		v.rnd = rand.New(rand.NewPCG(seed, 0))
		w.begin()
		changed := w.borrow(other, w.byBefore, w.slower)
		for k, g := range w.byBefore {
			want, where := mine, 1
			if first <= k && k < end {
				want, where = other, 0
			}
			if mine.choice[g] != other.choice[g] || mine.timing.of(g) != other.timing.of(g) {
				gaps[where]++
			}
			if set.choice[g] != want.choice[g] || set.timing.of(g) != want.timing.of(g) {
				t.Fatalf("gap %d of [%d, %d) has %d and %v, not %d and %v", k, first, end,
					set.choice[g], set.timing.of(g), want.choice[g], want.timing.of(g))
			}
		}
		for _, k := range w.slower {
			want, where, o := mine, 1, v.m.variants[k].op
			if int32(began) <= o && o < int32(ended) {
				want, where = other, 0
			}
			if mine.way[o] != other.way[o] {
				ops[where]++
			}
			if set.way[o] != want.way[o] {
				t.Fatalf("op %d of [%d, %d) has variant %d, not %d", o, began, ended, set.way[o], want.way[o])
			}
		}
		var back candidate
		v.schedule.take(&back)
		if same := reflect.DeepEqual(back.choice, mine.choice) && reflect.DeepEqual(back.way, mine.way) &&
			reflect.DeepEqual(back.timing, mine.timing); same == changed {
			t.Fatalf("borrow reports %t", changed)
		}
		w.undo()
		v.schedule.take(&back)
		if !reflect.DeepEqual(back.choice, mine.choice) || !reflect.DeepEqual(back.way, mine.way) ||
			!reflect.DeepEqual(back.timing, mine.timing) {
			t.Fatal("undo left something of the other plan")
		}
	}
	if min(gaps[0], gaps[1]) < 1000 || min(ops[0], ops[1]) < 50 {
		t.Errorf("%d gaps and %d ops differ: the law was hardly tried", gaps, ops)
	}
}
