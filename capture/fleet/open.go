package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// errNoSteps means that recordings hold no training step.
var errNoSteps = errors.New("no recording of training steps: gmemtop hub -o writes one for each rank, and " +
	"so do " +
	"gmemtop record and gmemtop run -o")

// Open makes a job of the recordings in a folder, one process for each: a sealed run, or what the commands of
// one machine recorded. The job has ended.
func Open(ctx context.Context, dir string) (*job.Job, error) {
	found, err := load.OpenRun(ctx, []string{dir}, load.Options{NoCache: true})
	if err != nil {
		return nil, err
	}
	main := job.NewWatch(job.Options{Keep: capture.Limits{Steps: capture.MaxSteps}})
	j := job.New(main)
	begun := false
	for _, f := range found {
		steps, spans := stepsOf(f.Trace), spansOf(f.Trace)
		if len(steps)+len(spans) == 0 {
			continue
		}
		t := infoOf(f.Trace)
		t.Rank = f.Rank // which the file's name may tell
		p := main.Process
		if begun {
			p = j.Add(t, nil)
		}
		begun = true
		p.Begin(t)
		if len(spans) > 0 {
			p.Precede(spans)
		}
		for i, s := range steps {
			if gap := s.Index - steps[max(i-1, 0)].Index - 1; gap > 0 {
				p.Lose("steps", gap, "they are not in the recording")
			}
			p.Step(s)
		}
		p.End(capture.End{Reason: capture.Exited, OutOfMemory: slices.ContainsFunc(f.Trace.Losses,
			func(l traces.Loss) bool { return l.Name == traces.LossOutOfMemory })})
	}
	j.End(capture.End{Reason: capture.Exited})
	if !begun {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, errNoSteps), j.Close())
	}
	return j, nil
}

// OnlySteps reports whether the recordings in a folder hold training steps and no memory events, as those of
// a sealed run do. It stops reading at the first one that does not.
func OnlySteps(ctx context.Context, dir string) bool {
	list, _ := filepath.Glob(filepath.Join(dir, "*.gmt"))
	for _, path := range list {
		t, err := load.Open(ctx, path, load.Options{NoCache: true})
		if err != nil || t.Events.Len() > 0 || len(stepsOf(t)) == 0 {
			return false
		}
	}
	return len(list) > 0
}

// infoOf returns the process that a recording is of.
func infoOf(t *traces.Trace) capture.Info {
	x := capture.Info{PID: int(t.Process.PID.Or(0)), Host: t.Process.Host, Remote: true,
		WorldSize: t.Process.WorldSize}
	for _, d := range t.Devices {
		if d.Kind == traces.DeviceGPU {
			x.Device = fmt.Sprintf("cuda:%d", d.Ordinal)
			break
		}
	}
	return x
}

// counter returns a recording's counter of a name, nil if there is none.
func counter(t *traces.Trace, name string) *traces.Counter {
	i := slices.IndexFunc(t.Counters, func(c traces.Counter) bool { return t.Strings[c.Name] == name })
	if i < 0 {
		return nil
	}
	return &t.Counters[i]
}

// spansOf reads the spans of a recording back from its counters, each of which has a sample for each span.
// Those that contradict each other are left out.
func spansOf(t *traces.Trace) (list []capture.Span) {
	var columns []*traces.Counter
	for _, name := range capture.SpanCounters() {
		c := counter(t, name)
		if c == nil || len(columns) > 0 && len(c.Value) != len(columns[0].Value) {
			return nil
		}
		columns = append(columns, c)
	}
	row := make([]int64, len(columns))
	for i := range columns[0].Value {
		for k, c := range columns {
			row[k] = c.Value[i]
		}
		p, err := capture.SpanOfRow(row)
		if n := len(list); err == nil && (n == 0 || list[n-1].Last < p.First) {
			list = append(list, p)
		}
	}
	return list
}

// stepsOf reads the steps of a recording back from its counters (see capture.Recorder). Those of one step
// have the time at which it ended.
func stepsOf(t *traces.Trace) []capture.Step {
	at := map[int64]int{} // by time: which step
	var steps []capture.Step
	index := counter(t, "step.index")
	if index == nil {
		return nil
	}
	for i, when := range index.Time {
		if _, twice := at[when]; !twice && index.Value[i] >= 0 {
			at[when] = len(steps)
			end := when + t.Clock.Epoch
			steps = append(steps, capture.Step{Index: index.Value[i], Start: end, End: end})
		}
	}
	for name, set := range map[string]func(s *capture.Step, v int64){
		"step.time":            func(s *capture.Step, v int64) { s.Start = s.End - max(v, 0) },
		"step.forward":         func(s *capture.Step, v int64) { s.Forward = maybe.Known(v) },
		"step.backward":        func(s *capture.Step, v int64) { s.Backward = maybe.Known(v) },
		"step.optimizer":       func(s *capture.Step, v int64) { s.Optimizer = maybe.Known(v) },
		"step.allocated":       func(s *capture.Step, v int64) { s.Allocated = maybe.Known(v) },
		"step.reserved":        func(s *capture.Step, v int64) { s.Reserved = maybe.Known(v) },
		"step.peak_allocated":  func(s *capture.Step, v int64) { s.PeakAllocated = maybe.Known(v) },
		"step.peak_reserved":   func(s *capture.Step, v int64) { s.PeakReserved = maybe.Known(v) },
		"step.rss":             func(s *capture.Step, v int64) { s.RSS = maybe.Known(v) },
		"step.parameters":      func(s *capture.Step, v int64) { s.Parameters = maybe.Known(v) },
		"step.gradients":       func(s *capture.Step, v int64) { s.Gradients = maybe.Known(v) },
		"step.optimizer_state": func(s *capture.Step, v int64) { s.OptimizerState = maybe.Known(v) },
		"step.cost":            func(s *capture.Step, v int64) { s.Cost = time.Duration(v) },
		"step.retries":         func(s *capture.Step, v int64) { s.Retries = maybe.Known(v) },
		"step.ooms":            func(s *capture.Step, v int64) { s.OOMs = maybe.Known(v) },
		"step.skipped":         func(s *capture.Step, v int64) { s.Skipped = v != 0 },
	} {
		c := counter(t, name)
		if c == nil {
			continue
		}
		for i, when := range c.Time {
			if k, ok := at[when]; ok {
				set(&steps[k], c.Value[i])
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b capture.Step) int { return cmp.Compare(a.Index, b.Index) })
	return steps
}
