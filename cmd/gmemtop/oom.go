package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/load"
)

// oomCommand explains why a job ran out of memory.
type oomCommand struct{ *app }

func newOOMCommand(a *app) *cobra.Command {
	c := oomCommand{a}
	cmd := &cobra.Command{
		Use: "oom [FILE]", GroupID: groupReport, Args: c.fileOrPipe,
		Short: "Why it ran out of memory, who held it, what would help",
		Long: `Why it ran out of memory, who held the memory, and what would help. To try
each lever, gmemtop replays the recorded run with it on an emulated allocator,
as far as the recording goes.

If FILE is a log with PyTorch's message, oom explains each of its figures. Of
other messages (CUDA error: out of memory, Killed, a bus error of a DataLoader
worker, JAX's) it says whose memory ran out and what to do. Without FILE, oom
reads what is piped into it.

Exits with 3 if the recording ran out of memory.`,
		Example: "  gmemtop oom oom_snapshot.pickle\n" +
			"  python train.py 2>&1 | tail -20 | gmemtop oom",
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "-"
			if len(args) > 0 {
				path = args[0]
			}
			return c.run(cmd.Context(), path)
		},
	}
	c.flags.formatted(cmd, "text, markdown (for an issue report) or json")
	c.flags.reading(cmd)
	c.flags.reporting(cmd)
	return cmd
}

// fileOrPipe requires a file, unless one is piped into this process.
func (c *oomCommand) fileOrPipe(cmd *cobra.Command, args []string) error {
	if len(args) == 0 && console.IsPiped(c.In) {
		return nil
	}
	return help.ExactArgs("FILE")(cmd, args)
}

// run explains the out-of-memory in a trace, or the message in a log.
func (c *oomCommand) run(ctx context.Context, path string) error {
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	if path == "-" {
		m, ok, whole := input.MessagePiped(c.In)
		if ok {
			return c.message(&m)
		}
		c.piped = whole
	}
	t, readErr := c.reader().Timeline(ctx, path)
	if t == nil {
		return c.logOr(path, readErr)
	}
	load.AttachCode(t.Trace)
	o := c.reportOptions()
	r, err := report.NewOOM(ctx, t, o)
	if err != nil {
		return selection(err)
	}
	p := c.newProgress()
	err = whatif.Explain(ctx, t, r, o.Units, whatif.Listener{
		Skipped: func(d *timeline.Device, why error) {
			c.detailf("%s: allocator settings are not simulated: %v", d.Label(), why)
		},
		Trying: func(n, of int) { p.Say(fmt.Sprintf("trying %d of %d", n, of)) },
	})
	p.Done()
	if err != nil {
		return err
	}
	err = c.printReport(r, func(w io.Writer) error { return r.WriteMarkdown(w, o) },
		func(w io.Writer) error { return r.WriteText(w, o) })
	if err == nil && readErr == nil && (r.Found || t.Trace.DiedOutOfMemory()) {
		return errFinding
	}
	return cmp.Or(err, readErr)
}

// message explains PyTorch's message alone.
func (c *oomCommand) message(m *report.Message) error {
	err := c.printReport(m, func(w io.Writer) error {
		r := &report.OOM{Message: m}
		return r.WriteMarkdown(w, c.flags.report)
	}, func(w io.Writer) error { return m.WriteText(w, c.reportOptions()) })
	if err != nil {
		return err
	}
	return errFinding
}

// logOr explains the message in a log that could not be read as a trace, or returns the read error.
func (c *oomCommand) logOr(path string, readErr error) error {
	if errors.Is(readErr, context.Canceled) {
		return readErr
	}
	if m, ok := input.Message(path); ok {
		return c.message(&m)
	}
	return input.NoMessage(path, readErr)
}
