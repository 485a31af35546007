package replay

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// carries reports whether this device can carry out a result's plan.
func (d *Device) carries(r *Result) bool {
	if d.Pools {
		return r.Plan.Policy == nil && r.Plan.SectionBytes == 0 && len(r.Plan.Absences) == 0 &&
			r.Executor != plan.Reordering
	}
	return !d.Eager || r.Executor == plan.TorchEager
}

// Measure carries out every valid plan of the comparison on a device, one after the other, and adds the
// measurements. If one cannot be carried out, its result says why; the error is the context's. Managers that
// found nothing for a running training to move or to recompute get a result that says so.
func (c *Comparison) Measure(ctx context.Context, d Device, update func(Progress)) error {
	c.Devices = append(c.Devices, d)
	var plans []*Result
	for i := range c.Results {
		if r := &c.Results[i]; r.Valid && r.Target == c.firstTarget() && d.carries(r) {
			plans = append(plans, r)
		}
	}
	for i, of := range plans {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r := Result{Info: of.Info, Executor: of.Executor, Target: d.Name(), Plan: of.Plan, Valid: true}
		u := Progress{Index: i, Manager: of.Info.Name, Target: d.Name(), Finished: int64(i),
			Total: int64(len(plans))}
		r.carryOut(ctx, c.Problem, d, plan.RunOptions{Cap: c.Net, Progress: func(doing string) {
			u.Doing = doing
			update(u)
		}})
		if r.Err != nil && ctx.Err() != nil {
			return ctx.Err() // stopped by the caller: nothing is wrong with this plan
		}
		if again := r.Measurement.Plan; again != nil {
			c.replaced(ctx, of, again)
			r.Plan = again
		}
		if r.Err != nil && d.Eager {
			r.Reason += whatRemains(c.Problem, r.Plan, c.Net)
		}
		if base := r.Measurement.KeepAll(); r.Available && base > 0 {
			r.Overhead = float64(r.Measurement.StepTime)/float64(base) - 1
		}
		if added, ok := r.Measurement.Added(); ok && r.Available && c.Problem.Hardware.NoEngines &&
			c.Baseline > 0 {
			r.Work, r.Worked = float64(added)/float64(c.Baseline), true
		}
		c.Measured = append(c.Measured, r)
		u.Done, u.Results = true, []Result{r}
		update(u)
	}
	if d.Eager {
		c.Measured = append(c.Measured, c.idle(&d)...)
	}
	return ctx.Err()
}

// replaced makes a result that of the plan which a device carried out instead, by prediction.
func (c *Comparison) replaced(ctx context.Context, r *Result, by *plan.Plan) {
	x := Result{Info: r.Info, Executor: r.Executor, Target: r.Target, Plan: by, Valid: true,
		Stopped: r.Stopped}
	x.carryOut(ctx, c.Problem, Simulated{}, plan.RunOptions{Cap: c.Net})
	if x.Available && c.Baseline > 0 {
		x.Overhead = float64(x.Measurement.StepTime)/float64(c.Baseline) - 1
	}
	*r = x
}

// idle returns results for the managers whose plan moves and recomputes nothing in a running training.
func (c *Comparison) idle(d *Device) (none []Result) {
	for i := range c.Results {
		r := &c.Results[i]
		if !r.Valid || r.Target != c.firstTarget() || r.Info.Family <= plan.Pooling ||
			slices.ContainsFunc(c.Results, func(x Result) bool {
				return x.Info.Name == r.Info.Name && x.Executor == plan.TorchEager
			}) {
			continue
		}
		why := whyIdle(c.Problem, r.Plan)
		if peak, _ := c.Problem.PeakLive(); c.Net > 0 && peak <= c.Net && len(r.Plan.Absences) == 0 {
			why = fmt.Sprintf("nothing has to leave memory: a step fits in %s as it is",
				timeline.IEC.Bytes(c.Net))
		}
		none = append(none, Result{Info: r.Info, Executor: plan.TorchEager, Target: d.Name(), Reason: why})
	}
	return none
}

// Simulated returns the result that the first target has for the plan of a measured one, nil if it has none.
func (c *Comparison) Simulated(m *Result) *Result {
	for i := range c.Results {
		if r := &c.Results[i]; r.Plan == m.Plan && r.Available && r.Target == c.firstTarget() {
			return r
		}
	}
	return nil
}

// A measurement that differs from the simulation by more than this is explained. The figures are shares of
// the footprint, shares of the step time of keeping everything, and points of overhead.
const (
	footprintTolerance = 0.02
	overheadTolerance  = 0.02
	drift              = 0.02
	rateTolerance      = 0.05
	dryTolerance       = 0.05
)

// Off returns by what share a measured figure exceeds a simulated one, NaN if there is none to compare with.
func Off(measured, simulated int64) float64 {
	if simulated == 0 {
		return math.NaN()
	}
	return float64(measured)/float64(simulated) - 1
}

// Predicted returns the simulated figure to compare a measured footprint with, in bytes: the arena's top, or
// what is alive at the peak if a training's allocations were measured.
func Predicted(m, s *plan.Measurement) int64 {
	if m.Allocated {
		return s.PeakLive
	}
	return s.Footprint
}

// Outside reports whether a measured result differs from the simulated one by more than chance: 2 % of the
// footprint, 2 points of overhead.
func Outside(m, s *Result) bool {
	overhead := m.Overhead
	if m.Worked {
		overhead = m.Work
	}
	return math.Abs(Off(m.Measurement.Footprint,
		Predicted(&m.Measurement, &s.Measurement))) > footprintTolerance ||
		math.Abs(overhead-s.Overhead) > overheadTolerance
}

// Causes says how the counters of a measured run explain its difference from the simulation. It is empty if
// they do not explain it.
func (c *Comparison) Causes(m, s *Result) []string {
	var causes []string
	say := func(format string, args ...any) { causes = append(causes, fmt.Sprintf(format, args...)) }
	x, y, h := &m.Measurement, &s.Measurement, &c.Problem.Hardware
	if off := Off(x.KeepAllAfter, x.KeepAllBefore); math.Abs(off) > drift {
		say("the device's own speed changed meanwhile: keeping everything took %s before and %s after",
			timeline.Duration(x.KeepAllBefore), timeline.Duration(x.KeepAllAfter))
	}
	for _, l := range []struct {
		way           string
		reached, told float64
	}{{"to the host", x.OutRate, h.D2H.BytesPerSecond}, {"from the host", x.InRate, h.H2D.BytesPerSecond}} {
		if !h.NoEngines && l.reached > 0 && l.told > 0 && math.Abs(l.reached/l.told-1) > rateTolerance {
			say("copies %s reached %.3g GB/s, simulated with %.3g", l.way, l.reached/1e9, l.told/1e9)
		}
	}
	// In a training on a GPU this is the host's time to issue them, and what is simulated is the device's.
	onDevice := !x.Allocated || h.NoEngines
	if onDevice && y.RecomputeTime > 0 && math.Abs(Off(x.RecomputeTime, y.RecomputeTime)) > rateTolerance {
		say("ops that ran again took %s, simulated %s", timeline.Duration(x.RecomputeTime),
			timeline.Duration(y.RecomputeTime))
	}
	if y.CopyTime > 0 && x.CopyTime > 0 && math.Abs(Off(x.CopyTime, y.CopyTime)) > rateTolerance {
		say("copies took %s, simulated %s", timeline.Duration(x.CopyTime), timeline.Duration(y.CopyTime))
	}
	if x.Launches > 0 && float64(x.Dry) > dryTolerance*float64(x.Launches) {
		say("%d of %d launches found the device with nothing to do: the host sets the pace", x.Dry,
			x.Launches)
	}
	if p := c.Problem; !h.NoEngines && x.Allocated && x.SwappedOut > 0 && p.Source != nil &&
		p.Source.Info.Kind == traces.DeviceCPU {
		say("copies are made by the thread that trains, and were simulated on engines of their own")
	}
	if x.Retries != y.Retries {
		say("it released its cache %d times an iteration, simulated %d", x.Retries, y.Retries)
	}
	if x.DriverCalls != y.DriverCalls {
		say("%d driver calls an iteration, simulated %d", x.DriverCalls, y.DriverCalls)
	}
	return causes
}

// measuredOf returns a device's measurement of a result's plan, nil if there is none.
func (c *Comparison) measuredOf(r *Result, device string) *Result {
	for i := range c.Measured {
		if m := &c.Measured[i]; m.Target == device && m.Plan == r.Plan {
			return m
		}
	}
	return nil
}

// carryOut measures the result's plan of a problem on a target.
func (r *Result) carryOut(ctx context.Context, p *plan.Problem, t Target, o plan.RunOptions) {
	m, err := t.Run(ctx, p, r.Plan, o)
	if err != nil {
		r.Reason, r.Err = err.Error(), err
		return
	}
	r.Available, r.Measurement = true, m
	r.Fits = o.Cap == 0 || m.Footprint <= o.Cap
}
