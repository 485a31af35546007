package recompute

import (
	"cmp"
	"context"
	"slices"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Selective activation checkpointing by a program over modules.
//
// Problem: which modules should be checkpointed, and how much of each module's output should be discarded, so
// that the peak of the backward pass stays within a budget and the rerun time is least? Within a module some
// ops are cheap to rerun for their size, others are not.
//
// Approach: what PyTorch ships in torch.distributed._tools (sac_estimator, and sac_ilp with sac_milp and
// get_optimal_checkpointing_policy_per_module). Each module has a curve of rerun time over bytes discarded,
// made by discarding first the op that frees the most bytes for its time. A linear program chooses the bytes
// d of each module,
//
//	minimise the curves at d   subject to   d of modules 1 to k together >= the load over the budget there
//
// where a moment of the forward pass counts the modules finished by then, and one of the backward pass those
// that have not begun their own; a module's discarded values are all back when its backward pass begins. A
// knapsack in each module then picks the ops whose results are saved, as PyTorch's policies do.
//
// PyTorch uses a solver because its modules are nested and a flag forbids checkpoints within checkpoints: it
// checkpoints one depth of modules or another. Here modules are stretches between places where few
// activations cross, like the segments of sqrt, and instead of depths we try different numbers of them.
// Stretches are not nested, so flags are unnecessary, all rows are over prefixes, and curves are convex. Then
// buying the cheapest bytes among the first k modules, for k = 1, 2 and so on, is optimal: a test compares it
// with a solver.
//
// What is not claimed: PyTorch estimates a module's peak from its own statistics (inputs, outputs and
// gradients of modules); here the recorded load counts. Its solver stops at a gap of 5 %; this one does not.
//
// Complexity: O(activations log activations) for each number of modules and each limit, and a chain plan.
// Rejected: the solver (seconds in place of microseconds for the same optimum).
type sac struct{}

// Info implements [plan.Manager].
func (sac) Info() plan.Info {
	return plan.Info{
		Name: "sac-ilp", After: "PyTorch 2024", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "modules are stretches between places where few activations cross, and several numbers of " +
			"them are tried; the recorded load stands for the estimated one.",
		Summary: "A linear program chooses how much of its activations each module discards, and a " +
			"knapsack in each module chooses which.",
	}
}

// Plan implements [plan.Manager].
func (m sac) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var chosen *modules
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		seg := newSegmenter(p, b)
		var all []*modules
		for _, k := range seg.counts() {
			all = append(all, newModules(p, b, &seg, k))
		}
		return func(limit int64) (d plan.Decisions, work int64, err error) {
			var least chain.Result
			var peak int64
			for i, s := range all {
				if ctx.Err() != nil {
					return d, work, ctx.Err()
				}
				work++
				x := s.decide(limit)
				high := b.PeakLive(x.Absences, x.Reruns)
				fits, fitted := high <= limit, peak <= limit
				if i == 0 || fits && (!fitted || x.Time < least.Time) || !fits && !fitted && high < peak {
					least, peak, chosen = x, high, s
				}
			}
			return plan.Decisions{Absences: least.Absences, Reruns: least.Reruns}, work, nil
		}
	})
	if err != nil {
		return nil, err
	}
	pl.Note("%d modules, %d of them checkpointed.", len(chosen.list), chosen.checkpointed)
	return pl, nil
}

// module is a stretch of the forward pass with what may be discarded within.
type module struct {
	acts  []activation
	times []float64
	bytes int64
	// first is the op that first needs one of its activations in the backward pass, last the last op of the
	// forward pass that does
	first, last plan.OpID
	bag         *knapsack // nil until it is needed
}

// policyQuanta is how finely a module's knapsack counts bytes: PyTorch solves it exactly, and a thousandth of
// a module is less than the packing of a plan wastes.
const policyQuanta = 1000

// modules is the program for one problem.
type modules struct {
	b    *chain.Builder
	load []int64
	// of each op, how many modules in order can have discarded something while it runs
	done         []int32
	list         []module // in the order in which they are made
	checkpointed int
}

// newModules cuts each forward pass into at most count modules.
func newModules(p *plan.Problem, b *chain.Builder, seg *segmenter, count int) *modules {
	s := &modules{b: b, load: p.Load()}
	for _, pass := range seg.passes {
		times := ownTimes(p, b, pass.acts)
		cuts := choose(pass.acts, pass.cuts, count)
		list := make([]module, len(cuts)+1)
		for i, a := range pass.acts {
			k := segmentOf(cuts, a.made)
			if segmentOf(cuts, a.After) != k { // the input of the next module, which is saved
				continue
			}
			x := &list[k]
			if len(x.acts) == 0 || a.Before < x.first {
				x.first = a.Before
			}
			x.last = max(x.last, a.After)
			x.acts, x.times, x.bytes = append(x.acts, a), append(x.times, times[i]), x.bytes+a.bytes
		}
		for _, x := range list {
			if len(x.acts) > 0 {
				s.list = append(s.list, x)
			}
		}
	}
	s.count(len(p.Ops))
	return s
}

// count fills done: the last module whose forward pass is over and whose backward pass has not begun.
func (s *modules) count(n int) {
	s.done = make([]int32, n)
	next := make([]int32, n+1) // the first op from here on that has no number yet
	for i := range next {
		next[i] = int32(i)
	}
	find := func(i int32) int32 {
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}
	for k := len(s.list); k > 0; k-- {
		x := &s.list[k-1]
		for i := find(int32(x.last) + 1); i < int32(x.first); i = find(i) {
			s.done[i], next[i] = int32(k), i+1
		}
	}
}

// piece is a part of a module's curve.
type piece struct {
	module int
	bytes  int64
	rate   float64 // nanoseconds a byte
}

// curves returns the pieces of all modules, the cheapest byte first.
func (s *modules) curves() (all []piece) {
	for k := range s.list {
		x := &s.list[k]
		for i := range x.acts {
			all = append(all, piece{k, x.acts[i].bytes, x.times[i] / float64(x.acts[i].bytes)})
		}
	}
	slices.SortStableFunc(all, func(a, b piece) int { return cmp.Compare(a.rate, b.rate) })
	return all
}

// excess returns for each k by how much the load passes the limit at moments at which just the first k
// modules can have discarded anything.
func (s *modules) excess(limit int64) []int64 {
	over := make([]int64, len(s.list)+1)
	for at, k := range s.done {
		over[k] = max(over[k], s.load[at]-limit)
	}
	return over
}

// discard returns how many bytes each module discards at the least cost. over[k] is what the first k must
// discard together; if they do not have as much, they discard everything.
func discard(curves []piece, over []int64) []int64 {
	bytes := make([]int64, len(over)-1)
	var sum int64
	curves = slices.Clone(curves)
	for k := 1; k < len(over); k++ {
		for i := range curves {
			if sum >= over[k] {
				break
			}
			if c := &curves[i]; c.module < k {
				take := min(c.bytes, over[k]-sum)
				c.bytes -= take
				bytes[c.module] += take
				sum += take
			}
		}
	}
	return bytes
}

// decide returns what to discard within a limit; nothing without one.
func (s *modules) decide(limit int64) chain.Result {
	s.checkpointed = 0
	if limit <= 0 {
		return chain.Result{}
	}
	var drops []chain.Drop
	for k, bytes := range discard(s.curves(), s.excess(limit)) {
		if bytes == 0 {
			continue
		}
		s.checkpointed++
		x := &s.list[k]
		if x.bag == nil {
			x.bag = fill(x.acts, x.times, policyQuanta)
		}
		saved := x.bag.best(int((x.bytes - bytes) * policyQuanta / max(x.bytes, 1)))
		for i := range x.acts {
			if a := &x.acts[i]; !saved[i] {
				drops = append(drops, chain.Drop{
					Gap: a.Gap, Fetch: max(x.first, a.After+1), Why: "discarded by its module",
				})
			}
		}
	}
	r, _ := s.b.PlanPossible(drops, nil, 0)
	return r
}
