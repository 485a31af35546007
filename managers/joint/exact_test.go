package joint_test

import (
	"math/bits"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// The exact step time of small trainings.
//
// The problem: whether a plan is optimal takes a judge that shares nothing with the planner.
//
// The approach: a best-first search over the moments at which something ends. At each, the compute stream and
// the two copy engines begin something or wait, and what leaves memory is chosen only when something needs
// the room, or to come back for a chain alone. Beginning at other moments gains nothing: whatever begins
// between two ends can begin at the first of them. States that differ only in time are merged. The estimate
// of the rest is the time that ops must still take, including those that must be rerun.
//
// The rules are those of plans. A value that has left may come back once before it is read, and before that
// any number of times for ops that are rerun; what a chain makes or loads on the way is gone before the next
// op; copies out are made in the order of the ops after which they are issued. A plan releases buffers before
// a chain or after the op that the chain serves, so what a chain has read stays until that op begins, unless
// it was loaded. Everything else may go while the chain runs: it was released before, and its copy out has
// only now ended. What goes at such a place is not copied back there, since keeping it would be as good. Ops
// may be rerun any number of times, in any order. Memory counts by bytes at each moment, without addresses:
// no plan is faster than this, and some are slower because addresses are in the way, or because a copy back
// takes its memory before a chain and not while it runs.
//
// Complexity: exponential; up to 18 ops take from some hundred to millions of states. Rejected: an integer
// program with a variable for the start of each copy (minutes for each problem).

// small is a training in whole units of time and memory. Op i writes value i.
type small struct {
	dur, size []int
	reads     [][]int
	again     []bool // the op may run again
	link      int    // time of a copy of one unit, each way
}

// problem writes a small training as a problem: a unit of memory is a mebibyte, a unit of time that of its
// copy on the link of plantest.
func (x *small) problem() *plan.Problem {
	b := plantest.New()
	link := plan.Link{BytesPerSecond: (1 << 20) * 1e6 / float64(x.link)}
	b.P.Hardware.D2H, b.P.Hardware.H2D = link, link
	values := make([]plan.BufferID, len(x.dur))
	for i := range x.dur {
		values[i] = b.Buffer("v", int64(x.size[i])<<20, timeline.Activation)
	}
	for i, d := range x.dur {
		var reads []plan.BufferID
		for _, r := range x.reads[i] {
			reads = append(reads, values[r])
		}
		id := b.Op("op", traces.PhaseForward, int64(d)*1000, reads, values[i:i+1])
		b.P.Ops[id].Rerunnable = x.again[i]
	}
	return b.End()
}

// state is the state of a small training. Values are bits.
type state struct {
	next      int8 // the next op to run for the first time
	stage     int8 // who decides: compute, the engine out, the engine in
	run       int8 // the op that runs, -1 for none
	first     bool // it runs for the first time
	chain     bool // something has run again since the last op that ran for the first time
	runLeft   int16
	out, in   int8 // the values being copied, -1 for none
	outLeft   int16
	inLeft    int16
	here      uint32    // in memory, or about to be written or copied there
	host      uint32    // copies
	ahead     [2]uint32 // copies for the next idle interval, and for the next but one
	order     int8      // the op after which the last of them was issued
	returned  uint32    // back before the next use: stays
	scratch   uint32    // made on the way to something else
	visits    uint32    // back for ops that are rerun, not for the next use
	read      uint32    // by the ops that have run again since the last op that ran for the first time
	left      uint32    // memory since then, while a chain ran
	announced uint32    // made since the engine out last had a choice
}

// exact is the search.
type exact struct {
	*small
	budget  int
	readers []uint32 // of each op: the values it reads
	lastUse []int    // of each value
	touches [][]int  // of each value, the ops that write and read it
	seen    map[state]int
	buckets [][]state // by the least time of any plan through the state
	at      int
	limit   int // plans that take this long are of no interest
}

// fastest returns the least time within the budget if it is below limit, and whether the search finished
// within the given number of states.
func (x *small) fastest(budget, limit, states int) (time int, found, ended bool) {
	e := &exact{small: x, budget: budget, limit: limit, seen: map[state]int{}}
	e.buckets = make([][]state, limit)
	n := len(x.dur)
	e.readers, e.lastUse, e.touches = make([]uint32, n), make([]int, n), make([][]int, n)
	for i, reads := range x.reads {
		e.lastUse[i], e.touches[i] = i, []int{i}
		for _, r := range reads {
			e.readers[i] |= 1 << r
			e.lastUse[r], e.touches[r] = i, append(e.touches[r], i)
		}
	}
	e.push(&state{run: -1, out: -1, in: -1}, 0)
	for ; e.at < limit; e.at++ {
		for len(e.buckets[e.at]) > 0 {
			last := len(e.buckets[e.at]) - 1
			s := e.buckets[e.at][last]
			e.buckets[e.at] = e.buckets[e.at][:last]
			time := e.at - e.rest(&s)
			if e.seen[s] != time {
				continue
			}
			if int(s.next) == len(x.dur) && s.run < 0 {
				return time, true, true
			}
			if len(e.seen) > states {
				return 0, false, false
			}
			e.expand(&s, time)
		}
	}
	return 0, false, true
}

func (e *exact) push(s *state, time int) {
	if f := time + e.rest(s); f < e.limit {
		if old, ok := e.seen[*s]; !ok || time < old {
			e.seen[*s] = time
			e.buckets[f] = append(e.buckets[f], *s)
		}
	}
}

// alive returns the values that some op has not yet read in its first run.
func (e *exact) alive(s *state) (alive uint32) {
	made := int(s.next)
	if s.run >= 0 && s.first {
		made--
	}
	for v := range made {
		if e.lastUse[v] >= made {
			alive |= 1 << v
		}
	}
	return alive
}

// rest is a lower bound on the remaining time.
func (e *exact) rest(s *state) int {
	t := int(s.runLeft)
	for i := int(s.next); i < len(e.dur); i++ {
		t += e.dur[i]
	}
	for left := e.alive(s) &^ (s.here &^ s.scratch) &^ s.host; left != 0; left &= left - 1 {
		t += e.dur[bits.TrailingZeros32(left)]
	}
	return t
}

func (e *exact) used(s *state) (sum int) {
	for m := s.here; m != 0; m &= m - 1 {
		sum += e.size[bits.TrailingZeros32(m)]
	}
	return sum
}

// expand adds the states that follow, by what the stream or engine whose turn it is can do.
func (e *exact) expand(s *state, time int) {
	switch s.stage {
	case 0:
		e.compute(s, time)
	case 1:
		e.copyOut(s, time)
	case 2:
		e.copyIn(s, time)
	}
}

// pinned returns the values that must stay now.
func (e *exact) pinned(s *state) (m uint32) {
	if s.run >= 0 {
		m |= e.readers[s.run] | 1<<s.run
	}
	if s.out >= 0 {
		m |= 1 << s.out
	}
	if s.in >= 0 {
		m |= 1 << s.in
	}
	return m | s.returned
}

// makeRoom calls do for each minimal set of values that can leave to make room for need. What a chain has
// read stays.
func (e *exact) makeRoom(s *state, need int, stay uint32, do func(s *state)) {
	over := e.used(s) + need - e.budget
	if over <= 0 {
		do(s)
		return
	}
	free := s.here &^ stay &^ (s.read &^ s.scratch &^ s.visits) &^ e.pinned(s)
	var list []int
	for m := free; m != 0; m &= m - 1 {
		list = append(list, bits.TrailingZeros32(m))
	}
	alive := e.alive(s)
	var try func(k, over int, gone uint32)
	try = func(k, over int, gone uint32) {
		if over <= 0 {
			for m := gone; m != 0; m &= m - 1 { // skip sets with an unnecessary member
				if over+e.size[bits.TrailingZeros32(m)] <= 0 {
					return
				}
			}
			t := *s
			t.here &^= gone
			t.scratch &^= gone
			t.visits &^= gone
			t.host &^= gone & (s.ahead[0] | s.ahead[1]) // what comes back is copied out anew
			t.ahead[0] &^= gone
			t.ahead[1] &^= gone
			if s.chain {
				t.left |= gone
			}
			do(&t)
			return
		}
		if k == len(list) {
			return
		}
		v := list[k]
		bit := uint32(1) << v
		onHost := s.host &^ s.ahead[0] &^ s.ahead[1]
		if (s.scratch|s.visits|onHost)&bit != 0 || alive&bit == 0 || e.again[v] {
			try(k+1, over-e.size[v], gone|bit)
		}
		try(k+1, over, gone)
	}
	try(0, over, 0)
}

func (e *exact) compute(s *state, time int) {
	idle := *s
	idle.stage = 1
	e.push(&idle, time)
	if s.run >= 0 {
		return
	}
	there := s.here
	if s.in >= 0 {
		there &^= 1 << s.in
	}
	if i := int(s.next); i < len(e.dur) && e.readers[i]&^(there&^s.scratch&^s.visits) == 0 {
		t := *s
		t.here &^= s.scratch | s.visits&s.read // a chain's own values are gone before the op
		t.scratch, t.visits = 0, s.visits&^s.read
		e.makeRoom(&t, e.size[i], e.readers[i], func(t *state) {
			u := *t
			u.run, u.first, u.runLeft, u.stage, u.chain = int8(i), true, int16(e.dur[i]), 1, false
			u.read, u.left = 0, 0
			u.next++
			if !u.touch(e.readers[i]) {
				return
			}
			u.here |= 1 << i
			e.push(&u, time)
		})
	}
	alive := e.alive(s)
	useful := e.useful(s)
	for o := range int(s.next) {
		bit := uint32(1) << o
		if !e.again[o] || useful&bit == 0 || there&bit != 0 || s.here&bit != 0 || e.readers[o]&^there != 0 {
			continue
		}
		t := *s
		t.chain = true
		e.makeRoom(&t, e.size[o], e.readers[o], func(t *state) {
			for _, stays := range []bool{false, true} {
				if stays && alive&bit == 0 {
					continue
				}
				u := *t
				u.run, u.first, u.runLeft, u.stage, u.chain = int8(o), false, int16(e.dur[o]), 1, true
				u.here |= bit
				u.read |= e.readers[o]
				if stays {
					u.returned |= bit
				} else {
					u.scratch |= bit
				}
				e.push(&u, time)
			}
		})
	}
}

// useful returns the values that help to recompute something that is alive and absent.
func (e *exact) useful(s *state) (useful uint32) {
	alive := e.alive(s)
	for o := int(s.next) - 1; o >= 0; o-- {
		if bit := uint32(1) << o; s.here&bit == 0 && (alive&bit != 0 || useful&bit != 0) {
			useful |= bit | e.readers[o]
		}
	}
	return useful
}

// rerunsRead returns the values that some op reads which would help if it ran again.
func (e *exact) rerunsRead(s *state) (read uint32) {
	useful := e.useful(s)
	for o := range int(s.next) {
		if bit := uint32(1) << o; e.again[o] && useful&bit != 0 && s.here&bit == 0 {
			read |= e.readers[o]
		}
	}
	return read
}

func (e *exact) copyOut(s *state, time int) {
	t := *s
	t.stage, t.announced = 2, 0
	e.push(&t, time)
	if s.out >= 0 {
		return
	}
	can := e.alive(s) & s.here & s.announced &^ s.scratch &^ s.host
	if s.run >= 0 {
		can &^= 1 << s.run
	}
	for ; can != 0; can &= can - 1 {
		v := bits.TrailingZeros32(can)
		done, _ := slices.BinarySearch(e.touches[v], int(s.next))
		for later := range 3 {
			if done+later >= len(e.touches[v]) {
				break
			}
			behind := int8(e.touches[v][done-1+later])
			if behind < s.order {
				continue
			}
			u := t
			u.out, u.outLeft, u.order = int8(v), int16(e.size[v]*e.link), behind
			if later > 0 {
				u.ahead[later-1] |= 1 << v
			}
			e.push(&u, time)
		}
	}
}

// touch ends the idle intervals of what an op reads, and reports whether none of it is being copied.
func (s *state) touch(read uint32) bool {
	over := read &^ s.ahead[0] &^ s.ahead[1]
	s.host &^= over
	s.ahead[0], s.ahead[1] = s.ahead[0]&^read|s.ahead[1]&read, s.ahead[1]&^read
	s.returned &^= read
	s.announced |= read
	return s.out < 0 || over>>s.out&1 == 0
}

func (e *exact) copyIn(s *state, time int) {
	e.advance(*s, time)
	if s.in >= 0 {
		return
	}
	for can := e.alive(s) & s.host &^ s.here &^ s.left; can != 0; can &= can - 1 {
		v := bits.TrailingZeros32(can)
		e.makeRoom(s, e.size[v], 0, func(t *state) {
			u := *t
			u.in, u.inLeft = int8(v), int16(e.size[v]*e.link)
			u.here |= 1 << v
			u.returned |= 1 << v
			e.advance(u, time)
		})
	}
	for can := e.alive(s) & s.host &^ s.here & e.rerunsRead(s); can != 0; can &= can - 1 {
		v := bits.TrailingZeros32(can)
		e.makeRoom(s, e.size[v], 0, func(t *state) {
			u := *t
			u.in, u.inLeft = int8(v), int16(e.size[v]*e.link)
			u.here |= 1 << v
			u.visits |= 1 << v
			e.advance(u, time)
		})
	}
	// what could stay may leave and come back for ops that are rerun: it is gone before the op after them
	stays := e.pinned(s) | s.scratch | s.visits | s.read | s.ahead[0] | s.ahead[1]
	for can := e.alive(s) & s.host & s.here & e.rerunsRead(s) &^ stays; can != 0; can &= can - 1 {
		v := bits.TrailingZeros32(can)
		u := *s
		u.in, u.inLeft = int8(v), int16(e.size[v]*e.link)
		u.visits |= 1 << v
		if s.chain {
			u.left |= 1 << v
		}
		e.advance(u, time)
	}
}

// advance moves to the next moment at which something ends.
func (e *exact) advance(s state, time int) {
	step := int16(1 << 14)
	if s.run >= 0 {
		step = min(step, s.runLeft)
	}
	if s.out >= 0 {
		step = min(step, s.outLeft)
	}
	if s.in >= 0 {
		step = min(step, s.inLeft)
	}
	if step == 1<<14 {
		return
	}
	if s.out >= 0 {
		if s.outLeft -= step; s.outLeft == 0 {
			s.host |= 1 << s.out
			s.out = -1
			s.announced = s.here // the engine chooses among all
		}
	}
	if s.in >= 0 {
		if s.inLeft -= step; s.inLeft == 0 {
			s.in = -1
		}
	}
	if s.run >= 0 {
		if s.runLeft -= step; s.runLeft == 0 {
			s.announced |= 1 << s.run
			s.run = -1
		}
	}
	s.stage = 0
	dead := ^e.alive(&s)
	if s.run >= 0 {
		dead &^= 1 << s.run
	}
	s.here &^= dead &^ s.scratch
	s.visits &^= dead
	s.host &^= dead
	s.ahead[0] &^= dead
	s.ahead[1] &^= dead
	s.announced &= s.here
	if s.out >= 0 && dead>>s.out&1 != 0 {
		return // copied in vain
	}
	e.push(&s, time+int(step))
}
