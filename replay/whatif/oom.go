package whatif

import (
	"context"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Listener observes the progress of Explain. Its functions may be nil.
type Listener struct {
	// Skipped is called for a device whose recording cannot be played.
	Skipped func(d *timeline.Device, why error)
	// Trying is called before the nth lever is tried.
	Trying func(n, of int)
}

// Explain plays every device's recording under other allocator settings and adds the outcomes to the report.
// A device that cannot be played leaves the report unchanged. The only error is the context's.
func Explain(ctx context.Context, t *timeline.Timeline, r *report.OOM, u timeline.Units, l Listener) error {
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
		answer, err := Allocator(ctx, d, failed, Options{Work: defaultWork / int64(len(r.Devices))})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if l.Skipped != nil {
				l.Skipped(d, err)
			}
			row.Simulate(&report.Simulation{Reason: err.Error(), Settings: []report.SimulatedSettings{},
				Notes: []string{}}, u)
		default:
			row.Simulate(simulation(answer, u), u)
			if row.OOM {
				if err := tryLevers(ctx, d, answer, row, u, l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// deviceOf returns the device of a row of the report.
func deviceOf(t *timeline.Timeline, row *report.OOMDevice) *timeline.Device {
	for _, d := range t.Devices {
		if d.Info.Ordinal == row.Device && d.Info.Kind.String() == row.DeviceKind {
			return d
		}
	}
	return nil
}

// simulation converts a result for the report.
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

// tryWork bounds the steps played to try levers, to about a second's worth.
const tryWork = 6_000_000

// tryLevers plays the levers of a row, the largest savings first, and two together if none is enough. The
// only error is the context's.
func tryLevers(ctx context.Context, d *timeline.Device, r *Result, row *report.OOMDevice, u timeline.Units,
	heard Listener) error {
	t, err := newTrials(d, r)
	if err != nil {
		row.NotTried(err.Error())
		return nil
	}
	work := int64(tryWork)
	try := func(levers ...autopsy.Effect) (report.Tried, error) {
		if work -= int64(t.request) + followingSteps*int64(t.request-max(t.again, 0)); work < 0 {
			return report.Tried{Outcome: report.NotTried,
				Reason: "the recording is too long to try every lever"}, nil
		}
		out, err := t.try(ctx, levers...)
		switch {
		case ctx.Err() != nil:
			return report.Tried{}, ctx.Err()
		case err != nil:
			return report.Tried{Outcome: report.NotTried, Reason: err.Error()}, nil
		}
		capacity := r.Capacity
		return report.Tried{Outcome: outcomes[out.Verdict], Steps: out.Steps, Peak: &out.Peak,
			PeakReserved: &out.PeakReserved, Capacity: &capacity}, nil
	}
	for i := range row.Levers {
		l := &row.Levers[i]
		if heard.Trying != nil {
			heard.Trying(i+1, len(row.Levers))
		}
		if l.Simulated != nil {
			l.Effect.Setting = l.Simulated.Setting
		}
		tried, err := try(l.Effect)
		if err != nil {
			return err
		}
		l.Tried = &tried
	}
	for i := range row.Levers { // after all levers have had their turn, since work is bounded
		if err := divide(ctx, &row.Levers[i], try); err != nil {
			return err
		}
	}
	row.Rank()
	for _, pair := range row.Pairs() {
		tried, err := try(row.Levers[pair[0]].Effect, row.Levers[pair[1]].Effect)
		if err != nil {
			return err
		}
		if tried.Outcome == report.Finishes || tried.Outcome == report.ServesRequest {
			row.Together = &report.Together{Tried: tried,
				Levers: []string{row.Levers[pair[0]].Name, row.Levers[pair[1]].Name}}
			break
		}
	}
	row.SayTried(u)
	return nil
}

// divide tries a lever that does not help in more and more parts, and turns it into the first that helps.
func divide(ctx context.Context, l *report.Lever,
	try func(...autopsy.Effect) (report.Tried, error)) error {
	if l.Divide == nil {
		return nil
	}
	for _, parts := range autopsy.MoreParts() {
		if parts <= l.Parts || l.Tried.Outcome != report.DoesNotHelp {
			continue
		}
		of, ok, err := l.Divide(ctx, parts)
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		tried, err := try(of.Effect)
		switch {
		case err != nil:
			return err
		case tried.Outcome == report.NotTried:
			return nil
		case tried.Outcome == report.DoesNotHelp:
			l.Tried.AlsoParts = parts
		default:
			*l = l.InParts(&of)
			l.Tried = &tried
		}
	}
	return nil
}

var outcomes = [...]string{
	fails: report.DoesNotHelp, serves: report.ServesRequest, postpones: report.Postpones,
	finishes: report.Finishes,
}
