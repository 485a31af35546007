package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/tui"
)

// replayCommand shows saved traces on the screen, or prints one report if there is no screen.
type replayCommand struct {
	*app
	paths []string // none for the embedded sample
}

func newReplayCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "replay [FILE|DIR ...]", GroupID: groupLook,
		Short: "Look at saved traces in the terminal",
		Long: `Opens saved traces on the screen: one to look at, two to compare, a folder as a run with a
trace for each rank. A folder that gmemtop hub -o wrote has only steps, and is shown as by gmemtop view.
Without a file it opens the embedded sample. If standard output is not a terminal, it prints one report.

Samples that any command takes as a file: ` + strings.Join(load.Samples(), ", ") + ".",
		Example: "  gmemtop replay snapshot.pickle\n" +
			"  gmemtop replay snapshot.pickle --from it2 --to it4 --device 1\n" +
			"  gmemtop replay before.pickle after.pickle\n  gmemtop replay snapshots/",
		RunE: func(cmd *cobra.Command, args []string) error {
			return (&replayCommand{a, args}).run(cmd.Context())
		},
	}
	a.flags.reading(c)
	a.flags.window(c)
	a.flags.screen(c)
	return c
}

// run shows the traces on the screen, or prints their report where there is no screen.
func (c *replayCommand) run(ctx context.Context) error {
	notice := ""
	if len(c.paths) == 0 {
		var err error
		if c.paths, notice, err = input.Unnamed(c.In); err != nil {
			return err
		}
	}
	if len(c.paths) == 1 && fleet.OnlySteps(ctx, c.paths[0]) {
		return (&viewCommand{app: c.app, text: !c.HasScreen()}).viewFolder(ctx, c.paths[0])
	}
	if !c.HasScreen() {
		if notice != "" {
			c.note(notice)
		}
		return c.printOnce(ctx)
	}
	if slices.Contains(c.paths, "-") && console.IsTerminal(c.In) {
		return exit.Mistakef("standard input is a terminal: name a file instead of -")
	}
	o := c.screen()
	o.Title = title(c.paths)
	o.Loader = func(ctx context.Context, p func(stage string, done, total int64)) (tui.Loaded, error) {
		l, err := c.load(ctx, c.paths, p, nil)
		if len(l.Timelines) > 0 {
			if err := input.Choose(&l, c.flags.report); err != nil {
				return tui.Loaded{}, err
			}
		}
		if notice != "" {
			l.Notice = notice
		}
		return l, err
	}
	o.Open = func(path string) tui.Loader {
		return func(ctx context.Context, p func(stage string, done, total int64)) (tui.Loaded, error) {
			return c.load(ctx, []string{path}, p, nil)
		}
	}
	return tui.Run(ctx, o)
}

func (c *replayCommand) load(ctx context.Context, paths []string, p input.Progress,
	waiting func(string)) (tui.Loaded, error) {
	return input.Load(ctx, paths, load.Options{NoCache: c.flags.noCache, Stdin: c.In, Waiting: waiting}, p)
}

func title(paths []string) string {
	if len(paths) == 1 {
		return load.Name(paths[0])
	}
	return fmt.Sprintf("%s and %d more", load.Name(paths[0]), len(paths)-1)
}

// printOnce prints one report: the stats of one trace, the difference of two, or the ranks of a run.
func (c *replayCommand) printOnce(ctx context.Context) error {
	folder := input.AnyFolder(c.paths)
	switch {
	case len(c.paths) == 2 && !folder:
		return (&diffCommand{app: c.app}).run(ctx, c.paths[0], c.paths[1])
	case len(c.paths) == 1 && !folder:
		return stats(ctx, c.app, c.paths[0])
	}
	p := c.newProgress()
	l, err := c.load(ctx, c.paths, p.Tell, c.waiting)
	p.Done()
	if l.Run == nil {
		return err
	}
	if l.Notice != "" {
		c.note(l.Notice)
	}
	return cmp.Or(c.text(func(w io.Writer) error { return report.WriteRun(w, l.Run, c.reportOptions()) }),
		err)
}
