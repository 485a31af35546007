package steps

import (
	"slices"

	"github.com/gmemtop/gmemtop/timeline/frames"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/stats"
)

// Iterations from periodicity.
//
// Problem: a training loop allocates the same sizes from the same places step after step; find the step's
// length and beginnings in up to millions of allocations, and find nothing if nothing repeats. Layers repeat
// inside a step, so the shortest period is wrong; pairs of steps repeat too, so the longest is wrong.
//
// Approach. It reads only allocations: frees move with the garbage collector and with other streams,
// allocations do not.
//  1. Candidates: for grams of 16, 64, 256... allocations (rolling hash), the distance from each gram to its
//     last occurrence gets a vote. Grams longer than the part that a layer shares with the next one vote
//     for the step.
//  2. Exact check: for each distance with the most votes, the longest stretch in which every allocation
//     has the size and the stack of the one a distance before it. Hashes only propose; this comparison
//     decides.
//  3. Of the distances whose stretch, with the first period added, holds two whole periods or more, the one
//     with the longest wins, the smallest among equals: a layer's stretch ends with its step, a step's spans
//     the run, and a double step's is as long as the single one's and loses by size.
//  4. Acceptance, so that nothing is invented: two whole periods or more repeat exactly; a period has
//     minPeriod allocations or more; the iterations found in step 7 hold at least half of all allocations;
//     and the stacks of one period are not all inside one call of a module, of the optimizer or of the
//     autograd engine, which is how layers and parameters repeat within a single step.
//  5. A step that differs every so many steps (an evaluation, a line of log) makes those many steps a period
//     of their own. So a distance of half the winner's or less is taken instead where three of its periods
//     or more repeat exactly, three quarters of the winner's stretch agrees with it, its period is not
//     deeper in the call stack than the winner's, and at its boundaries as few bytes are allocated as at the
//     winner's (within 2 % of the rise): a layer's are not.
//  6. If nothing holds, the same with stacks alone, for inputs whose shapes change from step to step.
//  7. The boundary goes to the allocation of the period before which the fewest bytes are allocated. What
//     the boundary looks like (the allocations around it, as few as occur once in a period) is then searched
//     for before and after the stretch, so that a warm-up step and a step that differs are steps too: from
//     half to four times as many allocations as the period has.
//
// Complexity: linear in allocations for a fixed number of gram lengths and candidates (at most 5 and 24).
// Rejected: autocorrelation by FFT of the bytes (finds the period of layers first, needs a threshold, does
// not say where it holds); the brute force of SmartPool, quadratic, which is kept as the published
// reference (SmartPoolPeriod).

// minPeriod is the number of allocations below which a repetition is taken for a loop inside a step.
const minPeriod = 8

// period is a stretch of allocations [first, end) in which, from first+length on, allocation i equals
// allocation i-length.
type period struct {
	first, end, length int
	byStack            bool // only stacks were compared
}

// allocSequence is the detector's view of a device: its recorded allocations in order.
type allocSequence struct {
	level  func(i int) int64 // bytes allocated just before allocation i
	sizes  []int64
	stacks []traces.StackID
	kinds  *frames.Kinds
	table  *traces.Stacks
}

// findPeriod returns the stretch that repeats, and false if none passes the rules above.
func findPeriod(s *allocSequence) (period, bool) {
	exact := func(i, j int) bool { return s.sizes[i] == s.sizes[j] && s.stacks[i] == s.stacks[j] }
	hash := func(i int) uint64 { return frames.Mix(uint64(s.sizes[i])) ^ uint64(s.stacks[i]) }
	if p, ok := s.repetition(exact, hash); ok {
		return p, true
	}
	if !s.mostHaveStacks() {
		return period{}, false
	}
	p, ok := s.repetition(func(i, j int) bool { return s.stacks[i] == s.stacks[j] },
		func(i int) uint64 { return uint64(s.stacks[i]) })
	p.byStack = true
	return p, ok
}

func (s *allocSequence) mostHaveStacks() bool {
	n := 0
	for _, st := range s.stacks {
		if st != traces.NoStack {
			n++
		}
	}
	return n*10 >= len(s.stacks)*9 && len(s.stacks) > 0
}

// repetition applies steps 1 to 4 under one notion of equality, with a hash that agrees with it.
func (s *allocSequence) repetition(equal func(i, j int) bool, hash func(i int) uint64) (period, bool) {
	n := len(s.sizes)
	if n < 2*minPeriod {
		return period{}, false
	}
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = frames.Mix(hash(i))
	}
	var best period
	var all []period
	for _, d := range candidateDistances(hashes) {
		p := longestStretch(n, d, equal, hashes)
		all = append(all, p)
		size, was := p.end-p.first, best.end-best.first
		if size >= 2*d && (size > was || size == was && d < best.length) {
			best = p
		}
	}
	slices.SortFunc(all, func(a, b period) int { return a.length - b.length })
	for _, p := range all {
		if s.isStepOf(p, best, equal) && s.accept(p) {
			return p, true
		}
	}
	return best, s.accept(best)
}

// isStepOf reports whether a longer period consists of this one's steps, except for some steps that differ.
func (s *allocSequence) isStepOf(p, long period, equal func(i, j int) bool) bool {
	if 2*p.length > long.length || p.end-p.first < 3*p.length || p.length < minPeriod {
		return false
	}
	agree := 0
	for i := max(long.first, p.length); i < long.end; i++ {
		if equal(i, i-p.length) {
			agree++
		}
	}
	if 4*agree < 3*(long.end-long.first) {
		return false
	}
	if s.commonFrames(s.stacksOf(p)) > s.commonFrames(s.stacksOf(long)) {
		return false
	}
	low, high := s.level(long.first), s.level(long.first)
	for i := long.first; i < long.end; i++ {
		low, high = min(low, s.level(i)), max(high, s.level(i))
	}
	var at []int64
	for i := s.lowest(p); i >= p.first; i -= p.length {
		at = append(at, s.level(i))
	}
	return stats.Median(at)-low <= (high-low)/50
}

// stacksOf returns the stacks of one period.
func (s *allocSequence) stacksOf(p period) map[traces.StackID]bool {
	own := map[traces.StackID]bool{}
	for i := p.end - p.length; i < p.end; i++ {
		own[s.stacks[i]] = true
	}
	return own
}

// lowest returns the allocation of the stretch's last whole period, where warm-up is over, before which the
// fewest bytes are allocated.
func (s *allocSequence) lowest(p period) int {
	low := p.end - p.length
	for i := low; i < p.end; i++ {
		if s.level(i) < s.level(low) {
			low = i
		}
	}
	return low
}

// accept applies the rules that keep layers and parameters from being mistaken for steps.
func (s *allocSequence) accept(p period) bool {
	return p.length >= minPeriod && !s.insideOneCall(p)
}

// insideOneCall reports whether a period repeats within one step: all its allocations are in the optimizer,
// all in the autograd engine, or all below one module call that not all of the trace's module calls are
// below. (An inference loop consists of module calls alone, too, but its period holds everything that the
// modules allocate, a layer's period only the layer.)
func (s *allocSequence) insideOneCall(p period) bool {
	all := s.moduleStacks()
	shared := frames.KindModuleCall | frames.KindStep | frames.KindBackwardPass
	own := map[traces.StackID]bool{}
	for i := p.first; i < p.first+p.length; i++ {
		k := s.kinds.Of(s.stacks[i])
		// The autograd engine's threads have no Python stack.
		if k.Has(frames.KindBackwardPass) || s.stacks[i] == traces.NoStack && len(all) > 0 {
			k |= frames.KindBackwardPass
		}
		shared &= k
		own[s.stacks[i]] = true
	}
	if shared.Has(frames.KindStep | frames.KindBackwardPass) {
		return true
	}
	return shared.Has(frames.KindModuleCall) && s.commonFrames(own) > s.commonFrames(all)
}

// moduleStacks returns the stacks of allocations made inside a call of a module.
func (s *allocSequence) moduleStacks() map[traces.StackID]bool {
	set := map[traces.StackID]bool{}
	for _, id := range s.stacks {
		if s.kinds.Of(id).Has(frames.KindModuleCall) {
			set[id] = true
		}
	}
	return set
}

// framesOf returns a stack's frames without native ones. In PyTorch's stacks of Python and C++ from Python
// 3.11 on, C++ frames appear among Python's at a depth that differs from one allocation to the next.
func (s *allocSequence) framesOf(id traces.StackID) []traces.FrameID {
	all := s.table.At(id)
	var own []traces.FrameID
	for _, frame := range all {
		if s.kinds.Frames[frame]&(frames.KindPython|frames.KindModule) != 0 {
			own = append(own, frame)
		}
	}
	if len(own) == 0 {
		return all
	}
	return own
}

// commonFrames returns how many outermost frames all stacks of a set share, without native ones.
func (s *allocSequence) commonFrames(set map[traces.StackID]bool) int {
	var common []traces.FrameID
	first := true
	for id := range set {
		frames := s.framesOf(id)
		if first {
			common, first = frames, false
			continue
		}
		n := 0
		for n < min(len(common), len(frames)) && common[len(common)-1-n] == frames[len(frames)-1-n] {
			n++
		}
		common = common[len(common)-n:]
	}
	return len(common)
}

// candidateDistances returns the distances between equal grams with the most votes, for five gram lengths.
func candidateDistances(hashes []uint64) []int {
	var all []int
	var v ballot
	for k := 16; k <= 4096; k *= 4 {
		if 2*k > len(hashes) && k > 16 {
			break
		}
		for _, d := range v.votes(hashes, min(k, len(hashes)/2), 5) {
			if !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	return all
}

// ballot is the working memory of votes, reused from one gram length to the next.
type ballot struct {
	table []gramSlot
	count []int32 // votes for each distance
}

// gramSlot remembers where a gram last ended.
type gramSlot struct {
	gram uint64
	last int32
}

// votes returns up to top distances at which grams of k hashes most often recur. The table is open: a slot
// whose gram was overwritten loses a vote, never adds a wrong stretch, since stretches are compared element
// by element.
func (v *ballot) votes(hashes []uint64, k, top int) []int {
	// Odd, so that it has an inverse modulo 2^64 and no term of the polynomial dies out.
	const base = 0x9e3779b97f4a7c15
	power := uint64(1)
	for range k {
		power *= base
	}
	bits := 12
	for 1<<bits < 2*len(hashes) && bits < 22 {
		bits++
	}
	if v.table == nil {
		v.table, v.count = make([]gramSlot, 1<<bits), make([]int32, len(hashes))
	}
	clear(v.table)
	clear(v.count)
	var roll uint64
	for i, h := range hashes {
		roll = roll*base + h
		if i >= k {
			roll -= hashes[i-k] * power
		}
		if i < k-1 {
			continue
		}
		g := frames.Mix(roll)
		sl := &v.table[g>>(64-bits)]
		if sl.gram == g && sl.last > 0 {
			v.count[i+1-int(sl.last)]++
		}
		*sl = gramSlot{g, int32(i + 1)}
	}
	return largest(v.count, top)
}

// largest returns the indices of the top largest positive counts, largest first, the smaller index first
// among equals.
func largest(count []int32, top int) []int {
	var best []int
	for d, c := range count {
		if c == 0 || len(best) == top && c <= count[best[top-1]] {
			continue
		}
		at := len(best)
		for at > 0 && count[best[at-1]] < c {
			at--
		}
		best = slices.Insert(best, at, d)
		best = best[:min(len(best), top)]
	}
	return best
}

// longestStretch returns the longest stretch in which each element equals the one d before it, with the d
// elements before it.
func longestStretch(n, d int, equal func(i, j int) bool, hashes []uint64) period {
	best := period{length: d}
	start := d
	for i := d; i <= n; i++ {
		if i < n && hashes[i] == hashes[i-d] && equal(i, i-d) {
			continue
		}
		if i-start > best.end-best.first-d {
			best.first, best.end = start-d, i
		}
		start = i + 1
	}
	return best
}

// periodStarts returns the allocations at which iterations begin, in order.
func (s *allocSequence) periodStarts(p period) []int {
	low := s.lowest(p)
	var starts []int
	for i := low; i >= p.first; i -= p.length {
		starts = append(starts, i)
	}
	slices.Reverse(starts)
	for i := low + p.length; i < p.end; i += p.length {
		starts = append(starts, i)
	}
	a := []anchor{s.newAnchor(p, starts[len(starts)/2], true), s.newAnchor(p, starts[len(starts)/2], false)}
	starts = append(s.before(a, p, starts[0]), starts...)
	return append(starts, s.after(a, p, starts[len(starts)-1])...)
}

// anchor is what a boundary looks like: the allocations [at-back, at+ahead), as few as occur once in a
// period. One anchor looks both ways, which takes few allocations even if layers repeat; another looks only
// ahead, for the first step, which follows something else.
type anchor struct {
	at, back, ahead int
	byStack         bool
}

func (s *allocSequence) newAnchor(p period, at int, around bool) anchor {
	a := anchor{at: at, byStack: p.byStack}
	for n := min(4, p.length); ; n = min(2*n, p.length) {
		a.ahead = min(n, len(s.sizes)-at)
		if around {
			a.back = min(n, at)
		}
		unique := true
		for i := at + 1; i < at+p.length && i+a.ahead <= p.end && unique; i++ {
			unique = !s.matches(a, i)
		}
		if unique || n == p.length {
			return a
		}
	}
}

func (s *allocSequence) matches(a anchor, i int) bool {
	if i-a.back < 0 || i+a.ahead > len(s.sizes) {
		return false
	}
	for j := -a.back; j < a.ahead; j++ {
		if s.stacks[i+j] != s.stacks[a.at+j] || !a.byStack && s.sizes[i+j] != s.sizes[a.at+j] {
			return false
		}
	}
	return true
}

// boundary reports whether either anchor matches at allocation i.
func (s *allocSequence) boundary(a []anchor, i int) bool {
	return s.matches(a[0], i) || s.matches(a[1], i)
}

// Iterations that differ have between half and four times as many allocations as the others; farther away the
// chain breaks.
const (
	shortestIteration = 2
	longestIteration  = 4
)

func (s *allocSequence) before(a []anchor, p period, first int) []int {
	var starts []int
	for {
		next := -1
		for i := first - p.length/shortestIteration; i >= 0 && i >= first-longestIteration*p.length; i-- {
			if s.boundary(a, i) {
				next = i
				break
			}
		}
		if next < 0 {
			slices.Reverse(starts)
			return starts
		}
		starts = append(starts, next)
		first = next
	}
}

func (s *allocSequence) after(a []anchor, p period, last int) []int {
	var starts []int
	for {
		next := -1
		for i := last + max(p.length/shortestIteration, 1); i < len(s.sizes) && i <= last+
			longestIteration*p.length; i++ {
			if s.boundary(a, i) {
				next = i
				break
			}
		}
		if next < 0 {
			return starts
		}
		starts = append(starts, next)
		last = next
	}
}
