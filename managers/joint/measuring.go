package joint

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// Searching among measured plans.
//
// The problem: a schedule counts memory by positions, and without addresses. But a value that is copied out
// can make room in the middle of an op for a copy back, and addresses decide which of them waits for which.
// With little memory, plans that use this are a few percent faster, and their schedules do not show it.
//
// The approach: at the end, for problems small enough for thousands of tries, a local search in which every
// try is placed and measured. A try changes choices and positions with the moves of the other searches, moves
// the release or the copy back of a swapped value away from where its schedule has it, or places instances in
// another order. What is no slower is kept: most steps lead nowhere by themselves.
//
// Complexity: a try takes as long as some tens of schedules. Of 19 problems of 8 to 16 ops in which joint was
// 2 to 8 % above the optimum, 10 are solved, and planning takes a fifth longer. On the networks of
// docs/results.md it gains at most 0.1 %. Rejected: schedules that know when within an op memory becomes
// free, because they would have to know the addresses as well.

// measuring is the state of a search among measured plans.
type measuring struct {
	moves
	limit int64
	away  []away    // of each gap
	keys  [][]int64 // of each buffer, by instance: the order in which they are placed
	// what the last try changed besides choices and positions
	moved   []movedAway
	reorder []rekeyed
}

// away says by how many positions a swap's release and copy back differ from what its schedule has.
type away struct{ release, fetch plan.OpID }

// movedAway records what a gap had.
type movedAway struct {
	gap int32
	was away
}

// rekeyed records the key that an instance of a buffer had.
type rekeyed struct {
	buffer   plan.BufferID
	instance int
	was      int64
}

// tryOut searches on from a plan of this view that fits, and measures every try.
func (v *view) tryOut(from *outcome) {
	s := v.schedule
	defer func() { s.setting.timing = nil }()
	y := v.measuringFrom(from)
	if y == nil {
		return
	}
	x := y.measure(math.MaxInt64)
	if x == nil {
		return // the schedule has no room for this plan's reruns
	}
	now, until := x.time, s.steps+v.task.rungWork/int64(v.task.versions)
	for s.steps < until && v.task.ctx.Err() == nil && now*int64(v.p.Iterations) > v.target {
		y.change()
		if x := y.measure(now); x != nil {
			now = x.time
		} else {
			y.undo()
		}
	}
}

// measuringFrom returns the state of a search whose first try is the given plan, nil if there is nothing to
// change.
func (v *view) measuringFrom(from *outcome) *measuring {
	v.begin(v.task.request.Seed)
	if from.of == v.version {
		v.schedule.choose(from.at)
	} else {
		v.read(from.pl)
	}
	w, ok := v.moves()
	if !ok {
		return nil
	}
	y := &measuring{moves: w, limit: v.task.request.Budget,
		away: make([]away, len(v.m.gaps)), keys: make([][]int64, len(v.m.p.Buffers))}
	y.adopt(from.pl)
	return y
}

// adopt takes over from a plan what its schedule does not have.
func (y *measuring) adopt(pl *plan.Plan) {
	s, m := y.v.schedule, y.v.m
	s.run()
	for k := range pl.Absences {
		x := &pl.Absences[k]
		if g := m.gapOf(x.Buffer, x.Before); g >= 0 && x.How == plan.Swap && s.absences.how[g] == swap {
			y.away[g] = away{x.Release - s.absences.release[g], x.Fetch - s.absences.fetch[g]}
		}
	}
	for i := range pl.Instances {
		x := &pl.Instances[i]
		y.keys[x.Buffer] = append(y.keys[x.Buffer], x.Offset)
	}
}

// change makes a try: of four, one changes choices, one positions, one the order, and one the last two.
func (y *measuring) change() {
	y.begin()
	y.moved, y.reorder = y.moved[:0], y.reorder[:0]
	rnd := y.v.rnd
	kind := rnd.IntN(4)
	if kind == 0 {
		y.random()
	}
	if kind == 1 || kind == 3 {
		for range 1 + rnd.IntN(3) {
			y.moveAway()
		}
	}
	if kind == 2 || kind == 3 {
		for range 1 + rnd.IntN(3) {
			y.rekey()
		}
	}
}

// moveAway moves the release or the copy back of a swap to another position.
func (y *measuring) moveAway() {
	s, rnd := y.v.schedule, y.v.rnd
	if len(s.prefetches.order) == 0 {
		return
	}
	g := s.prefetches.order[rnd.IntN(len(s.prefetches.order))]
	x, a := &y.v.m.gaps[g], &y.away[g]
	y.moved = append(y.moved, movedAway{g, *a})
	to := x.after + 1 + plan.OpID(rnd.IntN(int(x.before-x.after)))
	if rnd.IntN(2) == 0 {
		a.release = to - s.absences.release[g]
	} else {
		a.fetch = to - s.absences.fetch[g]
	}
}

// rekey gives an instance another place in the order.
func (y *measuring) rekey() {
	rnd := y.v.rnd
	b := rnd.IntN(len(y.keys))
	if len(y.keys[b]) == 0 {
		return
	}
	k := rnd.IntN(len(y.keys[b]))
	y.reorder = append(y.reorder, rekeyed{plan.BufferID(b), k, y.keys[b][k]})
	y.keys[b][k] = rnd.Int64N(y.limit + 1)
}

// undo reverts the last try.
func (y *measuring) undo() {
	y.moves.undo()
	for _, u := range slices.Backward(y.moved) {
		y.away[u.gap] = u.was
	}
	for _, u := range slices.Backward(y.reorder) {
		y.keys[u.buffer][u.instance] = u.was
	}
}

// measure assembles, places and measures the current try. It returns nil if the try does not fit or is slower
// than most.
func (y *measuring) measure(most int64) *outcome {
	v, s := y.v, y.v.schedule
	s.run()
	d := s.decisions()
	for k, g := range s.prefetches.order { // which come first, in this order
		x, a := &d.Absences[k], y.away[g]
		x.Release = min(max(x.Release+a.release, x.After+1), x.Before)
		x.Fetch = min(max(x.Fetch+a.fetch, x.Release), x.Before)
	}
	pl, err := place.Assemble(v.p, d)
	if err != nil {
		return nil
	}
	s.steps += v.task.params.tryWork * int64(len(pl.Steps))
	if live, _ := pl.PeakLive(); live > y.limit {
		return nil
	}
	pl.SectionBytes = v.section
	keys, seen := make([]int64, len(pl.Instances)), make([]int, len(y.keys))
	for i := range keys {
		b := pl.Instances[i].Buffer
		if seen[b] == len(y.keys[b]) {
			y.keys[b] = append(y.keys[b], v.rnd.Int64N(y.limit+1))
		}
		keys[i] = y.keys[b][seen[b]]
		seen[b]++
	}
	_, err = place.Place(v.task.ctx, v.p, pl, place.Options{Rule: place.FirstFit, Keys: keys})
	if err != nil || pl.Footprint > y.limit {
		return nil
	}
	me, err := v.task.request.Evaluator.Evaluate(v.task.ctx, v.task.p, pl)
	if err != nil || me.StepTime > most {
		return nil
	}
	x := &outcome{pl: pl, time: me.StepTime}
	if best := v.found.best; better(x, best) {
		if plan.Validate(v.task.p, pl) != nil {
			return nil
		}
		v.found.note(x)
	}
	return x
}
