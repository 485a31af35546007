package recompute

import (
	"context"
	"math"

	"github.com/gmemtop/gmemtop/managers/chain"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
)

// torch.compile's activation_memory_budget.
//
// Problem: of everything that the forward pass leaves for the backward pass, which part should be saved so
// that recomputing the rest takes the least time? PyTorch's setting
// torch._functorch.config.activation_memory_budget, 0 to 1, is a share of the saved bytes, not of the peak.
//
// Approach: PyTorch's own, as in its partitioner (torch/_functorch/partitioners.py and
// _activation_checkpointing/knapsack.py, solver "dp", the default). A 0/1 knapsack: an activation weighs its
// bytes and is worth the time of the op that makes it; sizes are rounded to a ten-thousandth of the total.
// What is not saved is recomputed just before its first use. A user with a given card tries settings until
// the training fits. So does the manager: settings 1, 0.95 and so on down to 0; of those that fit it takes
// the one that reruns the least.
//
// That setting ignores the peak, and a smaller one can have a larger peak: reruns need scratch, and their
// inputs may have to be recomputed first.
//
// What is not claimed: torch.compile fuses ops, and even at 1 keeps less than eager PyTorch does, by a
// minimum cut that is not modelled here. It estimates runtimes from flops; here they are recorded.
//
// Complexity: O(activations x 10,000) once, and a chain plan for each setting. Rejected: the solver "ilp",
// which PyTorch offers too and which finds the same except for the rounding; minimising the peak instead of
// the saved bytes, which is what joint does.
type torchBudget struct{}

// Info implements [plan.Manager].
func (torchBudget) Info() plan.Info {
	return plan.Info{
		Name: "torch-budget", After: "PyTorch 2024", Family: plan.Recomputing, Needs: traces.Dataflow,
		Reading: "torch.compile's fusing and its minimum cut at budget 1 are not modelled; runtimes are " +
			"the recorded ones; the setting is searched in steps of 0.05.",
		Summary: "Saves the activations that a knapsack picks within a share of their bytes, as " +
			"torch.compile's activation_memory_budget does, and recomputes the rest.",
	}
}

const (
	// settings is how many parts the range of the setting is tried in.
	settings = 20
	// quanta is PyTorch's rounding of sizes.
	quanta = 10_000
	// mostReruns bounds the reruns, as a multiple of the step's ops; what would take more is saved.
	// torch.compile reruns each op once and keeps the result until its last use. Here a value is recomputed
	// for each use, which takes chains that grow with the square of what is not saved.
	mostReruns = 4
)

// Plan implements [plan.Manager].
func (m torchBudget) Plan(ctx context.Context, p *plan.Problem, r plan.Request) (*plan.Plan, error) {
	var s saver
	pl, err := run(ctx, p, r, m.Info(), func(b *chain.Builder) func(int64) (plan.Decisions, int64, error) {
		s.b = b
		for _, pair := range pairs(p) {
			s.acts = append(s.acts, activations(p, b, pair)...)
		}
		return func(limit int64) (plan.Decisions, int64, error) { return s.decide(ctx, p, limit) }
	})
	if err != nil {
		return nil, err
	}
	pl.Note("activation_memory_budget = %.2f.", float64(s.chosen)/settings)
	return pl, nil
}

// saver tries settings on one problem.
type saver struct {
	b      *chain.Builder
	acts   []activation
	tried  []trial // k is the setting
	chosen int
	bag    *knapsack
}

// decide returns the decisions of the setting that reruns the least while live bytes stay within the limit,
// otherwise of that with the smallest peak. Without a limit everything is saved, as in PyTorch by default.
func (s *saver) decide(ctx context.Context, p *plan.Problem, limit int64) (plan.Decisions, int64, error) {
	var work int64
	s.chosen = settings
	if limit > 0 && s.tried == nil {
		s.bag = fill(s.acts, ownTimes(p, s.b, s.acts), quanta)
		for k := settings; k >= 0; k-- {
			if ctx.Err() != nil {
				return plan.Decisions{}, work, ctx.Err()
			}
			r, _ := s.b.PlanPossible(s.drops(k), nil, mostReruns*len(p.Ops))
			s.tried = append(s.tried, trial{k: k, peak: s.b.PeakLive(r.Absences, r.Reruns), time: r.Time})
			work++
		}
	}
	if limit > 0 {
		s.chosen = leastTime(s.tried, limit)
	}
	r, _ := s.b.PlanPossible(s.drops(s.chosen), nil, mostReruns*len(p.Ops))
	return plan.Decisions{Absences: r.Absences, Reruns: r.Reruns}, work + 1, nil
}

// leastTime returns the trial with the least time within the limit, or else the one with the smallest peak.
func leastTime(tried []trial, limit int64) int {
	best := tried[0]
	for _, t := range tried[1:] {
		fits, fitted := t.peak <= limit, best.peak <= limit
		if fits && (!fitted || t.time < best.time) || !fits && !fitted && t.peak < best.peak {
			best = t
		}
	}
	return best.k
}

// drops returns what setting k does not save.
func (s *saver) drops(k int) (drops []chain.Drop) {
	if k == settings {
		return nil
	}
	saved := s.bag.best(quanta * k / settings)
	for i := range s.acts {
		if !saved[i] {
			drops = append(drops, chain.Drop{Gap: s.acts[i].Gap, Why: "not saved within the memory budget"})
		}
	}
	return drops
}

// ownTimes returns the time to rerun the producers of each activation; activations of one op share its time.
func ownTimes(p *plan.Problem, b *chain.Builder, acts []activation) []float64 {
	makes := map[plan.OpID]float64{}
	makers := make([][]plan.OpID, len(acts))
	for i := range acts {
		makers[i], _ = p.Producer(acts[i].Buffer, acts[i].Before)
		for _, o := range makers[i] {
			makes[o]++
		}
	}
	times := make([]float64, len(acts))
	for i := range acts {
		for _, o := range makers[i] {
			times[i] += float64(b.OpTime(o)) / makes[o]
		}
	}
	return times
}

// knapsack is PyTorch's dynamic program, with what is needed to find the choice for any capacity.
type knapsack struct {
	weight []int
	taken  [][]uint64 // of each item, the capacities at which it is taken
}

// fill solves the knapsack for all capacities up to quanta; all items together take about room.
func fill(acts []activation, values []float64, quanta int) *knapsack {
	var total int64
	for i := range acts {
		total += acts[i].bytes
	}
	k := &knapsack{}
	worth := make([]float64, quanta+1)
	for i := range acts {
		w := int(math.Round(float64(acts[i].bytes) / float64(max(total, 1)) * float64(quanta)))
		row := make([]uint64, quanta/64+1)
		for c := quanta; c >= w; c-- {
			if v := worth[c-w] + values[i]; v > worth[c] {
				worth[c] = v
				row[c/64] |= 1 << (c % 64)
			}
		}
		k.weight, k.taken = append(k.weight, w), append(k.taken, row)
	}
	return k
}

// best returns which items are taken at a capacity.
func (k *knapsack) best(capacity int) []bool {
	taken := make([]bool, len(k.weight))
	for i := len(k.weight) - 1; i >= 0; i-- {
		if k.taken[i][capacity/64]>>(capacity%64)&1 != 0 {
			taken[i] = true
			capacity -= k.weight[i]
		}
	}
	return taken
}
