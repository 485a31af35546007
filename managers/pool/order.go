package pool

import (
	"context"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/place"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// Ops in another order (after Steiner, Elhoushi, Kahn, Hegarty: "OLLA: Optimizing the Lifetime and Location
// of Arrays to Reduce the Memory Usage of Neural Networks", arXiv 2210.12924).
//
// Problem: how long a buffer lives depends on when the ops run that make and read it. A program runs them in
// one of many orders that give the same bytes. Find the order with the lowest peak, and then addresses. OLLA
// solves one integer program for the order and another for the addresses.
//
// Approach: the same two parts, each by search, since the integer program takes minutes for a few hundred
// ops. The search starts with the recorded order and those of two greedy rules. Local search then looks at
// what is in memory at the peak and moves the op that made it after the peak, or the op that frees it before
// it, with everything that must move along; see order_search.go. The recorded order is among the candidates,
// so no plan has a higher peak than it. Addresses are exact's.
//
// What stays in order: ops that touch the same bytes, unless both only read; and, among themselves, ops whose
// effect their accesses do not show. Those are communication, ops that touch nothing, and ops of the forward
// pass that do not give the same bytes twice, such as dropout.
//
// A running PyTorch program issues its ops in its own order, and nothing can change that from outside. So the
// manager does not plan for a live training; the executor of its plans is one that can reorder, such as a
// compiler or a replay on a device.
//
// Where the new order does not meet the budget, joint plans in that order; see package managers.
//
// Complexity: O(ops + accesses) for each order that the search tries; their number is counted work. Rejected:
// the integer program; exact dynamic programming over sets of ops, which is for tests (exponential).

// Order returns the manager.
func Order() plan.Manager {
	return planner{
		info: plan.Info{Name: "order", After: "OLLA 2022", Family: plan.Pooling, Needs: traces.Dataflow,
			Summary: "Runs ops in another order, as far as their data allows, so that less is in memory " +
				"at the peak; if that is not enough, joint plans in that order.",
			Reading: "the order and the addresses are searched for where the paper solves an integer " +
				"program; that something moves as well is ours"},
		make: order,
	}
}

// orderWork bounds the search, in ops and accesses looked at: some tenths of a second.
const orderWork = 30_000_000

func order(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	switch {
	case p.EagerOnly:
		return nil, &plan.Unavailable{Manager: "order",
			Reason: "a running PyTorch program issues its ops in its own order: this needs a compiler"}
	case p.Iterations > 1:
		return nil, &plan.Unavailable{Manager: "order",
			Reason: "the recording shows two iterations as one, and ops may not move from one to the other"}
	}
	s := newSequencer(p)
	work := int64(orderWork)
	if r.Work > 0 {
		work = min(work, r.Work*orderSteps)
	}
	order := s.search(ctx, r.Seed, work)
	if err := ctx.Err(); err != nil && order == nil {
		return nil, err
	}
	q := p
	if order != nil {
		var err error
		if q, err = plan.Reordered(p, order); err != nil {
			return nil, err
		}
	}
	opt := place.Options{Seed: r.Seed, Work: exactWork(r, len(p.Buffers)), Capacity: r.Budget}
	pl, err := placed(ctx, q, opt)
	if err != nil {
		return nil, err
	}
	pl.Sequence, pl.Executor, pl.Work = order, plan.Reordering, pl.Work+s.work
	pl.LowerBound = s.floor()
	if order == nil {
		pl.Executor = plan.Ideal
		pl.Note("no order of its ops that was tried needs less memory at the peak than the recorded one")
		return pl, nil
	}
	moved := 0
	for k, o := range order {
		if k > 0 && o < order[k-1] {
			moved++
		}
	}
	pl.Note("%d ops run earlier than recorded; PyTorch runs them in the program's order, so this takes a "+
		"compiler that can reorder", moved)
	return pl, nil
}

// orderSteps is the number of ops and accesses looked at per unit of a request's work.
const orderSteps = 1000

// fixed reports whether an op has an effect that its accesses do not show: such ops keep their order.
func fixed(p *plan.Problem, i plan.OpID) bool {
	op := &p.Ops[i]
	if op.First == op.End || op.Phase == traces.PhaseForward && !op.Rerunnable {
		return true
	}
	name := strings.ToLower(op.Name)
	return slices.ContainsFunc(communication, func(word string) bool { return strings.Contains(name, word) })
}

// communication lists words in the names of ops that talk to other processes: PyTorch's, NCCL's and those of
// functional collectives. All ranks must issue them in the same order.
var communication = []string{"c10d", "nccl", "allreduce", "all_reduce", "allgather", "all_gather",
	"reduce_scatter", "broadcast", "all_to_all", "alltoall", "barrier", "send", "recv"}
