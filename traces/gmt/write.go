package gmt

import (
	"context"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/traces"
)

// Write writes all of t to w, with one Write call for each chunk, and is the inverse of [Read]: the trace
// that Read returns equals t in every exported field, including all of t.Source. It stops between chunks when
// ctx is cancelled. Errors are those of w and ctx, and about values that do not fit the file: actions above
// 99, enumerations above 9, texts above 512 MiB.
func Write(ctx context.Context, w io.Writer, t *traces.Trace) error {
	if err := checkColumns(t); err != nil {
		return err
	}
	e, err := newEncoder(w)
	if err != nil {
		return err
	}
	if err := e.out.schema(t.Source.Tool); err != nil {
		return err
	}
	if err := e.definitions(ctx, t); err != nil {
		return err
	}
	if err := e.events(ctx, &t.Events, 0, t.Events.Len()); err != nil {
		return err
	}
	if err := e.recordsOf(ctx, t); err != nil {
		return err
	}
	if err := e.state(ctx, &t.Final); err != nil {
		return err
	}
	return e.end()
}

// checkColumns refuses tables whose columns have different lengths, which would be written wrongly.
func checkColumns(t *traces.Trace) error {
	ev := &t.Events
	n := len(ev.Time)
	for _, m := range []int{len(ev.Addr), len(ev.Size), len(ev.Stack), len(ev.Stream), len(ev.Device),
		len(ev.Action)} {
		if m != n {
			return fmt.Errorf("gmt: the columns of the events have %d and %d rows; build the trace with "+
				"traces.Builder", n, m)
		}
	}
	if ev.Detail != nil && len(ev.Detail) != n {
		return fmt.Errorf("gmt: the columns of the events have %d and %d rows; build the trace with "+
			"traces.Builder", n, len(ev.Detail))
	}
	for i, c := range t.Counters {
		if len(c.Time) != len(c.Value) || (c.Event != nil && len(c.Event) != len(c.Time)) {
			return fmt.Errorf("gmt: counter %d has %d times and %d values", i, len(c.Time), len(c.Value))
		}
	}
	return nil
}

// definitions writes everything that rows refer to, and the description of the recording.
func (e *encoder) definitions(ctx context.Context, t *traces.Trace) error {
	if err := e.defineRecording(t.Source, t.Process, t.Clock); err != nil {
		return err
	}
	var done counts
	if err := e.tables(ctx, t, &done); err != nil {
		return err
	}
	for _, c := range t.Counters {
		if err := e.defineCounter(c); err != nil {
			return err
		}
	}
	for _, s := range t.Settings {
		if err := e.defineSetting(kindSetting, s); err != nil {
			return err
		}
	}
	for _, s := range t.Extra {
		if err := e.defineSetting(kindExtra, s); err != nil {
			return err
		}
	}
	for i, l := range t.Losses {
		if err := e.defineLoss(i, l); err != nil {
			return err
		}
	}
	if err := e.defineState(&t.Final); err != nil {
		return err
	}
	for i, o := range t.Ops {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := e.opInfo(o); err != nil {
			return err
		}
	}
	return nil
}

// recordsOf writes ops, accesses, marks and samples.
func (e *encoder) recordsOf(ctx context.Context, t *traces.Trace) error {
	n := 0
	stop := func() error {
		if n++; n%4096 == 0 {
			return ctx.Err()
		}
		return nil
	}
	for _, o := range t.Ops {
		if err := e.op(o); err != nil {
			return err
		}
		if err := stop(); err != nil {
			return err
		}
	}
	for _, a := range t.Accesses {
		if err := e.access(a); err != nil {
			return err
		}
		if err := stop(); err != nil {
			return err
		}
	}
	for _, m := range t.Marks {
		if err := e.mark(m); err != nil {
			return err
		}
	}
	for i, c := range t.Counters {
		for j := range c.Time {
			event := int32(0)
			if c.Event != nil {
				event = c.Event[j]
			}
			if err := e.sample(i, c.Time[j], c.Value[j], event); err != nil {
				return err
			}
			if err := stop(); err != nil {
				return err
			}
		}
	}
	return nil
}
