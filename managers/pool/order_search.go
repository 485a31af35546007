package pool

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// The search for an order of ops with a low peak.
//
// Greedy: among the ops that may run, take the one that frees most beyond what it allocates; if all allocate
// more than they free, the first as recorded. The other rule is the same from the end of the iteration
// backwards, where an op allocates what it reads first and frees what it writes.
//
// Local search: pick a buffer that is in memory at the peak and that the op there does not touch. Its first
// op moves after the peak, or its last op moves before it. Ops in between that depend on the moving op, or on
// which it depends, move along in their order. An order is better if its peak is lower or, at the same peak,
// if less lies within a tenth of it. If no such move helps, single ops are moved to random places, and the
// order is kept if it is not worse. If that does not help either, the best order so far is perturbed and
// improved again.

// stay is what a buffer takes while its ops run: from the earliest of first to the latest of last. A stay
// without first begins before the iteration; one without last ends after it.
type stay struct {
	size        int64
	first, last []plan.OpID
}

// sequencer searches for orders of one problem.
type sequencer struct {
	n            int
	before       [][]plan.OpID // of each op: those that have to run earlier, and at once before it
	behind       [][]plan.OpID
	stays        []stay
	of           [][]int32 // of each op: its stays
	always       int64     // bytes that are in memory throughout
	delta        []int64
	at           []plan.OpID
	accesses     int64
	work         int64
	peak, excess int64 // of the order evaluated last
	peakAt       int
	mark         []bool
}

func newSequencer(p *plan.Problem) *sequencer {
	n := len(p.Ops)
	s := &sequencer{n: n, before: make([][]plan.OpID, n), behind: make([][]plan.OpID, n),
		of: make([][]int32, n), delta: make([]int64, n+1), at: make([]plan.OpID, n), mark: make([]bool, n)}
	for b := range p.Buffers {
		s.depend(p, plan.BufferID(b))
		size := p.Rounded(plan.BufferID(b))
		if p.Buffers[b].Life == plan.Persistent {
			s.always += size
			continue
		}
		first, last := plan.Stay(p, plan.BufferID(b))
		switch {
		case p.Buffers[b].Life == plan.Inside:
			s.add(stay{size, first, first})
		default:
			s.add(stay{size, first, nil})
			s.add(stay{size, nil, last})
		}
	}
	previous := plan.OpID(-1)
	for i := range n {
		if fixed(p, plan.OpID(i)) {
			if previous >= 0 {
				s.edge(previous, plan.OpID(i))
			}
			previous = plan.OpID(i)
		}
	}
	for i := range n {
		slices.Sort(s.before[i])
		s.before[i] = slices.Compact(s.before[i])
		slices.Sort(s.behind[i])
		s.behind[i] = slices.Compact(s.behind[i])
		s.accesses += int64(len(s.of[i]) + len(s.before[i]))
	}
	return s
}

func (s *sequencer) edge(from, to plan.OpID) {
	if from != to {
		s.before[to], s.behind[from] = append(s.before[to], from), append(s.behind[from], to)
	}
}

// depend adds a buffer's constraints on the order.
func (s *sequencer) depend(p *plan.Problem, b plan.BufferID) {
	writer := plan.OpID(-1)
	var readers []plan.OpID
	for _, t := range p.TouchesOf(b) {
		if writer >= 0 {
			s.edge(writer, t.Op)
		}
		if !t.Mode.Writes() {
			readers = append(readers, t.Op)
			continue
		}
		for _, r := range readers {
			s.edge(r, t.Op)
		}
		writer, readers = t.Op, readers[:0]
	}
	if x := &p.Buffers[b]; x.Life == plan.Carried { // the old value is gone when the new one comes
		first, last := plan.Stay(p, b)
		for _, o := range last {
			for _, f := range first {
				s.edge(o, f)
			}
		}
	}
}

func (s *sequencer) add(x stay) {
	k := int32(len(s.stays))
	clean := func(ops []plan.OpID) []plan.OpID {
		ops = slices.Clone(ops)
		slices.Sort(ops)
		return slices.Compact(ops)
	}
	x.first, x.last = clean(x.first), clean(x.last)
	for _, o := range x.first {
		s.of[o] = append(s.of[o], k)
	}
	if len(x.first) == 0 {
		for _, o := range x.last {
			s.of[o] = append(s.of[o], k)
		}
	}
	s.stays = append(s.stays, x)
}

// ops are those that hold a stay.
func (x *stay) ops() []plan.OpID {
	if len(x.first) == 0 {
		return x.last
	}
	return x.first
}

// floor is a lower bound for any order: what is present throughout plus what one op needs.
func (s *sequencer) floor() int64 {
	var most int64
	for i := range s.n {
		var sum int64
		for _, k := range s.of[i] {
			sum += s.stays[k].size
		}
		most = max(most, sum)
	}
	return s.always + most
}

// evaluate finds the peak of an order, its position, and what lies above a threshold.
func (s *sequencer) evaluate(order []plan.OpID, threshold int64) {
	for k, o := range order {
		s.at[o] = plan.OpID(k)
	}
	clear(s.delta)
	for k := range s.stays {
		x := &s.stays[k]
		from, to := plan.OpID(0), plan.OpID(s.n)
		if len(x.first) > 0 {
			from = plan.OpID(s.n)
			for _, o := range x.first {
				from = min(from, s.at[o])
			}
		}
		if len(x.last) > 0 {
			to = 0
			for _, o := range x.last {
				to = max(to, s.at[o]+1)
			}
		}
		s.delta[from] += x.size
		s.delta[to] -= x.size
	}
	s.work += int64(s.n) + s.accesses
	s.peak, s.excess, s.peakAt = 0, 0, 0
	load := s.always
	for i := range s.n {
		load += s.delta[i]
		if load > s.peak {
			s.peak, s.peakAt = load, i
		}
		s.excess += max(load-threshold, 0)
	}
}

// search returns the best order found, nil if none is better than the recorded one.
func (s *sequencer) search(ctx context.Context, seed uint64, work int64) []plan.OpID {
	recorded := make([]plan.OpID, s.n)
	for i := range recorded {
		recorded[i] = plan.OpID(i)
	}
	s.evaluate(recorded, 0)
	base, floor := s.peak, s.floor()
	best, lowest := recorded, base
	starts := [][]plan.OpID{recorded, s.greedy(false), s.greedy(true)}
	rnd := rand.New(rand.NewPCG(seed, uint64(s.n)))
	for k, vain := 0, 0; vain < vainRounds && s.work < work && lowest > floor && ctx.Err() == nil; k++ {
		x, most := best, work
		if k < len(starts) {
			x, most = starts[k], s.work+work/int64(len(starts)+1)
		} else {
			x = s.stir(x, rnd)
		}
		x = s.improve(ctx, x, floor, most, rnd)
		if s.evaluate(x, 0); s.peak < lowest {
			best, lowest, vain = x, s.peak, 0
		} else if k >= len(starts) {
			vain++
		}
	}
	if lowest >= base {
		return nil
	}
	return best
}

// vainRounds is how many searches from a perturbed order may fail in a row.
const vainRounds = 20

// stir moves some ops of an order to random places.
func (s *sequencer) stir(order []plan.OpID, rnd *rand.Rand) []plan.OpID {
	for range stirred {
		if x := s.shake(order, rnd); x != nil {
			order = x
		}
	}
	return order
}

// stirred is the number of moves of a perturbation, including those that change nothing.
const stirred = 12

// greedy makes an order by the rule, from the front or from the end.
func (s *sequencer) greedy(backwards bool) []plan.OpID {
	before, behind := s.before, s.behind
	rank := func(o plan.OpID) plan.OpID { return o }
	if backwards {
		before, behind = behind, before
		rank = func(o plan.OpID) plan.OpID { return plan.OpID(s.n) - o }
	}
	waits := make([]int, s.n)
	left, begun := make([]int, len(s.stays)), make([]bool, len(s.stays))
	for k := range s.stays {
		left[k] = len(s.stays[k].ops())
		open := len(s.stays[k].first) == 0 // it is there before the first op
		if backwards {
			open = len(s.stays[k].last) == 0
		}
		begun[k] = open
	}
	closes := func(k int32) bool { // it goes with the last of its ops
		if backwards {
			return len(s.stays[k].first) > 0
		}
		return len(s.stays[k].last) > 0
	}
	net := func(o plan.OpID) (bytes int64) {
		for _, k := range s.of[o] {
			if !begun[k] {
				bytes += s.stays[k].size
			}
			if left[k] == 1 && closes(k) {
				bytes -= s.stays[k].size
			}
		}
		return bytes
	}
	var ready []plan.OpID // by rank
	insert := func(o plan.OpID) {
		k, _ := slices.BinarySearchFunc(ready, o, func(x, y plan.OpID) int {
			return cmp.Compare(rank(x), rank(y))
		})
		ready = slices.Insert(ready, k, o)
	}
	for i := range s.n {
		if waits[i] = len(before[i]); waits[i] == 0 {
			insert(plan.OpID(i))
		}
	}
	order := make([]plan.OpID, 0, s.n)
	for len(ready) > 0 {
		pick, most := 0, int64(0)
		for k, o := range ready[:min(len(ready), mostReady)] {
			if x := net(o); x < most {
				pick, most = k, x
			}
			s.work += int64(len(s.of[o]))
		}
		o := ready[pick]
		ready = slices.Delete(ready, pick, pick+1)
		order = append(order, o)
		for _, k := range s.of[o] {
			begun[k] = true
			left[k]--
		}
		for _, x := range behind[o] {
			if waits[x]--; waits[x] == 0 {
				insert(x)
			}
		}
	}
	if backwards {
		slices.Reverse(order)
	}
	return order
}

// mostReady bounds how many ops the greedy rule compares for each place.
const mostReady = 64

// improve moves ops until the peak is at the floor or the work is spent.
func (s *sequencer) improve(
	ctx context.Context, order []plan.OpID, floor, work int64, rnd *rand.Rand,
) []plan.OpID {
	s.evaluate(order, 0)
	peak, at := s.peak, s.peakAt
	threshold := peak - peak/10
	s.evaluate(order, threshold)
	excess := s.excess
	try := func(x []plan.OpID, equal bool) bool {
		if x == nil {
			return false
		}
		s.evaluate(x, threshold)
		if s.peak > peak || s.peak == peak && (s.excess > excess || s.excess == excess && !equal) {
			return false
		}
		order, at, excess = x, s.peakAt, s.excess
		if s.peak < peak {
			peak = s.peak
			threshold = peak - peak/10
			s.evaluate(order, threshold)
			excess = s.excess
		}
		return true
	}
	for s.work < work && peak > floor && ctx.Err() == nil {
		moved := false
		for _, k := range s.waiting(order, at) {
			if s.work >= work {
				break
			}
			if x := &s.stays[k]; try(s.push(order, x, at), false) || try(s.pull(order, x, at), false) {
				moved = true
				break
			}
		}
		for tries := 0; !moved && tries < idleTries && s.work < work; tries++ {
			moved = try(s.shake(order, rnd), true)
		}
		if !moved {
			break
		}
	}
	return order
}

// idleTries is how many random moves may fail in a row.
const idleTries = 100

// waiting lists the stays that are in memory at a position and that its op has no part in, the largest first.
func (s *sequencer) waiting(order []plan.OpID, at int) (list []int32) {
	for k, o := range order {
		s.at[o] = plan.OpID(k)
	}
	for k := range s.stays {
		x := &s.stays[k]
		from, to := plan.OpID(s.n), plan.OpID(-1)
		for _, o := range x.ops() {
			from, to = min(from, s.at[o]), max(to, s.at[o])
		}
		started, ends := from < plan.OpID(at) || len(x.first) == 0, to > plan.OpID(at) || len(x.last) == 0
		if started && ends && !slices.Contains(x.ops(), order[at]) {
			list = append(list, int32(k))
		}
	}
	slices.SortStableFunc(list, func(a, b int32) int { return cmp.Compare(s.stays[b].size, s.stays[a].size) })
	s.work += s.accesses
	return list
}

// push moves the ops of a stay that run before a position after it, with everything that depends on them; nil
// if the op at the position does.
func (s *sequencer) push(order []plan.OpID, x *stay, at int) []plan.OpID {
	if len(x.first) == 0 {
		return nil
	}
	for k, o := range order {
		s.at[o] = plan.OpID(k)
	}
	low := at
	for _, o := range x.first {
		if int(s.at[o]) < at {
			s.mark[o] = true
			low = min(low, int(s.at[o]))
		}
	}
	defer clear(s.mark)
	for k := low; k <= at; k++ {
		o := order[k]
		for _, b := range s.before[o] {
			s.mark[o] = s.mark[o] || s.mark[b] && int(s.at[b]) >= low
		}
	}
	s.work += int64(at - low)
	if s.mark[order[at]] {
		return nil
	}
	return s.part(order, low, at+1, false)
}

// pull moves the ops of a stay that run after a position before it, with everything on which they depend; nil
// if they depend on the op at the position.
func (s *sequencer) pull(order []plan.OpID, x *stay, at int) []plan.OpID {
	if len(x.last) == 0 {
		return nil
	}
	for k, o := range order {
		s.at[o] = plan.OpID(k)
	}
	high := at
	for _, o := range x.last {
		if int(s.at[o]) > at {
			s.mark[o] = true
			high = max(high, int(s.at[o]))
		}
	}
	defer clear(s.mark)
	for k := high; k >= at; k-- {
		o := order[k]
		for _, b := range s.behind[o] {
			s.mark[o] = s.mark[o] || s.mark[b] && int(s.at[b]) <= high
		}
	}
	s.work += int64(high - at)
	if s.mark[order[at]] {
		return nil
	}
	return s.part(order, at, high+1, true)
}

// part returns an order with the marked ops of a stretch at its front or at its end.
func (s *sequencer) part(order []plan.OpID, from, to int, front bool) []plan.OpID {
	out := slices.Clone(order[:from])
	for _, marked := range []bool{front, !front} {
		for _, o := range order[from:to] {
			if s.mark[o] == marked {
				out = append(out, o)
			}
		}
	}
	return append(out, order[to:]...)
}

// shake moves one op to another place between those that it depends on and those that depend on it; nil where
// there is none.
func (s *sequencer) shake(order []plan.OpID, rnd *rand.Rand) []plan.OpID {
	for k, o := range order {
		s.at[o] = plan.OpID(k)
	}
	from := rnd.IntN(s.n)
	o := order[from]
	low, high := 0, s.n-1
	for _, b := range s.before[o] {
		low = max(low, int(s.at[b])+1)
	}
	for _, b := range s.behind[o] {
		high = min(high, int(s.at[b])-1)
	}
	if low >= high {
		return nil
	}
	to := low + rnd.IntN(high-low+1)
	if to == from {
		return nil
	}
	x := slices.Delete(slices.Clone(order), from, from+1)
	return slices.Insert(x, to, o)
}
