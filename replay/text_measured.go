package replay

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline"
)

// The part of the text about measurements on devices: what each plan took there, and why that may differ.

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
	if len(rows) == 0 && (d.Pools || d.Eager) {
		return "no plan, in the training itself, " + d.About
	}
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
			causes = []string{"none of the counters shows why"}
		}
		t.line("", fmt.Sprintf("%s (%s) is not as simulated: %s", m.Info.Name, m.Runs(),
			strings.Join(causes, "; ")))
		said = true
	}
	if said {
		t.b.WriteByte('\n')
	}
}
