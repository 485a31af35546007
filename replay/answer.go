package replay

import (
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Answer returns the result that the sentence names: under a budget the fastest that fits of those that were
// measured; where none was, the one predicted to be the fastest, of those that PyTorch can run today if any
// of them fits. Without a budget it is the smallest that costs no time, or PyTorch's own allocator, with a
// setting or as it is, if that needs little more. Ties go to the smaller footprint. ok is false if there is
// none.
func (c *Comparison) Answer() (r Result, ok bool) {
	if c.Budget <= 0 {
		best := c.smallest()
		if best == nil {
			return Result{}, false
		}
		within := func(r *Result, share float64, of *Result) bool {
			return float64(r.Measurement.Footprint) <= (1+share)*float64(of.Measurement.Footprint)
		}
		setting, today := c.setting(best), c.today()
		if today != nil && today.Overhead <= free && within(today, littleMore, best) &&
			(setting == nil || within(today, noMore, setting)) {
			return *today, true
		}
		if setting != nil {
			best = setting
		}
		return *best, true
	}
	if best := c.proven(); best != nil {
		return *best, true
	}
	if best := c.predicted(false); best != nil {
		return *best, true
	}
	return Result{}, false
}

// proven returns the result that the fastest measurement belongs to, nil for none.
func (c *Comparison) proven() *Result {
	m := c.fastestMeasured()
	if m == nil {
		return nil
	}
	var of *Result
	for i := range c.Results {
		r := &c.Results[i]
		if r.Available && r.Target == c.firstTarget() && c.measured(r) == m && (of == nil || r.runnable()) {
			of = r
		}
	}
	return of
}

// predicted returns the result that is predicted to be the fastest of those that fit, of those that PyTorch
// can run today if any of them fits, and of those that were not measured if that is asked for; nil for none.
func (c *Comparison) predicted(unmeasured bool) *Result {
	var best *Result
	for i := range c.Results {
		r := &c.Results[i]
		if !r.Available || !r.Fits || r.Target != c.firstTarget() || unmeasured && c.measured(r) != nil {
			continue
		}
		switch {
		case best == nil, r.runnable() && !best.runnable(),
			r.runnable() == best.runnable() && better(r, best):
			best = r
		}
	}
	return best
}

// seen returns a result with what was measured of it, on the simulation's scale of time; the result itself if
// nothing was.
func (c *Comparison) seen(r *Result) *Result {
	m := c.measured(r)
	if m == nil {
		return r
	}
	x := r.Seen(m)
	return &x
}

// Seen returns the result as measured: whether it fits, its footprint and, where a step was timed without the
// plan too, its overhead, from which its step time follows on the simulation's scale.
func (r *Result) Seen(measured *Result) Result {
	x := *r
	x.Fits, x.Measurement.Footprint = measured.Fits, measured.Measurement.Footprint
	if measured.Measurement.KeepAll() > 0 {
		base := float64(x.Measurement.StepTime) / (1 + x.Overhead)
		x.Measurement.StepTime = int64(math.Round(base * (1 + measured.Overhead)))
		x.Overhead = measured.Overhead
	}
	return x
}

// smallest returns the result that needs the least memory of those that cost no time, nil for none.
func (c *Comparison) smallest() *Result {
	return c.least(func(r *Result) bool { return r.Executor == plan.Ideal && c.seen(r).Overhead <= free })
}

// littleMore is how much more than the best plan, as a share, a setting of PyTorch's allocator may need and
// still be the advice: anyone can set it, while a plan needs gmemtop.
const littleMore = 0.01

// noMore is how much more than the advice, as a share, PyTorch's defaults may need and still be as good.
const noMore = 0.001

// setting returns the result of the smallest setting of PyTorch's allocator, other than its default, that
// costs no time and needs little more than best; nil for none.
func (c *Comparison) setting(best *Result) *Result {
	return c.least(func(r *Result) bool {
		return r.setting() != "" && r.Overhead <= free &&
			float64(r.Measurement.Footprint) <= (1+littleMore)*float64(best.Measurement.Footprint)
	})
}

// setting returns what a result needs in PYTORCH_CUDA_ALLOC_CONF, "" if it is not a setting of PyTorch's
// allocator.
func (r *Result) setting() string {
	if r.Plan == nil || r.Plan.Policy == nil || r.Info.Family != plan.Baseline {
		return ""
	}
	return r.Plan.Policy.Settings
}

// measured returns what a device or the running training measured for a result's plan, nil if nothing carried
// it out. A training is planned for again, so the plan may be another one by the same manager. It always runs
// what eager PyTorch can, which may be all of a manager's plan.
func (c *Comparison) measured(r *Result) *Result {
	eager := slices.ContainsFunc(c.Results, func(x Result) bool {
		return x.Info.Name == r.Info.Name && x.Executor == plan.TorchEager
	})
	for i := range c.Measured {
		m := &c.Measured[i]
		ran := m.Executor == r.Executor || m.Target == plan.LiveTarget && !eager
		if m.Available && m.Info.Name == r.Info.Name && ran {
			return m
		}
	}
	return nil
}

// prediction returns what the simulator says of the plan that was measured for a result.
func (c *Comparison) prediction(m, r *Result) *Result {
	for i := range c.Replanned {
		if x := &c.Replanned[i]; x.Available && x.Plan != nil && x.Plan == m.Plan {
			return x
		}
	}
	return r
}

// fastestMeasured returns the fastest measured result that fits, nil if there is none. They may come from
// several devices, so it goes by overhead.
func (c *Comparison) fastestMeasured() *Result {
	var best *Result
	for i := range c.Measured {
		m := &c.Measured[i]
		if !m.Available || !m.Fits || m.Measurement.KeepAll() == 0 {
			continue
		}
		if best == nil || m.Overhead < best.Overhead {
			best = m
		}
	}
	return best
}

// anyMeasured reports whether a plan was carried out: a prediction must then be marked as one.
func (c *Comparison) anyMeasured() bool {
	return c.Trained || slices.ContainsFunc(c.Measured, func(x Result) bool { return x.Available })
}

// swaps reports whether the result's plan copies anything to the host.
func (r *Result) swaps() bool {
	return r.Plan != nil && slices.ContainsFunc(r.Plan.Absences, func(x plan.Absence) bool {
		return x.How == plan.Swap
	})
}

// Place says where a target carries plans out: "on cuda:0", "in the training".
func Place(target string) string {
	if target == plan.LiveTarget {
		return "in the training"
	}
	return "on " + target
}
