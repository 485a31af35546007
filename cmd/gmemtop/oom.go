package main

import (
	"context"
	"io"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/spf13/cobra"
)

func newOOMCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "oom FILE", GroupID: groupReport, Args: exactArgs("FILE"),
		Short: "Why it ran out of memory, who held it, what would help",
		Long: "Explains an out-of-memory: why the request failed, who held the memory, and what would " +
			"help, most first, with\n" +
			"what each would take off where the trace can show it. Settings of the allocator are tried: " +
			"the recorded run is played under\n" +
			"them, where the trace allows it. Exits with 3 where the trace has an out-of-memory.",
		Example: "  gmemtop oom oom_snapshot.pickle",
		RunE:    func(cmd *cobra.Command, args []string) error { return oom(cmd.Context(), a, args[0]) },
	}
	a.flags.reading(c)
	a.flags.reporting(c)
	return c
}

func oom(ctx context.Context, a *app, path string) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	t, readErr := a.timeline(ctx, path)
	if t == nil {
		return readErr
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
	if a.flags.json {
		err = a.write(false, func(w io.Writer) error { return report.WriteJSON(w, r) })
	} else {
		err = a.text(func(w io.Writer) error { return r.WriteText(w, o) })
	}
	if err == nil && readErr == nil && r.Found {
		return errFinding
	}
	return firstError(err, readErr)
}
