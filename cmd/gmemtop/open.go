package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

func (a *app) loadOptions(p input.Progress) load.Options {
	o := load.Options{NoCache: a.flags.noCache, Stdin: a.In}
	if a.piped != nil {
		o.Stdin = a.piped
	}
	o.Waiting = a.waiting
	return input.Options(o, p)
}

// waiting tells the user why nothing happens.
func (a *app) waiting(path string) {
	a.notef("waiting for a program to write to %s, which is a named pipe", load.Name(path))
}

// trace reads the trace at path. With an error it may still return the sound part.
func (a *app) trace(ctx context.Context, path string) (*traces.Trace, error) {
	if input.AnyFolder([]string{path}) {
		return nil,
			fmt.Errorf("%s is a folder, which is %w here: gmemtop replay %s shows the traces in it as "+
				"a run", path, traces.ErrUnsupported, path)
	}
	p := a.newProgress()
	defer p.Done()
	begun := time.Now()
	t, err := load.Open(ctx, path, a.loadOptions(p.Tell))
	if t != nil {
		a.detailf("read %s, %s events of %s in %s", load.Name(path), report.Grouped(t.Events.Len()),
			t.Source.Format, since(begun))
	}
	return t, input.NoTrace(path, err)
}

// timeline reads the trace at path and builds its timeline. With an error it may still return the sound part.
func (a *app) timeline(ctx context.Context, path string) (*timeline.Timeline, error) {
	tr, err := a.trace(ctx, path)
	if tr == nil {
		return nil, err
	}
	return a.build(ctx, tr, err)
}

// build builds the timeline of a trace that was read with readErr.
func (a *app) build(ctx context.Context, tr *traces.Trace, readErr error) (*timeline.Timeline, error) {
	p := a.newProgress()
	defer p.Done()
	defer func(begun time.Time) {
		a.detailf("matched allocations with frees in %s", since(begun))
	}(time.Now())
	t, err := input.Timeline(ctx, tr, p.Tell)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tr.Source.Path, err)
	}
	return t, readErr
}

func since(t time.Time) string { return timeline.Duration(int64(time.Since(t))) }
