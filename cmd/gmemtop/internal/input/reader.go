package input

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// Reader reads the traces that a command line names.
type Reader struct {
	load.Options
	// Bar begins to show the progress of work that takes a while.
	Bar func() (p Progress, done func())
	// Detail is called with how long each stage took.
	Detail func(format string, args ...any)
}

// Trace reads the trace at path. With an error it may still return the sound part.
func (r *Reader) Trace(ctx context.Context, path string) (*traces.Trace, error) {
	if AnyFolder([]string{path}) {
		return nil, exit.AsUnsupported(fmt.Errorf("%s is a folder: name one file in it; gmemtop replay %s "+
			"opens its traces as a run", path, path))
	}
	p, done := r.Bar()
	defer done()
	begun := time.Now()
	t, err := load.Open(ctx, path, withProgress(r.Options, p))
	if t != nil {
		r.Detail("read %s, %s events of %s in %s", load.Name(path), report.Grouped(t.Events.Len()),
			t.Source.Format, since(begun))
	}
	return t, noTrace(path, err)
}

// Timeline reads the trace at path and builds its timeline. With an error it may still return the sound part.
func (r *Reader) Timeline(ctx context.Context, path string) (*timeline.Timeline, error) {
	tr, err := r.Trace(ctx, path)
	if tr == nil {
		return nil, err
	}
	return r.Build(ctx, tr, err)
}

// Build builds the timeline of a trace that was read with readErr.
func (r *Reader) Build(ctx context.Context, tr *traces.Trace, readErr error) (*timeline.Timeline, error) {
	p, done := r.Bar()
	defer done()
	begun := time.Now()
	defer func() { r.Detail("matched allocations with frees in %s", since(begun)) }()
	t, err := timelineOf(ctx, tr, p)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tr.Source.Path, err)
	}
	return t, readErr
}

// Ranks reads the traces of all ranks in a folder.
func (r *Reader) Ranks(ctx context.Context, dir string) ([]load.Found, error) {
	p, done := r.Bar()
	defer done()
	return load.OpenRun(ctx, []string{dir}, withProgress(r.Options, p))
}

// Packing reads a storage-allocation problem from a file, plain or compressed. The error of a file that has
// none wraps [traces.ErrFormat] and names the line.
func (r *Reader) Packing(ctx context.Context, path string) (*pack.Table, error) {
	p, done := r.Bar()
	defer done()
	return packing(ctx, path, withProgress(r.Options, p))
}

func since(t time.Time) string { return timeline.Duration(int64(time.Since(t))) }
