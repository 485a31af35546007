package joint

import (
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/sim"
)

// TestMeasuredTriesBeginWithThePlanAndCanBeUndone: the first try takes as long as the plan, in as much memory
// or less. After any other, undo restores choices, positions and order.
func TestMeasuredTriesBeginWithThePlanAndCanBeUndone(t *testing.T) {
	t.Parallel()
	p := network(t, "AlexNet")
	r := plan.Request{Budget: within(p, 30), Seed: 1, Work: 1_000_000, Evaluator: sim.Simulator{}}
	f, err := newFinder(t.Context(), p, r, mechanisms{}, defaults())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.pickRung(); err != nil {
		t.Fatal(err)
	}
	v := f.views[0]
	from := f.bestOf(v.section)
	y := v.measuringFrom(from)
	if x := y.measure(math.MaxInt64); x == nil || x.time != from.time || x.pl.Footprint > from.pl.Footprint {
		t.Fatalf("the first try is %+v, and the plan %+v", x, from)
	}
	type state struct {
		set  *candidate
		away []away
		keys [][]int64
	}
	save := func() state {
		x := state{&candidate{}, slices.Clone(y.away), make([][]int64, len(y.keys))}
		v.schedule.take(x.set)
		for b := range y.keys {
			x.keys[b] = slices.Clone(y.keys[b])
		}
		return x
	}
	var sets, aways, keys int
	for range 400 {
		was := save()
		y.change()
		now := save()
		for _, x := range []struct {
			was, now any
			count    *int
		}{{was.set, now.set, &sets}, {was.away, now.away, &aways}, {was.keys, now.keys, &keys}} {
			if !reflect.DeepEqual(x.was, x.now) {
				*x.count++
			}
		}
		v.schedule.run()
		y.undo()
		if now := save(); !reflect.DeepEqual(was, now) {
			t.Fatalf("undo leaves %+v of %+v", now, was)
		}
	}
	if min(sets, aways, keys) < 40 {
		t.Errorf("%d changes of choices, %d of positions, %d of the order: undo was hardly tried",
			sets, aways, keys)
	}
}
