package whatif

import (
	"context"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Explain plays every device's recording under other settings of the allocator and hands the outcomes to the
// report. What cannot be played leaves the report as it is, and skipped is told why; the error is the
// context's.
func Explain(ctx context.Context, t *timeline.Timeline, r *report.OOM, u timeline.Units,
	skipped func(d *timeline.Device, why error)) error {
	for i := range r.Devices {
		row := &r.Devices[i]
		d := deviceOf(t, row)
		if d == nil {
			continue
		}
		failed := timeline.Start
		if row.OOM && row.Event != nil {
			failed = timeline.Moment(*row.Event)
		}
		answer, err := Allocator(ctx, d, failed, Options{Work: DefaultWork / int64(len(r.Devices))})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			skipped(d, err)
			row.Simulate(&report.Simulation{Reason: err.Error(), Settings: []report.SimulatedSettings{},
				Notes: []string{}}, u)
		default:
			row.Simulate(simulation(answer, u), u)
		}
	}
	return nil
}

// deviceOf returns the device that a row of the report is of.
func deviceOf(t *timeline.Timeline, row *report.OOMDevice) *timeline.Device {
	for _, d := range t.Devices {
		if d.Info.Ordinal == row.Device && d.Info.Kind.String() == row.DeviceKind {
			return d
		}
	}
	return nil
}

// simulation is an answer as the report takes it.
func simulation(r *Result, u timeline.Units) *report.Simulation {
	s := &report.Simulation{
		Available: true, Emulator: r.Fidelity.Summary(u), Fidelity: r.Fidelity.Score(),
		CapacityAtLeast: r.CapacityAtLeast,
		FromStart:       r.FromStart, Settings: []report.SimulatedSettings{},
		Notes: append([]string{}, r.Notes...),
	}
	if r.Capacity > 0 {
		s.Capacity = &r.Capacity
	}
	recorded := simulated(r, &r.Recorded)
	s.Recorded = &recorded
	for i := range r.Outcomes {
		s.Settings = append(s.Settings, simulated(r, &r.Outcomes[i]))
	}
	return s
}

func simulated(r *Result, o *Outcome) report.SimulatedSettings {
	s := report.SimulatedSettings{
		Name: o.Name, Setting: o.Option, Conf: o.Conf, PeakReserved: o.PeakReserved,
		DriverCalls: o.DriverCalls, Retries: o.Retries,
		Exactness: o.Exactness.String(),
	}
	if r.Capacity > 0 {
		fits := o.Completes && (o.Served || r.Failed == timeline.Start)
		s.Fits = &fits
	}
	if o.SmallestCap > 0 {
		s.SmallestCap = &o.SmallestCap
	}
	if n, ok := r.Spare(o); ok {
		s.Spare = &n
	}
	return s
}
