package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// captureCommand captures the same steps of several ranks.
type captureCommand struct {
	*app
	headless.Capture
	open bool
}

func newCaptureCommand(a *app) *cobra.Command {
	c := captureCommand{app: a}
	cmd := &cobra.Command{
		Use: "capture --join-file FILE | capture PLACE", GroupID: groupLive, Args: cobra.MaximumNArgs(1),
		Short: "Capture the same steps of several ranks, on any machines",
		Long: `Captures steps of a training whose machines send to a gmemtop hub, op by op. All chosen ranks
begin with the same step, shortly after the command; gmemtop names those that could not. The traces come
through the hub into a new folder, one file a rank: the machines need no shared folder.

--ranks names ranks (0,8-15), those that differ from the others (outliers), or all. A trace takes a few MiB or
more. These steps take several times as long, and the other ranks wait for them.

It needs the join file that gmemtop hub wrote; one made by --view-file does not allow it. PLACE is
ssh://HOST/RUN, slurm:JOB or k8s://NAMESPACE/JOB, as for gmemtop view.

Exits with 3 if a rank was not captured, or began with a later step.`,
		Example: "  gmemtop capture --join-file /shared/r1.join --steps 3\n" +
			"  gmemtop capture --join-file /shared/r1.join --ranks outliers,0 --open",
		RunE: func(cmd *cobra.Command, args []string) error {
			place := strings.Join(args, "")
			if place != "" && !reach.IsPlace(place) {
				return exit.Mistakef("%q: %w", place, reach.ErrPlace)
			}
			c.Where.Place = place
			return c.run(cmd.Context())
		},
	}
	p := cmd.Flags()
	addReachFlags(p, &c.Where)
	p.IntVar(&c.Steps, "steps", 1, "how many steps to capture")
	p.StringVar(&c.Ranks, "ranks", "outliers,0", "which `ranks`: numbers, outliers, all")
	p.StringVar(&c.Depth, "depth", "", "capture by ops, history or profile (default what each machine's "+
		"gmemtop run says)")
	p.StringVarP(&c.Dir, "output", "o", "", "write the traces to this new `folder` (default "+
		"RUN-stepN)")
	p.BoolVar(&c.open, "open", false, "open the traces afterwards: two of them side by side, more as a run")
	p.DurationVar(&c.Wait, "wait", fleet.CaptureWait,
		"how long to wait beyond the time that the steps should take")
	p.BoolVar(&c.flags.json, "json", false, "print the answer as JSON")
	c.flags.screen(cmd)
	help.Rare(p, "depth", "wait")
	return cmd
}

func (c *captureCommand) run(ctx context.Context) error {
	if err := c.Check(); err != nil {
		return err
	}
	if c.open && !c.HasScreen() {
		return exit.Mistakef("--open: %w", errNoScreen)
	}
	done, err := c.Capture.Run(ctx, c.note)
	if err != nil {
		return err
	}
	return c.finish(ctx, done)
}

// finish prints what was captured, and shows it if --open is given.
func (c *captureCommand) finish(ctx context.Context, done fleet.Captured) error {
	table := headless.CapturesOf(done)
	text := func(w io.Writer) error { return table.WriteText(w, c.flags.report.Units) }
	if err := c.answer(table, text); err != nil {
		return err
	}
	if !c.open {
		c.note(table.Next())
	} else if err := (&replayCommand{app: c.app, paths: table.Opens()}).run(ctx); err != nil {
		return err
	}
	if !table.Whole() {
		return errFinding
	}
	return nil
}
