package main

import (
	"cmp"
	"context"
	"io"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/spf13/cobra"
)

// diffCommand compares two traces.
type diffCommand struct {
	*app
	failIf    []string
	iteration string
}

func newDiffCommand(a *app) *cobra.Command {
	c := diffCommand{app: a}
	cmd := &cobra.Command{
		Use: "diff A B", GroupID: groupReport, Args: help.ExactArgs("A", "B"),
		Short: "What changed between two traces, as text or as a gate in CI",
		Long: `What changed at the peak between two traces: categories and call sites, with causes. Code that
only moved to other lines counts as the same.

The first steps of a training are unlike the rest. If one trace has its peak in such a warm-up step and the
other in a steady one, diff compares the highest steady step of each and says so. --iteration chooses.

--fail-if makes it a gate for CI: 'peak>2%' and 'peak_reserved>+64MiB' are changes from A to B,
'peak>40GiB' is B's own value. The report names the metrics.

Exits with 3 if a condition holds, and with 4 if a trace is damaged.`,
		Example: "  gmemtop diff old.pickle new.pickle\n" +
			"  gmemtop diff old.pickle new.pickle --iteration 1,2\n" +
			"  gmemtop diff old.pickle new.pickle --fail-if 'peak>+2%' --format markdown",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), args[0], args[1])
		},
	}
	cmd.Flags().StringArrayVar(&c.failIf, "fail-if", nil,
		"exit with 3 if this `condition` holds; may be given several times")
	cmd.Flags().StringVar(&c.iteration, "iteration", "",
		"compare the peaks of iteration `n[,m]`: n of A with m of B")
	c.flags.formatted(cmd, "text, markdown or json")
	c.flags.reading(cmd)
	c.flags.reporting(cmd)
	return cmd
}

func (c *diffCommand) run(ctx context.Context, pathA, pathB string) error {
	checks, err := report.ParseThresholds(c.failIf)
	if err != nil {
		return exit.AsMistake(err)
	}
	o := c.reportOptions()
	if o.Iterations, err = report.ParseIterations(c.iteration); err != nil {
		return exit.AsMistake(err)
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	if pathA == "-" && pathB == "-" {
		return exit.Mistakef("only one of the two traces can be standard input")
	}
	ta, errA := c.reader().Timeline(ctx, pathA)
	if ta == nil {
		return errA
	}
	tb, errB := c.reader().Timeline(ctx, pathB)
	if tb == nil {
		return errB
	}
	d, err := report.NewDiff(ctx, ta, tb, checks, o)
	if err != nil {
		return selection(err)
	}
	err = c.printReport(d, func(w io.Writer) error { return d.WriteMarkdown(w, o) },
		func(w io.Writer) error { return d.WriteText(w, o) })
	if err = cmp.Or(err, errA, errB); err == nil && d.Failed {
		return errFinding
	}
	return err
}
