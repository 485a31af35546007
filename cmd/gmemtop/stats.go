package main

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
)

func newStatsCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "stats FILE", GroupID: groupReport, Args: help.ExactArgs("FILE"),
		Short: "Peak, who held it, iterations, fragmentation, losses",
		Long: `One report of a trace: the peak and who held it, iterations, fragmentation, and what the trace
lacks.

FILE is any supported trace, plain or compressed, or - for standard input.`,
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
	t, readErr := a.reader().Timeline(ctx, path)
	if t == nil {
		return readErr
	}
	return cmp.Or(printStats(ctx, a, t), readErr)
}

func printStats(ctx context.Context, a *app, t *timeline.Timeline) error {
	o := a.reportOptions()
	s, err := report.NewStats(ctx, t, o)
	if err != nil {
		return selection(err)
	}
	return a.printReport(s, nil, func(w io.Writer) error { return s.WriteText(w, o) })
}
