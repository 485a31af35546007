package recompute

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// The stages of a forward pass, for rotor, rockmate and pofo: where they begin and end, what stays inside and
// what crosses, and what each costs to run forward, to rerun and to run backward.

// stage is a part of a forward pass and its costs.
type stage struct {
	from, to plan.OpID // its ops
	first    plan.OpID // where its backward pass begins: what it holds, or its input, is first needed here
	inner    []int32   // activations that stay inside, as indices
	result   []int32   // activations that cross its end
	size     int64     // bytes of the result
	again    chainCost // of running it again for its result
	// bytes alive just before its backward pass, without any activation that could be dropped
	before int64
	// The most bytes alive, without its input: while it runs first, with nothing of its inside held. Where
	// its input is held anyway (held..) the input is left out.
	forward, forwardHeld int64
	holdings             []holding // the first holds all
}

// holding is a way to hold a stage between its forward and its backward pass: its result, and all or a part
// of what stays inside.
type holding struct {
	kept  []int32 // of what stays inside
	bytes int64
	late  int64 // time to recompute the rest, each value where it is needed
	// the cost of recomputing in a later sweep what is kept: alone, and with the result
	inside, all chainCost
	// The most bytes alive, without the stage's input: in the forward pass, and during its backward pass.
	forward, backward int64
}

// chainCost is the cost of a rerun: nanoseconds, and peak bytes including what it brings back.
type chainCost struct{ time, peak int64 }

// stageChain is a forward pass in stages.
type stageChain struct {
	acts   []activation
	stages []stage
	unit   int64 // what all sizes of it are multiples of
	// the bytes alive besides the activations: before each position, and including what is made there
	before, during []int64
	end            plan.OpID // of the backward pass
	scratch        []int64   // of forward and backward, by op
}

// mostStages bounds the stages of a chain whose stages differ.
const mostStages = 96

func newStageChain(
	p *plan.Problem,
	b *chain.Builder,
	pair plan.Pair,
	acts []activation,
	work int64,
) *stageChain {
	c := &stageChain{acts: acts}
	crossing := crossings(p, acts, pair.Turn)
	cuts := places(acts, crossing)
	if x := acts[len(acts)-1].made + 1; x < pair.Turn && crossing[x] == 1 {
		cuts = append(cuts, x) // after the last activation: the ops that follow need not hold results
	}
	cuts = c.ordered(cuts, pair)
	c.cut(cuts, pair)
	if !c.alike() {
		cuts = c.fewer(cuts, pair, mostStages)
	} else if most := int(math.Cbrt(float64(work) / 2)); len(cuts) >= most {
		var kept []plan.OpID // merge equally many stages into each new one, so that they stay alike
		every := len(cuts)/most + 1
		for i := every - 1; i < len(cuts); i += every {
			kept = append(kept, cuts[i])
		}
		cuts = kept
	}
	c.cut(cuts, pair)
	c.times(b)
	c.loads(p, pair)
	return c
}

// alike reports whether all stages but the first and the last hold and pass on the same bytes.
func (c *stageChain) alike() bool {
	for i := 2; i < len(c.stages)-1; i++ {
		x, y := &c.stages[i], &c.stages[1]
		if x.size != y.size || x.holdings[0].bytes != y.holdings[0].bytes {
			return false
		}
	}
	return true
}

// ordered leaves those cuts out whose stages would not run backward in the opposite order.
func (c *stageChain) ordered(cuts []plan.OpID, pair plan.Pair) []plan.OpID {
	for {
		c.cut(cuts, pair)
		var kept []plan.OpID
		last := pair.Turn - 1 // the last stage needs something first
		for i := len(c.stages) - 1; i > 0; i-- {
			// the cut before stage i is good if that stage begins its backward pass after those of the stages
			// behind it; if several begin it together, only the first may begin a stage
			switch f := c.stages[i].first; {
			case f == math.MaxInt32:
			case f > last:
				kept = append(kept, cuts[i-1])
				last = f
			case f == last && len(kept) > 0:
				kept[len(kept)-1] = cuts[i-1]
			}
		}
		slices.Reverse(kept)
		if len(kept) == len(cuts) {
			return cuts
		}
		cuts = kept
	}
}

// fewer drops cuts until at most most stages remain, first those that make the shortest stages.
func (c *stageChain) fewer(cuts []plan.OpID, pair plan.Pair, most int) []plan.OpID {
	if len(cuts) < most {
		return cuts
	}
	var total int64
	for i := range c.acts {
		total += c.acts[i].bytes
	}
	var kept []plan.OpID
	var sum int64
	next := 0
	for i := range c.acts {
		for ; next < len(cuts) && cuts[next] <= c.acts[i].made; next++ {
			if sum*int64(most) >= total*int64(len(kept)+1) {
				kept = append(kept, cuts[next])
			}
		}
		sum += c.acts[i].bytes
	}
	return c.ordered(kept, pair)
}

// cut makes the stages between cuts, with what stays inside and what crosses.
func (c *stageChain) cut(cuts []plan.OpID, pair plan.Pair) {
	c.stages = make([]stage, len(cuts)+1)
	for i := range c.stages {
		s := &c.stages[i]
		s.from, s.to, s.first = pair.Begin, pair.Turn, math.MaxInt32
		s.holdings = make([]holding, 1)
		if i > 0 {
			s.from = cuts[i-1]
		}
		if i < len(cuts) {
			s.to = cuts[i]
		}
	}
	for k := range c.acts {
		a := &c.acts[k]
		i := segmentOf(cuts, a.made)
		if i == len(cuts) || a.After < cuts[i] {
			s := &c.stages[i]
			s.inner, s.first = append(s.inner, int32(k)), min(s.first, a.Before)
			s.holdings[0].bytes += a.bytes
			continue
		}
		for ; i < len(cuts) && a.After >= cuts[i]; i++ {
			s := &c.stages[i]
			s.result, s.size = append(s.result, int32(k)), s.size+a.bytes
			c.stages[i+1].first = min(c.stages[i+1].first, a.Before)
		}
	}
	if s := &c.stages[0]; s.first == math.MaxInt32 { // it holds nothing; its input is no activation
		s.first = pair.End
	}
}

// times computes the cost of rerunning each stage when only its input is held.
func (c *stageChain) times(b *chain.Builder) {
	c.each(b, func(i int, set *chain.Set) {
		st := &c.stages[i]
		all := &st.holdings[0]
		all.kept = st.inner
		all.inside, all.all = c.again(b, set, i, st.inner)
		st.again = c.ask(b, set, i, min(st.first, c.usedFirst(st.result)), st.result)
	})
}

// each calls do for each stage with what is out of memory when only the stage's input is held.
func (c *stageChain) each(b *chain.Builder, do func(i int, set *chain.Set)) {
	s := b.NewSet()
	for k := range c.acts {
		s.AddGap(c.acts[k].Gap, plan.Recompute)
	}
	for i := range c.stages {
		if i > 0 {
			for _, k := range c.stages[i-1].result {
				s.Remove(c.acts[k].Buffer, c.acts[k].After+1)
			}
		}
		do(i, s)
		if i > 0 {
			for _, k := range c.stages[i-1].result {
				s.AddGap(c.acts[k].Gap, plan.Recompute)
			}
		}
	}
}

// again returns the cost of recomputing a part of stage i's inside, and of that and the stage's result.
func (c *stageChain) again(b *chain.Builder, s *chain.Set, i int, kept []int32) (inside, all chainCost) {
	st := &c.stages[i]
	inside = c.ask(b, s, i, st.first, kept)
	return inside, c.ask(b, s, i, min(st.first, c.usedFirst(st.result)), kept, st.result)
}

// ask returns the cost of recomputing activations at a position, excluding the input of stage i.
func (c *stageChain) ask(b *chain.Builder, s *chain.Set, i int, at plan.OpID, lists ...[]int32) chainCost {
	var buffers []plan.BufferID
	for _, list := range lists {
		for _, k := range list {
			if i == 0 || !slices.Contains(c.stages[i-1].result, k) {
				buffers = append(buffers, c.acts[k].Buffer)
			}
		}
	}
	if len(buffers) == 0 {
		return chainCost{}
	}
	x, err := b.At(at, buffers, s)
	if err != nil { // never: what is dropped can be recomputed
		return chainCost{math.MaxInt64 / 1024, math.MaxInt64 / 1024}
	}
	return chainCost{x.Time, x.Peak}
}

// usedFirst returns the position at which one of the activations is needed first.
func (c *stageChain) usedFirst(list []int32) plan.OpID {
	at := plan.OpID(math.MaxInt32)
	for _, k := range list {
		at = min(at, c.acts[k].Before)
	}
	return at
}

// loads computes what is alive besides the activations, which are all dropped throughout, as
// [chain.Builder.PeakLive] does.
func (c *stageChain) loads(p *plan.Problem, pair plan.Pair) {
	n := len(p.Ops)
	before, during := make([]int64, n+1), make([]int64, n+1)
	var resident int64
	for i := range p.Buffers {
		buf, size := &p.Buffers[i], p.Rounded(plan.BufferID(i))
		c.unit = gcd(c.unit, size)
		if buf.Life != plan.Inside {
			resident += size
		}
		if buf.Life != plan.Persistent {
			before[buf.End] -= size
			during[buf.Start] += size
		}
	}
	for k := range c.acts {
		a := &c.acts[k]
		before[a.After+1] -= a.bytes
		during[a.Before] += a.bytes
	}
	live := resident
	for i := range n + 1 {
		live += before[i]
		before[i] = live
		live += during[i]
		during[i] = live
	}
	c.before, c.during, c.end = before, during, pair.End
	for i := range c.stages {
		s := &c.stages[i]
		s.before = before[min(s.first, plan.OpID(n))]
		for x := s.from; x < s.to; x++ {
			s.forward = max(s.forward, during[x])
		}
		s.forwardHeld = c.forward(i, nil)
		whole := &s.holdings[0]
		whole.forward, whole.backward = c.forward(i, s.inner), c.backward(i, s.inner)
	}
}

// input returns what crosses into stage i, and its bytes.
func (c *stageChain) input(i int) ([]int32, int64) {
	if i == 0 {
		return nil, 0
	}
	return c.stages[i-1].result, c.stages[i-1].size
}

// forward returns the peak bytes while stage i first runs, without its input, if a part of its inside is
// kept.
func (c *stageChain) forward(i int, kept []int32) int64 {
	s := &c.stages[i]
	input, size := c.input(i)
	held := c.changes(s.from, s.to)
	for _, list := range [][]int32{input, kept} {
		for _, k := range list {
			if a := &c.acts[k]; a.After < s.to-1 {
				held[max(a.After+1-s.from, 0)] += a.bytes
			}
		}
	}
	return max(0, c.highest(s.from, -size, held))
}

// backward returns the peak bytes during the backward pass of stage i, without its input, if a part of its
// inside is kept.
func (c *stageChain) backward(i int, kept []int32) int64 {
	input, size := c.input(i)
	from, to := c.backwardPass(i)
	held := c.changes(from, to)
	sum := -size
	for _, list := range [][]int32{input, kept} {
		for _, k := range list {
			a := &c.acts[k]
			if a.Before > from {
				sum += a.bytes
			}
			if from < a.Before && a.Before < to {
				held[a.Before-from] -= a.bytes
			}
		}
	}
	return max(-size, c.highest(from, sum, held)) // -size if it has no backward pass of its own
}

// changes returns a slice of zeros for the ops in [from, to), valid until the next call.
func (c *stageChain) changes(from, to plan.OpID) []int64 {
	n := int(max(to-from, 0))
	c.scratch = slices.Grow(c.scratch[:0], n)[:n]
	clear(c.scratch)
	return c.scratch
}

// highest returns the peak bytes during consecutive ops from `from`: held bytes at the start, and changes[k]
// more before the k-th op.
func (c *stageChain) highest(from plan.OpID, held int64, changes []int64) int64 {
	most := int64(math.MinInt64)
	for k, change := range changes {
		held += change
		most = max(most, c.during[int(from)+k]+held)
	}
	return most
}

// heldAt returns the bytes of activations that are still needed when the backward pass reaches a position.
func (c *stageChain) heldAt(x plan.OpID, lists ...[]int32) (held int64) {
	for _, list := range lists {
		for _, k := range list {
			if x < c.acts[k].Before {
				held += c.acts[k].bytes
			}
		}
	}
	return held
}

// backwardPass returns the ops of stage i's backward pass.
func (c *stageChain) backwardPass(i int) (from, to plan.OpID) {
	from, to = c.stages[i].first, c.end
	if i == len(c.stages)-1 {
		from = c.stages[i].to // the turn
	}
	if i > 0 {
		to = c.stages[i-1].first
	}
	return from, min(to, plan.OpID(len(c.during)-1))
}

func gcd(x, y int64) int64 {
	for y > 0 {
		x, y = y, x%y
	}
	return x
}
