package replay

import (
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Plans are what our own managers planned for one problem so far, whatever the budget: others do not look at
// what is known. Its zero value is ready to use, from several goroutines.
type Plans struct {
	mu sync.Mutex
	of *plan.Problem
	by map[string][]known
}

// known is a plan and what it takes.
type known struct {
	*plan.Plan
	footprint, step int64
}

// mostKnown bounds the plans that are kept of a manager, since each takes up to a few megabytes.
const mostKnown = 24

// Known returns the plans that a manager made of a problem, for [Options.Known]. Plans of another problem are
// forgotten.
func (k *Plans) Known(p *plan.Problem) func(manager string) []*plan.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != p {
		k.of, k.by = p, map[string][]known{}
	}
	return func(manager string) []*plan.Plan {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.of != p {
			return nil
		}
		var all []*plan.Plan
		for _, x := range k.by[manager] {
			all = append(all, x.Plan)
		}
		return all
	}
}

// Add adds results for a problem. Of the plans of one manager for one executor only those stay that no other
// beats in time and memory.
func (k *Plans) Add(p *plan.Problem, results []Result) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != p {
		return
	}
	for i := range results {
		r := &results[i]
		if !r.Available || !r.Info.Ours {
			continue
		}
		all, x := k.by[r.Info.Name], known{r.Plan, r.Measurement.Footprint, r.Measurement.StepTime}
		if slices.ContainsFunc(all, func(y known) bool { return y.beats(&x) }) {
			continue
		}
		all = append(slices.DeleteFunc(all, func(y known) bool { return x.beats(&y) }), x)
		k.by[r.Info.Name] = all[max(len(all)-mostKnown, 0):]
	}
}

// beats reports whether a plan is as good as another in time and memory, for the same executor.
func (x *known) beats(y *known) bool {
	return x.Executor == y.Executor && x.step <= y.step && x.footprint <= y.footprint
}
