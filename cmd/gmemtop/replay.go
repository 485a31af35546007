package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/samples"
	"github.com/gmemtop/gmemtop/tui"
)

// replayCommand looks at saved traces: on the screen, or as a report that is printed once where there is
// none.
type replayCommand struct {
	*app
	paths []string // none for the embedded sample
}

func newReplayCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "replay [FILE|DIR ...]", GroupID: groupLook,
		Short: "Look at saved traces in the terminal",
		Long: "Opens saved traces on the screen: one to look at, two to compare, a folder as a run with one trace a rank.\n" +
			"Without a file it opens the embedded sample. Where standard output is no terminal, it prints the report once instead.\n" +
			"Embedded samples can be named wherever a file is taken: " + strings.Join(sampleNames(), ", ") + ".",
		Example: "  gmemtop replay snapshot.pickle\n  gmemtop replay snapshot.pickle --from it2 --to it4 --device 1\n" +
			"  gmemtop replay before.pickle after.pickle\n  gmemtop replay snapshots/",
		RunE: func(cmd *cobra.Command, args []string) error { return (&replayCommand{a, args}).run(cmd.Context()) },
	}
	a.flags.reading(c)
	a.flags.window(c)
	a.flags.screen(c)
	return c
}

// run shows the traces on the screen, or prints their report where there is no screen.
func (c *replayCommand) run(ctx context.Context) error {
	notice := ""
	if len(c.paths) == 0 {
		names := sampleNames()
		if len(names) == 0 {
			return usageError{errors.New("this build has no embedded sample: name a file")}
		}
		c.paths = names[:1]
		notice = "this is the embedded sample " + strings.TrimPrefix(c.paths[0], "sample:") + "; gmemtop replay FILE opens your own trace"
	}
	if !c.hasScreen() {
		if notice != "" {
			c.note("%s", notice)
		}
		return c.printOnce(ctx)
	}
	if slices.Contains(c.paths, "-") && isTerminal(c.in) {
		return usageError{errors.New("- is standard input, and that is the keyboard: name a file")}
	}
	o := c.screen()
	o.Title = title(c.paths)
	o.Loader = func(ctx context.Context, progress func(stage string, done, total int64)) (tui.Loaded, error) {
		l, err := c.loaded(ctx, progress)
		if len(l.Timelines) > 0 {
			if choice := c.choose(&l); choice != nil {
				return tui.Loaded{}, choice
			}
		}
		l.Notice = notice
		return l, err
	}
	o.Open = func(path string) tui.Loader { return (&replayCommand{c.app, []string{path}}).loaded }
	return tui.Run(ctx, o)
}

// choose opens the first of the devices that --device selects, at the stretch between --from and --to. It is
// called while the trace loads, because finding iterations takes a while in long ones.
func (c *replayCommand) choose(l *tui.Loaded) error {
	o := c.flags.report
	t := l.Timelines[0]
	if c.flags.device != "" {
		devices, err := o.Devices.Of(t)
		if err != nil {
			return err
		}
		if main := t.Main(); len(devices) > 0 && !slices.Contains(devices, main) {
			l.Device = devices[0]
		}
	}
	d := l.Device
	if d == nil {
		d = t.Main()
	}
	if d == nil || o.From.IsZero() && o.To.IsZero() {
		return nil
	}
	span, err := report.Resolve(d, o.From, o.To)
	if err != nil {
		return err
	}
	l.First, l.End = span.First, span.End
	return nil
}

func title(paths []string) string {
	if len(paths) == 1 {
		return name(paths[0])
	}
	return fmt.Sprintf("%s and %d more", name(paths[0]), len(paths)-1)
}

// printOnce prints what there is to say about the traces: one's stats, the difference of two, a run's ranks.
func (c *replayCommand) printOnce(ctx context.Context) error {
	if len(c.paths) == 2 && !anyFolder(c.paths) {
		return (&diffCommand{app: c.app, format: "text"}).run(ctx, c.paths[0], c.paths[1])
	}
	if len(c.paths) == 1 && !anyFolder(c.paths) {
		return stats(ctx, c.app, c.paths[0])
	}
	p := c.newProgress()
	l, err := c.loaded(ctx, p.Tell)
	p.Done()
	if l.Run == nil {
		return err
	}
	return firstError(c.text(func(w io.Writer) error { return report.WriteRun(w, l.Run, c.flags.report) }), err)
}

func anyFolder(paths []string) bool {
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			return true
		}
	}
	return false
}

// loaded reads what the screen shows: one or two files as timelines, folders and longer lists as a run.
func (c *replayCommand) loaded(ctx context.Context, progress func(stage string, done, total int64)) (tui.Loaded, error) {
	if anyFolder(c.paths) || len(c.paths) > 2 {
		return c.loadedRun(ctx, progress)
	}
	var l tui.Loaded
	var first error
	for _, path := range c.paths {
		t, err := c.loadedTimeline(ctx, path, progress)
		if t != nil {
			l.Timelines = append(l.Timelines, t)
		}
		first = firstError(first, err)
	}
	return l, first
}

func (c *replayCommand) loadedTimeline(ctx context.Context, path string, progress func(stage string, done, total int64)) (*timeline.Timeline, error) {
	o := c.loadOptions(nil)
	o.Progress = func(stage string, done, total int64) { progress(stageText[stage]+" "+name(path), done, total) }
	tr, err := openTrace(ctx, path, o)
	if tr == nil {
		return nil, err
	}
	t, buildErr := timeline.Build(ctx, tr, func(done, total int64) { progress("matching allocations with frees", done, total) })
	return t, firstError(buildErr, err)
}

// stripColumns is how finely a run keeps each rank's usage: as many columns as the widest screen has.
const stripColumns = 400

// loadedRun reads a run: a summary of each rank on one clock, and the timeline of the rank that stands out
// most.
func (c *replayCommand) loadedRun(ctx context.Context, progress func(stage string, done, total int64)) (tui.Loaded, error) {
	o := c.loadOptions(nil)
	o.Progress = func(stage string, done, total int64) { progress("reading the run", done, total) }
	found, err := load.OpenRun(ctx, c.paths, o)
	if err != nil {
		return tui.Loaded{}, err
	}
	spans, apart := runSpans(found)
	byPath := map[string]*traces.Trace{}
	var ranks []runs.RankSummary
	var damaged error
	for i, f := range found {
		progress("summing up the ranks", int64(i), int64(len(found)))
		damaged = firstError(damaged, f.Err)
		t, err := timeline.Build(ctx, f.Trace, nil)
		if err != nil {
			return tui.Loaded{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		r, err := runs.Summarise(ctx, t, spans[i].from, spans[i].to, stripColumns)
		if err != nil {
			return tui.Loaded{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		if apart {
			r.From, r.To, r.PeakTime = r.From-spans[i].from, r.To-spans[i].from, r.PeakTime-spans[i].from
		}
		r.Path, r.Rank, r.Err = f.Path, f.Rank, f.Err
		ranks = append(ranks, r)
		byPath[f.Path] = f.Trace
	}
	l := tui.Loaded{Run: runs.Build(ranks)}
	l.Run.Apart = apart
	t, err := timeline.Build(ctx, byPath[l.Run.Ranks[0].Path], nil)
	if err != nil {
		return l, err
	}
	l.Timelines = []*timeline.Timeline{t}
	return l, damaged
}

// clockSpan is a stretch [from, to) of a clock, in nanoseconds.
type clockSpan struct{ from, to int64 }

// runSpans returns the stretch of the clock that each rank is drawn over. It is the same for all, from the
// first event of any to the last; where two ranks were not recorded at one time, or on clocks that are hours
// apart, it begins with each rank's own first event instead, and is as long as the longest.
func runSpans(found []load.Found) (spans []clockSpan, apart bool) {
	whole, longest := clockSpan{math.MaxInt64, math.MinInt64}, int64(1)
	begun, over := int64(math.MinInt64), int64(math.MaxInt64) // the last to begin, the first to end
	spans = make([]clockSpan, len(found))
	for i, f := range found {
		own := clockSpan{math.MaxInt64, math.MinInt64}
		t := f.Trace
		for d := range t.Devices {
			first, end := t.DeviceEvents(traces.DeviceID(d))
			if end > first {
				own.from = min(own.from, t.Clock.Epoch+t.Events.Time[first])
				own.to = max(own.to, t.Clock.Epoch+t.Events.Time[end-1]+1)
			}
		}
		if own.from > own.to {
			continue // it has no events
		}
		spans[i] = own
		whole.from, whole.to = min(whole.from, own.from), max(whole.to, own.to)
		begun, over = max(begun, own.from), min(over, own.to)
		longest = max(longest, own.to-own.from)
	}
	if whole.from > whole.to {
		whole = clockSpan{0, 1}
	}
	apart = begun >= over
	for i := range spans {
		if apart {
			spans[i].to = spans[i].from + longest
		} else {
			spans[i] = whole
		}
	}
	return spans, apart
}

const samplePrefix = "sample:"

func sampleNames() []string {
	var names []string
	for _, n := range samples.List() {
		names = append(names, samplePrefix+n)
	}
	return names
}

// openTrace opens an embedded sample or whatever else path names. Beside an error it may return what was
// sound.
func openTrace(ctx context.Context, path string, o load.Options) (*traces.Trace, error) {
	n, ok := strings.CutPrefix(path, samplePrefix)
	if !ok {
		return load.Open(ctx, path, o)
	}
	b, err := samples.Open(n)
	if err != nil {
		return nil, usageError{err}
	}
	t, err := gmt.Read(ctx, bytes.NewReader(b), nil)
	if t != nil {
		t.Source.Path, t.Source.Bytes = path, int64(len(b))
	}
	return t, err
}
