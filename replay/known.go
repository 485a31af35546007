package replay

import (
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Plans are what managers planned for one problem so far, whatever the budget. Its zero value is ready to
// use, from several goroutines.
type Plans struct {
	mu sync.Mutex
	of *plan.Problem
	by map[string][]Result
}

// mostKnown bounds the plans that are kept of a manager, since each takes up to a few megabytes.
const mostKnown = 24

// Known returns the plans that a manager made of a problem, for [Options.Known]. Plans of another problem are
// forgotten.
func (k *Plans) Known(p *plan.Problem) func(manager string) []*plan.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of != p {
		k.of, k.by = p, map[string][]Result{}
	}
	return func(manager string) []*plan.Plan {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.of != p {
			return nil
		}
		var all []*plan.Plan
		for i := range k.by[manager] {
			all = append(all, k.by[manager][i].Plan)
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
		all := k.by[r.Info.Name]
		if !r.Available || slices.ContainsFunc(all, func(x Result) bool { return beats(&x, r) }) {
			continue
		}
		all = slices.DeleteFunc(all, func(x Result) bool { return beats(r, &x) })
		all = append(all, *r)
		k.by[r.Info.Name] = all[max(len(all)-mostKnown, 0):]
	}
}

// beats reports whether a is as good as b in time and memory, for the same executor.
func beats(a, b *Result) bool {
	return a.Executor == b.Executor && a.Measurement.StepTime <= b.Measurement.StepTime &&
		a.Measurement.Footprint <= b.Measurement.Footprint
}
