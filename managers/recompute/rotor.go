package recompute

import (
	"context"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Optimal checkpointing of chains.
//
// Problem: a network is a chain of stages, and memory holds few of their results. Which results stay in which
// sweep, so that the fewest ops run again? Segments (sqrt) run each stage again at most once; with less
// memory than that takes, a stage runs again several times, from checkpoints that are themselves made again.
//
// Way chosen: for stages that are all alike, Griewank and Walther, "Algorithm 799: Revolve", ACM TOMS 26,
// 2000; for stages of any sizes and times Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal
// checkpointing for heterogeneous chains: how to train deep neural networks with limited memory", 2019,
// arXiv 1911.13214, of whose dynamic program Revolve's is the special case. C(s, t, m) is the least time to
// run stages s to t backward within m bytes when the input of s is held. Either stages s to j run forward and
// only the result of j is held,
//
//	C(s, t, m) = forward(s..j) + C(j+1, t, m - result of j) + C(s, j, m),
//
// or stage s runs forward with all that its backward pass needs held,
//
//	C(s, t, m) = forward(s) + C(s+1, t, m - result of s - inside of s) + backward(s).
//
// The first sweep is the forward pass itself and costs nothing. Both ways need memory for what runs; it is
// taken from the iteration: what else is alive at that moment, scratch of the ops included. Where results are
// held is thus decided; which ops run again for that is package chain's business, and it may find fewer.
//
// Our reading. Stages lie between the places at which sqrt may cut, and a result is what crosses a cut;
// where several tensors cross, they are one result. Cuts whose stages' backward passes are not in the
// opposite order are left out, and so are, where there are too many, those that make the smallest stages.
// Sizes are counted in units of their greatest common divisor, or where these are too many in larger ones,
// rounded up; what the program then says of memory is checked, and the largest budget of the program is
// taken whose plan meets the real one.
//
// Complexity: O(stages^3 x units) time and O(stages^2 x units) memory, O(stages^2 x units) time where all
// stages but the first and the last are alike; both are kept within Request.Work by fewer stages and larger
// units. Rejected: the closed form of Revolve (memory differs between the first sweep and later ones, when
// gradients are held, so that it is off by a slot); schedules that give a checkpoint up before its stage has
// run backward, which the paper's authors show can be better, by little, and which no program of this size
// finds.
type rotor struct{}

// Rotor returns the manager "rotor": optimal checkpointing of chains.
func Rotor() plan.Manager { return rotor{} }

// Info implements [plan.Manager].
func (rotor) Info() plan.Info {
	return plan.Info{Name: "rotor", After: "Beaumont 2019", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "stages are what lies between places where one activation crosses; " +
			"tensors that cross together are held together.",
		Summary: "Solves by dynamic programming which results of a chain of stages stay in which sweep " +
			"(Revolve where all stages are alike)."}
}

// rotorWork is the default bound on counted work: steps of the dynamic program.
const rotorWork = 10_000_000

// Plan implements [plan.Manager]. Request.Work bounds the steps of the dynamic program.
func (m rotor) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	work := r.Work
	if work <= 0 {
		work = rotorWork
	}
	var c chains
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		c = newChains(p, b, work)
		return func(limit int64) (plan.Decisions, int64, error) { return c.decide(ctx, limit) }
	})
	if err == nil && r.Budget > 0 {
		pl.Note("%d stages.", c.stages())
	}
	return pl, err
}

// chains are the chains of an iteration, one for each forward pass.
type chains struct {
	b      *chain.Builder
	passes []*stageChain
	work   int64 // for each pass
	// the most ops that may run again together: what would take more is kept
	mostOps int
}

// manyOps is how many ops may run again in any case, together. Where a large network is no chain, dropping
// everything would take millions.
const manyOps = 300_000

func newChains(p *plan.Problem, b *chain.Builder, work int64) chains {
	c := chains{b: b}
	for _, pair := range pairs(p) {
		acts := activations(p, b, pair)
		if len(acts) == 0 {
			continue
		}
		c.passes = append(c.passes, newStageChain(p, b, pair, acts, work))
	}
	c.work = work / int64(max(len(c.passes), 1))
	c.mostOps = min(b.DefaultMaxOps(), max(mostReruns*len(p.Ops), manyOps))
	return c
}

// stages returns how many stages the passes have together.
func (c *chains) stages() (n int) {
	for _, s := range c.passes {
		n += len(s.stages)
	}
	return n
}

// decide returns what takes the least time within the limit on live bytes, as far as the program tells, else
// what takes the least memory.
func (c *chains) decide(ctx context.Context, limit int64) (plan.Decisions, int64, error) {
	if limit <= 0 {
		return plan.Decisions{}, 0, nil
	}
	var work int64
	programs := make([]*rotorProgram, len(c.passes))
	top := 0
	for k, s := range c.passes {
		if ctx.Err() != nil {
			return plan.Decisions{}, work, ctx.Err()
		}
		g := newRotorProgram(s, limit, c.work)
		if err := g.solve(ctx); err != nil {
			return plan.Decisions{}, work, err
		}
		programs[k] = g
		work += g.work
		top = max(top, g.top)
	}
	best := tightest(ctx, top, limit, func(less int) attempt {
		var drops []chain.Drop
		for _, g := range programs {
			drops = append(drops, g.drops(g.top-less)...)
		}
		r, _ := c.b.PlanPossible(drops, nil, c.mostOps)
		work += int64(len(r.Absences) + r.Ops)
		return attempt{plan.Decisions{Absences: r.Absences, Reruns: r.Reruns},
			c.b.PeakLive(r.Absences, r.Reruns), r.Time}
	})
	return best.Decisions, work, nil
}

// attempt is what a program decides with one of its budgets: the peak of live bytes, and the time that it
// takes by the program's own account.
type attempt struct {
	plan.Decisions
	peak, time int64
}

// better reports whether an attempt is to be preferred within a limit: it fits and is faster, or else it is
// smaller.
func (a *attempt) better(b *attempt, limit int64) bool {
	fits, did := a.peak <= limit, b.peak <= limit
	smaller := a.peak < b.peak
	return fits && (!did || a.time < b.time || a.time == b.time && smaller) || !fits && !did && smaller
}

// tightest returns the best attempt. A program's memory is rounded, and knows chains only from outside: of
// its budgets, so many units less than top, that one is looked for whose plan just meets the limit.
func tightest(ctx context.Context, top int, limit int64, make func(less int) attempt) attempt {
	best := attempt{peak: math.MaxInt64, time: math.MaxInt64}
	try := func(less int) bool {
		a := make(less)
		if a.better(&best, limit) {
			best = a
		}
		return a.peak <= limit
	}
	// Fewer units take less: the first budget that fits lies between, if rounding does not get in the way,
	// and then the next ones are worth a look.
	lo, hi := 0, top
	for lo < hi && ctx.Err() == nil {
		if mid := (lo + hi) / 2; try(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	for less := max(lo-2, 0); less <= min(lo+2, top) && ctx.Err() == nil; less++ {
		try(less)
	}
	return best
}

// stage is a part of a forward pass with what it takes.
type stage struct {
	from, to plan.OpID // its ops
	first    plan.OpID // where its backward pass begins: what it holds, or its input, is needed here first
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
	late  int64 // time of making the rest again, each where it is needed
	// what it takes to have what is kept again in a later sweep: alone, and with the result
	inside, all chainCost
	// The most bytes alive, without the stage's input: in the forward pass, and during its backward pass.
	forward, backward int64
}

// chainCost is what running something again takes: nanoseconds, and bytes with what it brings back.
type chainCost struct{ time, peak int64 }

// stageChain is a forward pass in stages.
type stageChain struct {
	acts   []activation
	stages []stage
	unit   int64 // what all sizes of it are multiples of
	// of each position, the bytes alive beside the activations: before it, and with what is made there
	before, during []int64
	end            plan.OpID // of the backward pass
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
		cuts = append(cuts, x) // behind the last activation: ops whose results need not be held follow
	}
	cuts = c.ordered(cuts, pair)
	c.cut(cuts, pair)
	if !c.alike() {
		cuts = c.fewer(cuts, pair, mostStages)
	} else if most := int(math.Cbrt(float64(work) / 2)); len(cuts) >= most {
		var kept []plan.OpID // as many stages to each new one, so that they stay alike
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
			// the cut before stage i is good if that stage begins its backward pass behind those behind it;
			// of several that begin it together, only the first may begin a stage
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

// fewer leaves cuts out until there are so many stages, those first that make the shortest stages.
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

// times asks what it takes to run each stage again when only its input is held.
func (c *stageChain) times(b *chain.Builder) {
	c.each(b, func(i int, set *chain.Set) {
		st := &c.stages[i]
		all := &st.holdings[0]
		all.kept = st.inner
		all.inside, all.all = c.again(b, set, i, st.inner)
		st.again = c.ask(b, set, i, min(st.first, c.usedFirst(st.result)), st.result)
	})
}

// each calls do for each stage with what is out of memory when only its input is held.
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

// again returns what it takes to have a part of stage i's inside again, and that with the stage's result.
func (c *stageChain) again(b *chain.Builder, s *chain.Set, i int, kept []int32) (inside, all chainCost) {
	st := &c.stages[i]
	inside = c.ask(b, s, i, st.first, kept)
	return inside, c.ask(b, s, i, min(st.first, c.usedFirst(st.result)), kept, st.result)
}

// ask returns what it takes to have activations again at a position, but for the input of stage i.
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
	if err != nil { // never: what is dropped can be made again
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

// loads works out what is alive beside the activations, which are all dropped throughout, as
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

// forward returns the most bytes alive while stage i runs first, without its input, where a part of its
// inside is kept.
func (c *stageChain) forward(i int, kept []int32) (most int64) {
	s := &c.stages[i]
	input, size := c.input(i)
	for x := s.from; x < s.to; x++ {
		held := -size
		for _, list := range [][]int32{input, kept} {
			for _, k := range list {
				if c.acts[k].After < x {
					held += c.acts[k].bytes
				}
			}
		}
		most = max(most, c.during[x]+held)
	}
	return most
}

// backward returns the most bytes alive during the backward pass of stage i, without its input, where a part
// of its inside is kept.
func (c *stageChain) backward(i int, kept []int32) int64 {
	input, size := c.input(i)
	from, to := c.backwardPass(i)
	most := -size // where it has no backward pass of its own
	for x := from; x < to; x++ {
		most = max(most, c.during[x]+c.heldAt(x, input, kept)-size)
	}
	return most
}

// heldAt returns the bytes of activations that are still needed when the backward pass comes to a position.
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
