// Package input reads what a command line names: saved traces, for a report or for the screen (one, two to
// compare, or a run of many), logs with PyTorch's message, and storage-allocation problems.
package input

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/tui"
)

// stages are the stages of a load in words.
var stages = map[string]string{load.StageRead: "reading", load.StageCache: "reading the decoded copy"}

// Progress is called with the progress of work: total is 0 if it is unknown.
type Progress func(stage string, done, total int64)

// withProgress returns load options that report progress to p in words.
func withProgress(o load.Options, p Progress) load.Options {
	o.Progress = func(stage string, done, total int64) { p(stages[stage], done, total) }
	if o.Waiting == nil {
		o.Waiting = func(string) { p("waiting for a program to write to the pipe", 0, 0) }
	}
	return o
}

// timelineOf builds the timeline of a trace and reports its progress to p.
func timelineOf(ctx context.Context, t *traces.Trace, p Progress) (*timeline.Timeline, error) {
	return timeline.Build(ctx, t,
		func(done, total int64) { p("matching allocations with frees", done, total) })
}

// AnyFolder reports whether any of paths is a folder.
func AnyFolder(paths []string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		info, err := os.Stat(p)
		return err == nil && info.IsDir()
	})
}

// Unnamed returns what to read where no file is named: a file on standard input, or else the embedded sample,
// which the notice names.
func Unnamed(in *os.File) (paths []string, notice string, err error) {
	if console.IsFile(in) {
		return []string{"-"}, "", nil
	}
	samples := load.Samples()
	if len(samples) == 0 {
		return nil, "", exit.Mistakef("this build has no embedded sample: name a file")
	}
	notice = "this is the embedded sample " + strings.TrimPrefix(samples[0], "sample:") +
		"; gmemtop FILE opens your own trace"
	if console.IsPiped(in) {
		notice += ", gmemtop - the one that is piped in"
	}
	return samples[:1], notice, nil
}

// Load reads one or two files as timelines, and folders and longer lists as a run. With an error it may still
// return the sound part.
func Load(ctx context.Context, paths []string, o load.Options, p Progress) (tui.Loaded, error) {
	if AnyFolder(paths) || len(paths) > 2 {
		return loadRun(ctx, paths, o, p)
	}
	var l tui.Loaded
	var first error
	for _, path := range paths {
		t, err := loadTimeline(ctx, path, o, p)
		if t != nil {
			l.Timelines = append(l.Timelines, t)
		}
		if first == nil {
			first = err
		}
	}
	return l, first
}

func loadTimeline(ctx context.Context, path string, o load.Options, p Progress) (*timeline.Timeline, error) {
	tr, err := load.Open(ctx, path, withProgress(o, func(stage string, done, total int64) {
		p(stage+" "+load.Name(path), done, total)
	}))
	if tr == nil {
		return nil, noTrace(path, err)
	}
	load.AttachCode(tr)
	t, buildErr := timelineOf(ctx, tr, p)
	if buildErr != nil {
		return t, buildErr
	}
	return t, err
}

// stripColumns is the resolution of each rank's usage in a run: as many columns as the widest screen has.
const stripColumns = 400

// loadRun reads a run: a summary of each rank, and the timeline of the one that stands out most.
func loadRun(ctx context.Context, paths []string, o load.Options, p Progress) (tui.Loaded, error) {
	o.Progress = func(_ string, done, total int64) { p("reading the run", done, total) }
	var junk skipped
	o.Skipped = junk.add
	found, err := load.OpenRun(ctx, paths, o)
	if err != nil {
		return tui.Loaded{}, err
	}
	var recordings []runs.Recording
	var damaged error
	for _, f := range found {
		recordings = append(recordings, runs.Recording(f))
		if damaged == nil {
			damaged = f.Err
		}
	}
	run, err := runs.Together(ctx, recordings, stripColumns,
		func(done, total int64) { p("summing up the ranks", done, total) })
	if err != nil {
		return tui.Loaded{}, err
	}
	l := tui.Loaded{Run: run, Notice: junk.sentence(len(found))}
	outlier := slices.IndexFunc(found, func(f load.Found) bool { return f.Path == run.Ranks[0].Path })
	load.AttachCode(found[outlier].Trace)
	t, err := timeline.Build(ctx, found[outlier].Trace, nil)
	if err != nil {
		return l, err
	}
	l.Timelines = []*timeline.Timeline{t}
	return l, damaged
}

// skipped counts the files in folders that could not be read as traces.
type skipped struct {
	foreign, useless, damaged int
	example                   string // a damaged one, else a useless one and why, else a foreign one
}

func (s *skipped) add(path string, why error) {
	switch {
	case load.IsNoTrace(why):
		if s.foreign++; s.example == "" {
			s.example = load.Name(path)
		}
	case errors.Is(why, traces.ErrUnsupported):
		if s.useless++; s.useless == 1 && s.damaged == 0 {
			s.example = load.Name(path)
			if u := (*traces.UnsupportedError)(nil); errors.As(why, &u) {
				s.example += ": " + u.Error()
			}
		}
	default:
		if s.damaged++; s.damaged == 1 {
			s.example = load.Name(path)
		}
	}
}

// sentence says how many files were left out, "" for none.
func (s *skipped) sentence(read int) string {
	left := s.foreign + s.useless + s.damaged
	if left == 0 {
		return ""
	}
	if left == 1 && s.useless == 1 {
		return fmt.Sprintf("left out 1 of %s: %s", timeline.Counted(read+left, "file"), s.example)
	}
	var parts []string
	if s.damaged > 0 {
		parts = append(parts, fmt.Sprintf("%d damaged", s.damaged))
	}
	if s.useless > 0 {
		parts = append(parts, fmt.Sprintf("%d without data that gmemtop can use", s.useless))
	}
	if s.foreign > 0 {
		parts = append(parts, fmt.Sprintf("%d not a trace", s.foreign))
	}
	return fmt.Sprintf("left out %d of %s: %s, such as %s", left, timeline.Counted(read+left, "file"),
		strings.Join(parts, ", "), s.example)
}

// Choose makes l open at the first device that o selects, and at its stretch of events. It runs while the
// trace loads, because finding iterations in long traces takes a while.
func Choose(l *tui.Loaded, o report.Options) error {
	t := l.Timelines[0]
	devices, err := o.Devices.Of(t)
	if err != nil {
		return err
	}
	d := t.Main()
	if len(devices) > 0 && !slices.Contains(devices, d) {
		l.Device, d = devices[0], devices[0]
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
