package replay

import "fmt"

// Near says how near a proven bound a step time is, which is slower by a share: "within 4 % of the bound".
func Near(gap float64) string {
	switch percent := 100 * gap; {
	case percent < 0.01:
		return "at the bound"
	case percent < 10:
		return fmt.Sprintf("within %.2g %% of the bound", percent)
	default:
		return fmt.Sprintf("within %.0f %% of the bound", percent)
	}
}

// Bound returns the proven least step time within the plan's budget, as an overhead, and how much slower the
// plan is than that, as a share of it; ok is false if nothing was proven.
func (r *Result) Bound() (overhead, gap float64, ok bool) {
	if r.Plan == nil || !r.Available || r.Plan.StepBound <= 0 || r.Measurement.StepTime <= 0 {
		return 0, 0, false
	}
	share := float64(r.Plan.StepBound) / float64(r.Measurement.StepTime)
	return share*(1+r.Overhead) - 1, 1/share - 1, true
}
