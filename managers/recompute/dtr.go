package recompute

import (
	"context"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Dynamic tensor rematerialisation.
//
// Problem: keep an iteration within a budget without knowing what comes: when memory is short, evict
// something; when something evicted is read, recompute it.
//
// Approach: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor
// Rematerialization", ICLR 2021, arXiv 2006.09616. Ops are carried out in order. When what an op needs does
// not fit, evict the resident tensor with the smallest
//
//	h = (c + cost of its evicted neighbourhood) / (m * s)
//
// where c is the time of the ops that make it, m its bytes, and s the time since its last use. The evicted
// neighbourhood is what would have to be recomputed with it or because of it: the evicted tensors connected
// to it through evicted ones. As in the paper's h_eq it is kept in a union-find structure: evicting joins
// components; recomputing a tensor subtracts its cost from its component without splitting it.
//
// The policy is online, but the iteration is known. So it runs here once, on a simulated clock of op
// durations, and what it did becomes the plan: each eviction an absence, each materialisation a rerun.
// Nothing looks ahead, except in the places named below.
//
// Our reading. A plan acts between ops: what is evicted for an op, or for a rerun before it, leaves at that
// op's position. By-products of a rerun stay if memory allows, as in the paper; otherwise they are dropped
// within the rerun, smallest c/m first, when nothing else is left to evict. Only buffers that can be
// recomputed whatever else is dropped are evicted ([chain.Builder.Recomputable]): the paper's tensors are
// immutable and never freed for good, while ours are changed in place and end. A buffer that is never touched
// again is not evicted: its end is recorded. With more than exhaustive resident tensors, each shortage looks
// at a sample of them with a random start, the paper's own remedy (it samples sqrt(n)).
//
// Complexity: O(ops + work), where work is the tensors looked at: at most exhaustive in each shortage, plus
// the chains. Within one shortage a heap with lazy re-evaluation takes the minimum: evicting can only raise
// the cost of the others, so a stale minimum is re-evaluated and put back. Rejected: the exact neighbourhood
// e*, which walks the graph for every tensor at every eviction and which the paper finds hardly better.
type dtr struct {
	// withoutStaleness and withoutNeighbours take s and the neighbourhood out of h. For the ablation.
	withoutStaleness, withoutNeighbours bool
}

// A shortage looks at all of up to exhaustive resident tensors, and of more at a sample of sampled; it looks
// at degree neighbours of each.
const (
	exhaustive = 1024
	sampled    = 256
	degree     = 64
)

// DTR returns the manager "dtr": dynamic tensor rematerialisation, carried out at planning time.
func DTR() plan.Manager { return dtr{} }

// Info implements [plan.Manager].
func (dtr) Info() plan.Info {
	return plan.Info{Name: "dtr", After: "Kirisame 2021", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "the online policy runs at planning time and evicts between ops; what cannot be made " +
			"again in every case is kept.",
		Summary: "When memory is short, evicts what is large, long unused and cheap to recompute, and " +
			"recomputes it when it is read."}
}

// Plan implements [plan.Manager]. Request.Work bounds the reruns; 0 is 64 times the iteration or 200,000,
// whichever is less, or twice the iteration if that is more. After that nothing more is evicted.
func (m dtr) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	tired := false
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		return func(limit int64) (plan.Decisions, int64, error) {
			if limit <= 0 {
				return plan.Decisions{}, 0, nil
			}
			o := newOnline(p, b, m, limit, r)
			drops, err := o.run(ctx)
			if err != nil {
				return plan.Decisions{}, o.work, err
			}
			tired = o.tired
			res, err := b.PlanDrops(drops, nil, math.MaxInt)
			return plan.Decisions{Absences: res.Absences, Reruns: res.Reruns}, o.work, err
		}
	})
	if err == nil && tired {
		pl.Note("Evicting stopped when as many ops had run again as the work limit allows: a policy that " +
			"never looks ahead can thrash.")
	}
	return pl, err
}

// online is the state of the policy while it carries the iteration out.
type online struct {
	p     *plan.Problem
	b     *chain.Builder
	m     dtr
	limit int64

	live    int64
	now     int64 // the simulated clock
	next    []int32
	last    []int64     // of each buffer, when it was last used
	held    []plan.OpID // of each buffer, the last position at which it was used, brought back or made
	since   []plan.OpID // of each buffer that is evicted, its Release
	cost    []int64     // for each buffer, the time of the ops that make its current contents
	evicted []bool
	away    *chain.Set
	drops   []chain.Drop
	again   int // ops rerun
	most    int
	tired   bool
	work    int64

	starts, ends [][]plan.BufferID
	evictable    evictable
	locked       []plan.OpID // of each buffer: it is in use at this position, plus one
}

func newOnline(p *plan.Problem, b *chain.Builder, m dtr, limit int64, r plan.Request) *online {
	nb := len(p.Buffers)
	o := &online{p: p, b: b, m: m, limit: limit, next: make([]int32, nb), last: make([]int64, nb),
		held: make([]plan.OpID, nb), since: make([]plan.OpID, nb),
		cost: make([]int64, nb), evicted: make([]bool, nb), away: b.NewSet(), locked: make([]plan.OpID, nb),
		most: min(b.DefaultMaxOps(), max(200_000, 2*len(p.Ops)))}
	if r.Work > 0 {
		o.most = int(min(r.Work, math.MaxInt32))
	}
	o.starts, o.ends = make([][]plan.BufferID, len(p.Ops)+1), make([][]plan.BufferID, len(p.Ops)+1)
	for i := range p.Buffers {
		buf, id := &p.Buffers[i], plan.BufferID(i)
		if buf.Life != plan.Inside {
			o.live += p.Rounded(id)
		}
		if buf.Life != plan.Persistent {
			o.starts[buf.Start] = append(o.starts[buf.Start], id)
			o.ends[buf.End] = append(o.ends[buf.End], id)
		}
	}
	o.evictable = newEvictable(o, r.Seed)
	return o
}

// run simulates the iteration and returns what was evicted when.
func (o *online) run(ctx context.Context) ([]chain.Drop, error) {
	for i := range o.p.Ops {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := o.op(plan.OpID(i)); err != nil {
			return nil, err
		}
	}
	return o.drops, nil
}

// op makes room, makes again what op i reads, and runs it.
func (o *online) op(i plan.OpID) error {
	p := o.p
	for _, b := range o.ends[i] {
		o.live -= p.Rounded(b)
		o.evictable.remove(b)
	}
	var wanted []plan.BufferID
	for _, a := range p.AccessesOf(i) {
		if o.evicted[a.Buffer] && o.locked[a.Buffer] != i+1 {
			wanted = append(wanted, a.Buffer)
		}
		o.locked[a.Buffer] = i + 1
	}
	var fresh int64
	for _, b := range o.starts[i] {
		fresh += p.Rounded(b)
	}
	if err := o.materialise(i, wanted, fresh); err != nil {
		return err
	}
	o.live += fresh
	o.now += o.b.OpTime(i)
	for _, a := range p.AccessesOf(i) {
		o.use(a, i)
	}
	return nil
}

// use notes that op i touched a buffer, and puts the buffer at the policy's disposal if it may leave now.
func (o *online) use(a plan.Access, i plan.OpID) {
	b := a.Buffer
	touches := o.p.TouchesOf(b)
	for int(o.next[b]) < len(touches) && touches[o.next[b]].Op <= i {
		o.next[b]++
	}
	o.last[b], o.held[b] = o.now, i
	switch a.Mode {
	case plan.Write:
		o.cost[b] = o.b.OpTime(i)
	case plan.Mutate:
		o.cost[b] += o.b.OpTime(i)
	}
	o.evictable.remove(b)
	if o.p.Buffers[b].Life != plan.Inside || int(o.next[b]) == len(touches) || o.p.Rounded(b) == 0 {
		return
	}
	g := plan.Gap{Buffer: b, After: i, Before: touches[o.next[b]].Op}
	if g.Before <= i+1 {
		return // there is no position between
	}
	if ok, _ := o.b.Recomputable(g); ok {
		o.evictable.add(b)
	}
}

// materialise brings the wanted buffers back before op i, and makes room for what the op allocates.
func (o *online) materialise(i plan.OpID, wanted []plan.BufferID, fresh int64) error {
	if len(wanted) == 0 {
		o.shrink(i, o.live+fresh-o.limit)
		return nil
	}
	needed := len(wanted)
	c, err := o.b.At(i, wanted, o.away)
	if err != nil {
		return err
	}
	for _, op := range c.Ops { // what the chain uses stays; its by-products may stay
		for _, a := range o.p.AccessesOf(op) {
			if o.locked[a.Buffer] != i+1 && o.evicted[a.Buffer] && a.Mode.Writes() {
				wanted = append(wanted, a.Buffer)
			}
			o.locked[a.Buffer] = i + 1
		}
	}
	// the dearest first: those stay the longest
	slices.SortStableFunc(wanted[needed:], func(x, y plan.BufferID) int {
		dx, dy := float64(o.cost[x])/float64(o.p.Rounded(x)), float64(o.cost[y])/float64(o.p.Rounded(y))
		switch {
		case dx > dy:
			return -1
		case dx < dy:
			return 1
		}
		return int(x) - int(y)
	})
	for {
		if len(wanted) > needed {
			if c, err = o.b.At(i, wanted, o.away); err != nil {
				return err
			}
		}
		back := fresh
		for _, b := range wanted {
			back += o.p.Rounded(b)
		}
		over := o.live + max(back, c.Peak) - o.limit
		if over -= o.shrink(i, over); over <= 0 || len(wanted) == needed {
			break
		}
		for over > 0 && len(wanted) > needed {
			over -= o.p.Rounded(wanted[len(wanted)-1])
			wanted = wanted[:len(wanted)-1]
		}
		if len(wanted) == needed {
			if c, err = o.b.At(i, wanted, o.away); err != nil {
				return err
			}
		}
	}
	o.again += len(c.Ops)
	o.now += c.Time
	for _, op := range c.Ops {
		for _, a := range o.p.AccessesOf(op) {
			o.last[a.Buffer] = o.now
		}
	}
	for _, b := range wanted {
		o.bring(b, i)
	}
	return nil
}

// shrink evicts until it has freed that many bytes or nothing is left to evict, and returns what it freed.
func (o *online) shrink(i plan.OpID, bytes int64) (gained int64) {
	if bytes <= 0 {
		return 0
	}
	if o.again > o.most {
		o.tired = true
		return 0
	}
	o.evictable.begin(i, false)
	for gained < bytes {
		b, ok := o.evictable.least()
		if !ok {
			if !o.evictable.partial {
				break
			}
			o.evictable.begin(i, true) // the sample did not suffice
			continue
		}
		gained += o.p.Rounded(b)
		o.evict(b, i)
	}
	o.evictable.end()
	return gained
}

func (o *online) evict(b plan.BufferID, i plan.OpID) {
	o.live -= o.p.Rounded(b)
	o.evicted[b], o.since[b] = true, i
	o.away.Add(plan.Absence{Buffer: b, Release: i, Fetch: math.MaxInt32, Before: math.MaxInt32,
		How: plan.Recompute})
	o.evictable.join(b)
}

// bring records that a buffer is back from position i on.
func (o *online) bring(b plan.BufferID, i plan.OpID) {
	before := o.p.TouchesOf(b)[o.next[b]].Op
	o.drops = append(o.drops, chain.Drop{Gap: plan.Gap{Buffer: b, After: o.held[b], Before: before},
		Release: o.since[b], Fetch: i, Why: "evicted, least h"})
	o.away.Remove(b, o.since[b])
	o.evicted[b], o.held[b] = false, i
	o.live += o.p.Rounded(b)
	o.evictable.leave(b)
	if before > i+1 {
		o.evictable.add(b) // made in passing: it may leave again before it is read
	}
}
