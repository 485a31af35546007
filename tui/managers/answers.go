package managers

import (
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// What is known in answer to a question: results by manager, and what is kept of them.

// answers are the known answers to a question, by manager.
type answers struct {
	by            map[string][]result
	early         map[string]bool // planning was stopped: these are the best plans so far
	err           error           // concerns all managers: a budget that nothing can meet
	net, baseline int64
	used          int // when it was looked at last
}

// anyFits reports whether a result of one of the named managers fits the budget.
func (a *answers) anyFits(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.ContainsFunc(a.by[name], func(r result) bool { return r.Available && r.Fits })
	})
}

// take takes a manager's results, and reports whether there is anything to show. Those of a run that was
// halted may be the best so far; a manager without a plan by then is as if it had not been asked.
func (a *answers) take(name string, list []result, halted bool) bool {
	early := halted && slices.ContainsFunc(list, func(r result) bool { return r.Stopped })
	if early && !slices.ContainsFunc(list, func(r result) bool { return r.Available }) {
		return false
	}
	a.by[name] = list
	delete(a.early, name)
	if early {
		a.early[name] = true
	}
	return true
}

// complete reports whether a manager has answered, and not only with its best plan so far.
func (a *answers) complete(name string) bool {
	_, known := a.by[name]
	return known && !a.early[name]
}

// comparison gathers the answers to a question of the managers that are on.
func (a *answers) comparison(q question, on roster) *replay.Comparison {
	c := &replay.Comparison{Problem: q.setup.p, Budget: q.budget, Net: a.net, Baseline: a.baseline}
	for i := range on {
		if m := &on[i]; m.on {
			for _, r := range a.by[m.Info.Name] {
				c.Results = append(c.Results, r.Result)
			}
		}
	}
	return c
}

// point is what remains of a result when it is dropped: its position in the trade-off.
type point struct{ footprint, step int64 }

// digest reduces results to what the view keeps.
func digest(p *plan.Problem, results []replay.Result) []result {
	out := make([]result, len(results))
	for i := range results {
		out[i].Result = results[i]
		if results[i].Available {
			out[i].shape = shapeOf(p, &results[i])
		}
	}
	return out
}
