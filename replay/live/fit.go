package live

import (
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// Made is a plan and its promises.
type Made struct {
	*plan.Plan
	// Added is the time that the simulator predicts it adds to a step, in nanoseconds.
	Added int64
	// Budget is the most bytes that a step may take under it; 0 for no limit. It may exceed what the plan was
	// made for: if a first plan took more than promised, the next one is made for less.
	Budget int64
}

// Above is the error of a plan under which a step exceeds its budget.
type Above struct {
	// Takes is what a step takes, in bytes. Measured says that it was measured with the plan on, not
	// predicted.
	Takes, Budget int64
	Measured      bool
	// Other says that another described step takes it, where the steps of the program run different ops.
	Other bool
	// Larger says that a step takes it that is larger than any before, and that no plan keeps the budget in
	// it.
	Larger bool
}

// Error implements error.
func (e *Above) Error() string {
	takes, budget := timeline.IEC.Bytes(e.Takes), timeline.IEC.Bytes(e.Budget)
	if e.Larger {
		return say.LargerAboveBudget.Text(takes, budget)
	}
	if e.Measured {
		return say.TooLarge.Text(takes, budget)
	}
	if e.Other {
		return say.OtherAboveBudget.Text(takes, budget)
	}
	return say.AboveBudget.Text(takes, budget)
}

// fits returns an [*Above] if takes exceeds a budget, 0 for none.
func fits(takes, budget int64, measured bool) error {
	if budget <= 0 || takes <= budget {
		return nil
	}
	return &Above{Takes: takes, Budget: budget, Measured: measured}
}

// Fits returns an [*Above] if a plan is predicted to exceed a budget, 0 for none. pooled says that it chooses
// addresses: then it takes its arena, and otherwise what is alive at the peak.
func Fits(pl *plan.Plan, pooled bool, budget int64) error {
	return fits(predicted(pl, pooled), budget, false)
}

// fitsAll is Fits for all described steps of a program whose steps run different ops.
func fitsAll(p *plan.Problem, pl *plan.Plan, pooled bool, budget int64) error {
	if err := Fits(pl, pooled, budget); err != nil || pooled {
		return err
	}
	return fitsEach(p, pl, budget)
}

// predicted returns the predicted bytes of a step under a plan.
func predicted(pl *plan.Plan, pooled bool) int64 {
	if pooled {
		return pl.Footprint
	}
	peak, _ := pl.PeakLive()
	return peak
}
