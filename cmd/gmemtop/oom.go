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
		Long: "Explains an out-of-memory: why the request failed, who held the memory, and what would " +
			"help. Each is tried: the recorded\n" +
			"run is played with it on an emulated allocator, through the rest of the step and the " +
			"steps that follow, where the trace allows it.\n" +
			"Of a log that holds PyTorch's message alone, each figure is explained. Exits with 3 " +
			"where there is an out-of-memory.",
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
	o := a.flags.report
	r, err := report.NewOOM(ctx, t, o)
	if err != nil {
		return selection(err)
	}
	if err := whatif.Explain(ctx, t, r, o.Units, func(d *timeline.Device, why error) {
		a.detail("%s: allocator settings are not simulated: %v", d.Label(), why)
	}); err != nil {
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
