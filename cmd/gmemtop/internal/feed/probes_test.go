package feed

import (
	"errors"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

func TestProbeRowsShowTheIntervalsMaximumAndNoStepAlerts(t *testing.T) {
	s := job.NewWatch(job.Options{}).Process
	f := NewProbes(NewProcess(s, ""))
	for i := range int64(100) { // grows without end: of steps that would be a leak
		s.Step(capture.Step{Index: i, Start: i * 1e9, End: (i + 1) * 1e9,
			Allocated: maybe.Known(i << 20), PeakAllocated: maybe.Known(i<<20 + 5)})
	}
	f.take(t.Context())
	l := f.Look()
	if len(l.Steps) != 100 || l.Steps[99].Bytes != maybe.Known(99<<20+5) ||
		l.Steps[99].Held != maybe.Known(99<<20) ||
		l.Steps[99].Duration != maybe.Known(1e9) || l.Steps[99].Cost.IsKnown() {
		t.Fatalf("%d rows, last %+v", len(l.Steps), l.Steps[len(l.Steps)-1])
	}
	if l.Report.Trend.Leaking || l.Report.Trend.Points > 0 || l.Report.Duration != 0 ||
		len(l.Report.Spikes) > 0 || l.Report.Top != 99 {
		t.Errorf("report %+v", l.Report)
	}
	if len(l.Alerts) > 0 {
		t.Errorf("alerts %+v", l.Alerts)
	}
	s.Step(capture.Step{Index: 100, Start: 100e9, End: 101e9, Allocated: maybe.Known(7),
		PeakAllocated: maybe.Known(8), OOMs: maybe.Known(2)})
	f.take(t.Context())
	if l = f.Look(); len(l.Steps) != 101 || l.Steps[100].Bytes != maybe.Known(8) || l.Steps[100].OOMs != 2 {
		t.Errorf("%d rows, last %+v", len(l.Steps), l.Steps[len(l.Steps)-1])
	}
	// running out of memory is a fact, whether a row is a step or an interval
	if len(l.Alerts) != 1 || l.Alerts[0].Kind != live.OutOfMemory {
		t.Errorf("alerts %+v", l.Alerts)
	}
	for _, kind := range []live.OrderKind{live.Describe, live.Every} {
		if err := f.Order(t.Context(), live.Order{Kind: kind, Steps: 1}); !errors.Is(err, errNothingToAsk) {
			t.Errorf("order %d: %v", kind, err)
		}
	}
}
