package combine

import (
	"context"
	"math"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/plan/curve"
	"github.com/gmemtop/gmemtop/traces"
)

// DELTA (Tang, Wang, Zhang, Liu, Zhang, Qiao, Lai, Li: "DELTA: Dynamically Optimizing GPU Memory beyond
// Tensor Recomputation", arXiv 2203.15980, 2022).
//
// The method decides online, without a plan: ops come one by one, and when memory exceeds the budget,
//   - the filter picks what to release: the tensor with the smallest 1/(memory x staleness), that is, large
//     and long unused; unlike in DTR, from which the method descends, the cost of getting it back does not
//     count here;
//   - the director decides how: it compares the time to copy the tensor out and back with the time to
//     recompute it, and takes the cheaper way;
//   - an absent tensor that is needed is brought back on demand: recomputed, with everything that is missing
//     below it, or copied in; and while memory is below the budget, up to five offloaded tensors are
//     prefetched. Copies run on streams of their own.
//
// We implement this rule as described, not the authors' public branch of PyTorch, which differs in three
// places: it compares a compute time in ticks of the system clock (nanoseconds) with a copy time in
// microseconds, so that swapping looks a thousand times too cheap; for a tensor that was swapped before, it
// divides nanoseconds by a score in one over bytes, which practically always decides for recomputing; and its
// prefetch call and its asynchronous copies are commented out, so that copies block.
//
// Our reading: the method runs once over the recorded iteration with clocks for compute and for both
// directions of the link, and what it does becomes the plan. Since the budget holds at every moment,
// releasing comes before the op that would exceed it, not after. A copy out may begin as soon as the buffer's
// last access is over, since the plan is carried out every iteration and knows what it will release. The
// compute cost of a tensor is the time of its whole chain when it is needed, given what is absent now.
// By-products of a chain stay if there is room, as in DTR. Prefetching takes the most recently offloaded
// tensors first: a backward pass needs tensors in reverse order, and the oldest first would fill memory with
// what is needed last. It begins with the first access to an offloaded tensor, and continues with each access
// to a prefetched one: in the forward pass it would only undo what was just done. Without a budget nothing is
// released.
//
// Complexity: O(accesses + releases x (classes of size + length of a chain)): tensors of one size form a list
// in order of their last access, whose first is the stalest, so the filter is exact and needs no sampling.
// Nothing is measured; work counts releases. Rejected: DTR's random sampling of tensors, which trades the
// rule for a speed that the lists give anyway.

// ahead is how many tensors DELTA fetches ahead.
const ahead = 5

// delta is the manager; the fields switch mechanisms off for tests.
type delta struct {
	noDirector, noPrefetch, noStaleness bool
}

// Info implements [plan.Manager].
func (delta) Info() plan.Info {
	return plan.Info{Name: "delta", After: "Tang 2022", Family: plan.Combining, Needs: traces.Dataflow,
		Reading: "DELTA's rule is implemented as described; its public branch mixes units and has its " +
			"prefetching switched off.",
		Summary: "Decides op by op: releases what is largest and longest unused, by a copy or for " +
			"recompute, whichever is cheaper, and fetches up to five tensors ahead."}
}

// Plan implements [plan.Manager].
func (m delta) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var work int64
	pl, err := run(ctx, p, r, m.Info(), nil, func(v *view, limit int64) (plan.Decisions, error) {
		if limit <= 0 {
			return plan.Decisions{}, ctx.Err()
		}
		d, w, err := m.decide(ctx, v, limit)
		work += w
		r.Report(work, work)
		return d, err
	})
	if err != nil {
		return nil, err
	}
	pl.Work += work
	if r.Budget > 0 && pl.Footprint > r.Budget {
		pl.Note("At some op everything that the filter may release is released already, and memory is " +
			"still over the budget.")
	}
	return pl, nil
}

// decide runs the method for a limit on live bytes, more tightly if the scratch of chains turned out larger
// than estimated.
func (m delta) decide(ctx context.Context, v *view, limit int64) (plan.Decisions, int64, error) {
	var best plan.Decisions
	lowest := int64(math.MaxInt64)
	var work int64
	tight := limit
	for range 4 {
		o := newOnline(v, tight, m)
		if err := o.iterate(ctx); err != nil {
			return best, work, err
		}
		work += o.released
		d := o.decisions()
		live := v.chains.PeakLive(d.Absences, d.Reruns)
		if live < lowest {
			best, lowest = d, live
		}
		if live <= limit || tight <= live-limit {
			break
		}
		tight -= live - limit
	}
	return best, work, nil
}

// where says where a buffer's value is.
type where uint8

const (
	inMemory where = iota
	offloaded
	dropped
	worthless // discarded, because the next access overwrites it
)

// online is the state of one run over the iteration.
type online struct {
	delta
	p      *plan.Problem
	chains *chain.Builder
	away   *chain.Set
	budget int64

	gaps   []plan.Gap
	gapsOf []int32
	at     []int32         // of each buffer: its first gap that has not ended
	starts []plan.BufferID // buffers in order of their start
	ends   []plan.BufferID // and of their end

	state []where
	open  []int32 // of each buffer that is away: its absence
	// of each buffer: the position from which it is in memory in its gap; an absence begins no earlier
	since    []plan.OpID
	used     []int64 // of each buffer: when it was last used
	fetched  []bool  // fetched ahead and not used yet
	arrives  []int64 // when its copy in is done
	lock     []int32 // the op, plus one, that forbids releasing it
	wish     []int32 // the op, plus one, that requested it
	asked    []int32 // the search for inputs that met it
	searches int32
	released int64

	lists   classes
	history []plan.BufferID // offloaded ones, newest last
	pending int             // fetched ahead and not used yet

	live, now, outFree, inFree int64
	pinned                     *curve.Tree

	absences []plan.Absence
	wants    []want
}

func newOnline(v *view, budget int64, m delta) *online {
	p, chains, gaps := v.p, v.chains, v.gaps
	nb := len(p.Buffers)
	o := &online{delta: m, p: p, chains: chains, away: chains.NewSet(), budget: budget, gaps: gaps,
		gapsOf: make([]int32, nb+1), state: make([]where, nb),
		open: make([]int32, nb), since: make([]plan.OpID, nb), used: make([]int64, nb),
		fetched: make([]bool, nb), arrives: make([]int64, nb),
		lock: make([]int32, nb), wish: make([]int32, nb), asked: make([]int32, nb), lists: newClasses(p)}
	for i := range gaps {
		o.gapsOf[gaps[i].Buffer+1]++
	}
	for b := range nb {
		o.gapsOf[b+1] += o.gapsOf[b]
		if p.Buffers[b].Life != plan.Inside {
			o.live += p.Rounded(plan.BufferID(b))
		}
	}
	o.at = make([]int32, nb)
	copy(o.at, o.gapsOf)
	o.starts, o.ends = inOrder(p, func(b *plan.Buffer) plan.OpID {
		return b.Start
	}), inOrder(p, func(b *plan.Buffer) plan.OpID { return b.End })
	if p.Hardware.PinnedBytes > 0 {
		o.pinned = curve.New(make([]int64, len(p.Ops)))
	}
	return o
}

// inOrder sorts the buffers that do not persist by a position.
func inOrder(p *plan.Problem, key func(*plan.Buffer) plan.OpID) []plan.BufferID {
	count := make([]int32, len(p.Ops)+2)
	for b := range p.Buffers {
		if p.Buffers[b].Life != plan.Persistent {
			count[key(&p.Buffers[b])+1]++
		}
	}
	for i := range len(p.Ops) + 1 {
		count[i+1] += count[i]
	}
	list := make([]plan.BufferID, count[len(p.Ops)+1])
	for b := range p.Buffers {
		if p.Buffers[b].Life != plan.Persistent {
			k := key(&p.Buffers[b])
			list[count[k]] = plan.BufferID(b)
			count[k]++
		}
	}
	return list
}

// iterate runs the method over the iteration.
func (o *online) iterate(ctx context.Context) error {
	starts, ends := o.starts, o.ends
	for i := range plan.OpID(len(o.p.Ops)) {
		if i%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		for ; len(ends) > 0 && o.p.Buffers[ends[0]].End == i; ends = ends[1:] {
			o.live -= o.p.Rounded(ends[0])
			o.lists.remove(ends[0])
		}
		var news int64
		for ; len(starts) > 0 && o.p.Buffers[starts[0]].Start == i; starts = starts[1:] {
			news += o.p.Rounded(starts[0])
		}
		o.op(i, news)
	}
	return nil
}

// op brings back what op i needs, makes room, and runs it.
func (o *online) op(i plan.OpID, news int64) {
	var drops, loads []plan.BufferID
	touched := false // an offloaded tensor is accessed
	for _, a := range o.p.AccessesOf(i) {
		b := a.Buffer
		if o.lock[b] = int32(i) + 1; o.wish[b] == int32(i)+1 {
			continue
		}
		o.wish[b] = int32(i) + 1
		switch o.state[b] {
		case dropped:
			drops = append(drops, b)
		case offloaded:
			touched = true
			loads = append(loads, b)
		case worthless:
			loads = append(loads, b)
		default:
			touched = touched || o.fetched[b]
		}
	}
	if len(drops) > 0 && len(o.history) > 0 {
		loads = o.inputs(i, drops, loads)
	}
	var arriving, again int64
	for _, b := range loads {
		arriving += o.p.Rounded(b)
		o.back(b, i)
	}
	var c chain.Chain
	if len(drops) > 0 {
		for _, b := range drops {
			again += o.p.Rounded(b)
		}
		var err error
		if c, err = o.chains.At(i, drops, o.away); err == nil {
			o.hold(c.Ops, i)
		} // if there is none, decisions keeps the tensors
	}
	need := arriving + max(c.Peak, again+news)
	for o.live+need > o.budget && o.release(i) {
	}
	room := o.budget - o.live - need
	for _, b := range loads {
		o.load(b)
	}
	for _, b := range drops {
		o.back(b, i)
		o.live += o.p.Rounded(b)
	}
	room = o.byTheWay(c.Ops, i, room)
	if touched && !o.noPrefetch {
		o.prefetch(i, room)
	}
	o.live += news
	o.run(i, c.Time)
}

// back ends a buffer's absence at position i. Its bytes are counted by the caller.
func (o *online) back(b plan.BufferID, i plan.OpID) {
	x := &o.absences[o.open[b]]
	o.away.Remove(b, x.Release)
	x.Fetch = i
	o.away.Add(*x)
	if o.pinned != nil && x.How == plan.Swap {
		o.pinned.Add(int(i), int(x.Before)+1, -o.p.Rounded(b))
	}
	o.state[b], o.since[b] = inMemory, i
}

// load copies a buffer in, or allocates one that is about to be overwritten.
func (o *online) load(b plan.BufferID) {
	o.live += o.p.Rounded(b)
	if o.absences[o.open[b]].How == plan.Swap {
		o.inFree = max(o.inFree, o.now) + o.p.Hardware.H2D.Time(o.p.Rounded(b))
		o.arrives[b] = o.inFree
	}
}

// inputs adds to loads the offloaded tensors that chains of drops at position i read: they are copied in
// rather than recomputed.
func (o *online) inputs(i plan.OpID, drops, loads []plan.BufferID) []plan.BufferID {
	o.searches++
	for _, b := range loads {
		o.asked[b] = o.searches
	}
	stack := o.wants[:0]
	for _, b := range drops {
		o.asked[b] = o.searches
		stack = append(stack, want{b, i})
	}
	for seen := 0; len(stack) > 0 && seen < longestChain; seen++ {
		x := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		ops, _ := o.p.Producer(x.b, x.at)
		for _, by := range ops {
			for _, a := range o.p.AccessesOf(by) {
				buf := &o.p.Buffers[a.Buffer]
				if !a.Mode.Reads() || o.asked[a.Buffer] == o.searches || buf.Life != plan.Inside {
					continue
				}
				o.asked[a.Buffer] = o.searches
				switch {
				case !buf.AliveAt(i) || o.state[a.Buffer] == dropped:
					stack = append(stack, want{a.Buffer, by})
				case o.state[a.Buffer] == offloaded && o.absences[o.open[a.Buffer]].Release < i:
					loads = append(loads, a.Buffer)
				}
			}
		}
	}
	o.wants = stack
	return loads
}

// want is a value: what buffer b holds just before op at.
type want struct {
	b  plan.BufferID
	at plan.OpID
}

// hold keeps a chain's inputs in memory while op i is being prepared.
func (o *online) hold(ops []plan.OpID, i plan.OpID) {
	for _, by := range ops {
		for _, a := range o.p.AccessesOf(by) {
			o.lock[a.Buffer] = int32(i) + 1
		}
	}
}

// byTheWay keeps a chain's by-products that a later op needs, as far as there is room, and returns the
// remaining room.
func (o *online) byTheWay(ops []plan.OpID, i plan.OpID, room int64) int64 {
	for _, by := range ops {
		for _, a := range o.p.AccessesOf(by) {
			b := a.Buffer
			if size := o.p.Rounded(b); a.Mode.Writes() && o.state[b] == dropped &&
				o.p.Buffers[b].AliveAt(i) && size <= room {
				room -= size
				o.absences[o.open[b]].Why += ", stays from a chain that makes it on its way"
				o.back(b, i)
				o.live += size
				o.used[b] = o.now
				o.lists.append(b)
			}
		}
	}
	return room
}

// prefetch copies in the most recently offloaded tensors, while there is room.
func (o *online) prefetch(i plan.OpID, room int64) {
	for len(o.history) > 0 && o.pending < ahead {
		b := o.history[len(o.history)-1]
		if o.state[b] != offloaded || o.absences[o.open[b]].Before < i {
			o.history = o.history[:len(o.history)-1]
			continue
		}
		if o.p.Rounded(b) > room {
			return
		}
		o.history = o.history[:len(o.history)-1]
		room -= o.p.Rounded(b)
		o.absences[o.open[b]].Why += ", fetched ahead"
		o.back(b, i)
		o.load(b)
		o.fetched[b] = true
		o.pending++
		o.used[b] = o.now
		o.lists.append(b)
	}
}

// run advances the clock by an op and the chain before it, and records which tensors were used.
func (o *online) run(i plan.OpID, again int64) {
	for _, a := range o.p.AccessesOf(i) {
		o.now = max(o.now, o.arrives[a.Buffer])
	}
	o.now += again + o.chains.OpTime(i)
	for _, a := range o.p.AccessesOf(i) {
		b := a.Buffer
		if o.fetched[b] {
			o.fetched[b] = false
			o.pending--
		}
		o.lists.remove(b)
		for o.at[b] < o.gapsOf[b+1] && o.gaps[o.at[b]].Before <= i {
			o.at[b]++
		}
		o.used[b] = o.now
		if k := o.at[b]; k < o.gapsOf[b+1] && o.gaps[k].After == i {
			o.since[b] = i
			o.lists.append(b)
		}
	}
}

// decisions returns what the run did.
func (o *online) decisions() plan.Decisions {
	var d plan.Decisions
	var drops []chain.Drop
	for _, x := range o.absences {
		if x.How == plan.Recompute {
			drops = append(drops, chain.Drop{Gap: plan.Gap{Buffer: x.Buffer, After: x.After,
				Before: x.Before}, Release: x.Release, Fetch: x.Fetch, Why: x.Why})
		} else {
			d.Absences = append(d.Absences, x)
		}
	}
	made, _ := o.chains.PlanPossible(drops, d.Absences, 0)
	d.Absences, d.Reruns = append(d.Absences, made.Absences...), made.Reruns
	return d
}
