package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/replay/whatif"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

func newStatsCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "stats FILE", GroupID: groupReport, Args: exactArgs("FILE"),
		Short: "Peak, who held it, iterations, fragmentation, losses",
		Long: "Prints one report of a trace: the peak and who held it, iterations, fragmentation, and " +
			"what the trace lacks.\n" +
			"FILE is any supported trace, plain or compressed, or - for standard input.",
		Example: "  gmemtop stats snapshot.pickle\n  gmemtop stats snapshot.pickle --from it2 --to it3\n" +
			"  gmemtop stats - --json < snapshot.pickle",
		RunE: func(cmd *cobra.Command, args []string) error { return stats(cmd.Context(), a, args[0]) },
	}
	a.flags.reading(c)
	a.flags.window(c)
	a.flags.reporting(c)
	return c
}

func stats(ctx context.Context, a *app, path string) error {
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	t, readErr := a.timeline(ctx, path)
	if t == nil {
		return readErr
	}
	return firstError(printStats(ctx, a, t), readErr)
}

func printStats(ctx context.Context, a *app, t *timeline.Timeline) error {
	o := a.flags.report
	s, err := report.NewStats(ctx, t, o)
	if err != nil {
		return selection(err)
	}
	if a.flags.json {
		return a.write(false, func(w io.Writer) error { return report.WriteJSON(w, s) })
	}
	return a.text(func(w io.Writer) error { return s.WriteText(w, o) })
}

// selection marks an error about what the user chose of a trace as a mistake in the command line, unless it
// was told to stop.
func selection(err error) error {
	if exitCode(err) == exitInterrupted {
		return err
	}
	return usageError{err}
}

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

// diffCommand compares two traces.
type diffCommand struct {
	*app
	failIf []string
	format string
}

func newDiffCommand(a *app) *cobra.Command {
	c := diffCommand{app: a}
	cmd := &cobra.Command{
		Use: "diff A B", GroupID: groupReport, Args: exactArgs("A", "B"),
		Short: "What changed between two traces, as text or as a gate in CI",
		Long: "Compares two traces at their peaks: categories and call sites, with causes; line shifts " +
			"in the source do not count.\n" +
			"--fail-if sets conditions on a metric: 'peak>+2%' (a change), 'peak_reserved>+64MiB', " +
			"'peak>40GiB' (B's own value).\n" +
			"The report names the metrics. Exits with 3 where a condition holds.",
		Example: "  gmemtop diff old.pickle new.pickle\n  gmemtop diff old.pickle new.pickle --fail-if " +
			"'peak>+2%' --format markdown",
		RunE: func(cmd *cobra.Command,
			args []string) error {
			return c.run(cmd.Context(), args[0], args[1])
		},
	}
	cmd.Flags().StringArrayVar(&c.failIf, "fail-if", nil,
		"exit with 3 if this holds; may be given several times")
	cmd.Flags().StringVar(&c.format, "format", "text", "text, markdown or json")
	c.flags.reading(cmd)
	c.flags.reporting(cmd)
	return cmd
}

func (c *diffCommand) run(ctx context.Context, pathA, pathB string) error {
	checks, err := report.ParseThresholds(c.failIf)
	if err != nil {
		return usageError{err}
	}
	switch c.format {
	case "text", "markdown":
	case "json":
		c.flags.json = true
	default:
		return usageError{fmt.Errorf("--format %q is not one of text, markdown, json", c.format)}
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	if pathA == "-" && pathB == "-" {
		return usageError{fmt.Errorf("only one of the two traces can be standard input")}
	}
	ta, errA := c.timeline(ctx, pathA)
	if ta == nil {
		return errA
	}
	tb, errB := c.timeline(ctx, pathB)
	if tb == nil {
		return errB
	}
	o := c.flags.report
	d, err := report.NewDiff(ctx, ta, tb, checks, o)
	if err != nil {
		return selection(err)
	}
	switch {
	case c.flags.json:
		err = c.write(false, func(w io.Writer) error { return report.WriteJSON(w, d) })
	case c.format == "markdown":
		err = c.write(false, func(w io.Writer) error { return d.WriteMarkdown(w, o) })
	default:
		err = c.text(func(w io.Writer) error { return d.WriteText(w, o) })
	}
	if err = firstError(err, errA, errB); err == nil && d.Failed {
		return errFinding
	}
	return err
}
