package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/spf13/cobra"
)

func newOOMCommand(a *app) *cobra.Command {
	format := ""
	c := &cobra.Command{
		Use: "oom FILE", GroupID: groupReport, Args: exactArgs("FILE"),
		Short: "Why it ran out of memory, who held it, what would help",
		Long: `Why it ran out of memory, who held the memory, and what would help. Each lever is tried: the
recorded run goes on with it, on an emulated allocator, as far as the trace shows what came
next.

If FILE is a log with PyTorch's message, each figure of the message is explained.

Exits with 3 if there is an out-of-memory.`,
		Example: "  gmemtop oom oom_snapshot.pickle\n" +
			"  python train.py 2>&1 | tail -20 | gmemtop oom -",
		RunE: func(cmd *cobra.Command, args []string) error { return oom(cmd.Context(), a, args[0], format) },
	}
	c.Flags().StringVar(&format, "format", "text", "text, markdown (for an issue report) or json")
	a.flags.reading(c)
	a.flags.reporting(c)
	return c
}

func oom(ctx context.Context, a *app, path, format string) error {
	switch format {
	case "text", "markdown":
	case "json":
		a.flags.json = true
	default:
		return usageError{fmt.Errorf("--format %q is not one of text, markdown, json", format)}
	}
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	if path == "-" {
		if m, ok := a.messagePiped(); ok {
			return a.oomMessage(&m, format)
		}
	}
	t, readErr := a.timeline(ctx, path)
	if t == nil {
		return a.logOr(path, format, readErr)
	}
	o := a.reportOptions()
	r, err := report.NewOOM(ctx, t, o)
	if err != nil {
		return selection(err)
	}
	p := a.newProgress()
	err = whatif.Explain(ctx, t, r, o.Units, whatif.Listener{
		Skipped: func(d *timeline.Device, why error) {
			a.detail("%s: allocator settings are not simulated: %v", d.Label(), why)
		},
		Trying: func(n, of int) { p.Say(fmt.Sprintf("trying %d of %d", n, of)) },
	})
	p.Done()
	if err != nil {
		return err
	}
	switch {
	case a.flags.json:
		err = a.write(false, func(w io.Writer) error { return report.WriteJSON(w, r) })
	case format == "markdown":
		err = a.write(false, func(w io.Writer) error { return r.WriteMarkdown(w, o) })
	default:
		err = a.text(func(w io.Writer) error { return r.WriteText(w, o) })
	}
	if err == nil && readErr == nil && (r.Found || t.Trace.DiedOutOfMemory()) {
		return errFinding
	}
	return firstError(err, readErr)
}
