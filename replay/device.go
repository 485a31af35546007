package replay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Device is a target on real hardware, whose measurements are compared with the simulation.
type Device struct {
	Target
	// About describes it for people: NVIDIA H200, 139.8 GiB.
	About string
	// Eager means that it is a running training: it carries out only plans for [plan.TorchEager], its
	// footprint is a step's peak of allocated bytes, and its program decides how long steps take.
	Eager bool
	// Pools means that it is the allocator of a running training: it carries out plans that only choose
	// addresses.
	Pools bool
}

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
		none = append(none, Result{Info: r.Info, Executor: plan.TorchEager, Target: d.Name(),
			Reason: whyIdle(c.Problem, r.Plan)})
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

// writeMeasured prints what each device measured and what was simulated, and what the counters show where the
// two differ.
func (t *textReport) writeMeasured() {
	for _, d := range t.c.Devices {
		var rows []*Result
		for _, r := range t.c.ranked() {
			if m := t.c.measuredOf(r, d.Name()); m != nil && m.Available {
				rows = append(rows, m)
			}
		}
		t.line("measured", d.what(rows))
		if len(rows) == 0 {
			t.b.WriteByte('\n')
			continue
		}
		if base := rows[0].Measurement.KeepAll(); base > 0 && t.c.Problem.HasTimes {
			as := "simulated"
			if d.Eager && !t.c.Problem.Hardware.NoEngines {
				as = "while described op by op"
			}
			t.line(" ", fmt.Sprintf("keeping everything takes %s there, %s %s (%s)", timeline.Duration(base),
				timeline.Duration(t.c.Baseline), as, Percent(Off(base, t.c.Baseline))))
		}
		t.table(t.measuredColumns(rows, &d), rows)
		if t.c.Problem.Hardware.NoEngines && d.Eager {
			t.line("", "work is what a plan adds to the processor time of the thread that trains: other "+
				"programs on the machine disturb it less than the step time")
		}
		if !d.Pools { // no simulation predicts how other addresses change the step time
			t.writeCauses(rows)
		}
	}
}

// what describes the measured plans and where they ran.
func (d *Device) what(rows []*Result) string {
	if d.Pools {
		return fmt.Sprintf("in %s itself: %s; the footprint is the arena that torch's allocator serves a "+
			"step from, planned beforehand", d.Name(), d.About)
	}
	if d.Eager {
		return fmt.Sprintf("in the training itself, %s; the footprint is the peak of what it allocates in "+
			"a step", d.About)
	}
	return fmt.Sprintf("on %s, %s: real memory, real copies, stand-ins of the recorded kernels; %s", d.Name(),
		d.About, checked(rows))
}

// checked says which plans' bytes the device checked.
func checked(rows []*Result) string {
	var not []string
	for _, r := range rows {
		if !r.Measurement.Verified {
			not = append(not, r.Info.Name)
		}
	}
	switch {
	case len(rows) == 0:
		return "no plan was carried out"
	case len(not) == 0:
		return "every byte of these plans was checked there"
	}
	return "bytes were not checked there of " + strings.Join(not, ", ")
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

func (t *textReport) measuredColumns(rows []*Result, d *Device) []column {
	none := t.none()
	beside := func(f func(m, s *Result) string) func(*Result) string {
		return func(m *Result) string {
			if s := t.c.Simulated(m); s != nil {
				return f(m, s)
			}
			return none
		}
	}
	columns := []column{
		{"manager", true, 0, func(r *Result) string { return r.Info.Name }},
		{"runs", true, 2, func(r *Result) string { return r.Runs() }},
	}
	if t.c.Budget > 0 {
		columns = append(columns, column{"fits", true, 0, func(r *Result) string { return t.tick(r.Fits) }})
	}
	columns = append(columns,
		column{"footprint", false, 0, footprintCell(t.o, rows)},
		column{"off", false, 1, beside(func(m, s *Result) string {
			return Percent(Off(m.Measurement.Footprint, Predicted(&m.Measurement, &s.Measurement)))
		})},
		column{"step", false, 0, func(r *Result) string { return timeline.Duration(r.Measurement.StepTime) }},
		column{"p95", false, 3, func(r *Result) string { return timeline.Duration(r.Measurement.StepP95) }})
	if d.Pools {
		return append(columns, column{"overhead", false, 0,
			func(r *Result) string { return Percent(r.Overhead) }})
	}
	if !t.c.Problem.HasTimes {
		return columns
	}
	if !d.Eager { // a training's steps last longer while they are described
		columns = append(columns, column{"off", false, 2,
			beside(func(m, s *Result) string {
				return Percent(Off(m.Measurement.StepTime, s.Measurement.StepTime))
			})})
	}
	columns = append(columns, column{"overhead", false, 0,
		func(r *Result) string { return Percent(r.Overhead) }})
	if t.c.Problem.Hardware.NoEngines {
		columns = append(columns, column{"work", false, 0, func(r *Result) string {
			if r.Worked {
				return Percent(r.Work)
			}
			return none
		}})
	}
	columns = append(columns,
		column{"simulated", false, 0, beside(func(_, s *Result) string { return Percent(s.Overhead) })})
	moves := func(r *Result) bool { return r.Plan.Policy == nil && len(r.Plan.Absences) > 0 }
	if slices.ContainsFunc(rows, moves) {
		columns = append(columns,
			column{"stall", false, 4, func(r *Result) string {
				return lengthCell(r.Measurement.Stall, none)
			}},
			column{"simulated", false, 4,
				beside(func(_, s *Result) string { return lengthCell(s.Measurement.Stall, none) })},
			column{"out", false, 5, func(r *Result) string { return rateCell(r.Measurement.OutRate, none) }},
			column{"in", false, 5, func(r *Result) string { return rateCell(r.Measurement.InRate, none) }})
	}
	return columns
}

// rateCell prints the speed of copies.
func rateCell(bytesPerSecond float64, none string) string {
	if bytesPerSecond == 0 {
		return none
	}
	return rate(plan.Link{BytesPerSecond: bytesPerSecond})
}

// writeCauses says for each row that differs from its simulation what the run's counters show.
func (t *textReport) writeCauses(rows []*Result) {
	said := false
	for _, m := range rows {
		s := t.c.Simulated(m)
		if s == nil || !t.c.Problem.HasTimes || !Outside(m, s) {
			continue
		}
		causes := t.c.Causes(m, s)
		if len(causes) == 0 {
			causes = []string{"nothing that was counted shows why"}
		}
		t.line("", fmt.Sprintf("%s (%s) is not as simulated: %s", m.Info.Name, m.Runs(),
			strings.Join(causes, "; ")))
		said = true
	}
	if said {
		t.b.WriteByte('\n')
	}
}
