package recompute

import (
	"fmt"
	"math"

	"github.com/gmemtop/gmemtop/managers/milp"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// What checkmate proves about its plans: see checkmate.go.

// unsolved says why a plan is no solution, "" if it is one.
func unsolved(pl *plan.Plan, gap float64) string {
	const instead = "; checkmate-lp gives the best that rounding finds"
	switch {
	case pl.Budget > 0 && pl.Footprint > pl.Budget:
		return fmt.Sprintf("unsolved: the best plan takes %s, and the budget is %s"+instead,
			timeline.IEC.Bytes(pl.Footprint), timeline.IEC.Bytes(pl.Budget))
	case math.IsInf(gap, 1):
		return "unsolved: the solver proved nothing within its work" + instead
	case gap > wholeGap:
		return fmt.Sprintf("unsolved: the best plan is up to %.1f %% slower than the fastest possible, and "+
			"only up to %.0f %% counts as solved"+instead, 100*gap, 100*wholeGap)
	}
	return ""
}

// prove records what a solution for the limit, or for more, proves about the view.
func (c *roundings) prove(q *program, sol *milp.Solution, budget int64) {
	if budget < c.limit || math.IsInf(sol.Bound, 0) {
		return
	}
	c.lower, c.bounded = max(c.lower, int64(sol.Bound*q.unit)), true
	if budget > c.limit {
		return
	}
	if over := sol.X[q.over]; over > 0.01 && sol.Status == milp.StatusOptimal { // MiB
		c.short = over
	}
}

// near reports whether the best known candidate is within the limit and, as far as the view can tell, within
// the gap of the least rerun time.
func (c *roundings) near() bool {
	return c.bounded && c.best.peak <= c.limit && float64(c.best.Time) <= float64(c.lower)*(1+wholeGap)
}

// gap returns how much longer the best candidate takes than what the solver proved about the view, as a share
// of the time of all ops and reruns; +Inf if nothing was proved.
func (c *roundings) gap() float64 {
	if c.best.Time == 0 {
		return 0
	}
	if !c.bounded || c.short > 0 {
		return math.Inf(1)
	}
	all := c.lower
	for i := range c.s.p.Ops {
		all += c.s.p.Ops[i].Duration
	}
	return float64(max(c.best.Time-c.lower, 0)) / float64(max(all, 1))
}

// proved says what the solver proved about the view.
func (c *roundings) proved() string {
	switch least := float64(c.lower) / 1e6; {
	case !c.bounded:
		return "Nothing was proved about how much has to run again."
	case c.short > 0:
		return fmt.Sprintf("The program's memory rows, which are stricter than what is measured, cannot be "+
			"met: its best is %.1f MiB above the limit.", c.short)
	case c.best.peak > c.limit:
		return fmt.Sprintf("In this view %.2f ms have to run again.", least)
	case c.best.Time <= c.lower:
		return fmt.Sprintf("Optimal in this view, where %.2f ms have to run again.", least)
	default:
		mine := float64(c.best.Time) / 1e6
		return fmt.Sprintf("In this view, launches included, %.2f ms have to run again and %.2f "+
			"ms do: a gap of %.1f %%.",
			least, mine, 100*(mine-least)/max(mine, 1e-6))
	}
}
