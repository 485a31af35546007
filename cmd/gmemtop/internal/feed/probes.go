package feed

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/live"
)

// Probes is a process watched by probes, as the screen sees it: a Process whose rows are intervals of time. A
// row shows the most that was held in its interval, where a step's row shows what was left at its end.
// Intervals are cut anywhere in a step, and a figure from an arbitrary moment would jump from row to row. For
// the same reason it reports neither leaks nor rows that stand out. It implements live.Feed.
type Probes struct {
	*Process
	mu   sync.Mutex
	rows []live.Step
	ooms int64 // so far
}

// errNothingToAsk answers orders, which only make sense for steps.
var errNothingToAsk = errors.New("probes capture everything whole as it comes: there is nothing to ask for")

// NewProbes returns the feed of a process that is watched by probes.
func NewProbes(f *Process) *Probes { return &Probes{Process: f} }

// Look implements live.Feed.
func (f *Probes) Look() live.Look {
	l, v := f.Process.Look(), f.process.History.Snapshot()
	f.mu.Lock()
	defer f.mu.Unlock()
	from := 0
	if n := len(f.rows); n > 0 {
		from, _ = slices.BinarySearchFunc(v.Steps, f.rows[n-1].Index+1,
			func(s capture.Step, at int64) int { return int(s.Index - at) })
	}
	for _, s := range v.Steps[from:] {
		failed := max(s.OOMs.Or(0)-f.ooms, 0)
		f.ooms += failed
		f.rows = append(f.rows, live.Step{Index: s.Index, Duration: maybe.Known(s.End - s.Start),
			Bytes: s.PeakAllocated, Held: s.Allocated, OOMs: failed})
	}
	if keep := f.process.History.Limits(); len(f.rows) > keep.Most() {
		f.rows = slices.Clone(f.rows[len(f.rows)-keep.Steps:])
	}
	l.Steps, l.Figure = slices.Clip(f.rows), "allocated since attaching"
	l.Report = steps.Report{From: max(len(f.rows)-steps.Watched, 0), Top: -1}
	for i := l.Report.From; i < len(f.rows); i++ {
		if l.Report.Top < 0 || f.rows[i].Bytes.Or(0) > f.rows[l.Report.Top].Bytes.Or(0) {
			l.Report.Top = i
		}
	}
	l.Alerts = slices.DeleteFunc(slices.Clone(l.Alerts),
		func(a live.Alert) bool { return a.Kind == live.Leak || a.Kind == live.Spike || a.Kind == live.Slow })
	l.Row, l.Capture.All = "interval", true
	// a probe's cost is spent inside the program's own calls and cannot be measured
	l.Capture.Share, l.Capture.Measured = 0, false
	return l
}

// Order implements live.Feed.
func (f *Probes) Order(ctx context.Context, o live.Order) error {
	if o.Kind != live.Detach {
		return errNothingToAsk
	}
	return f.Process.Order(ctx, o)
}
