package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui"
)

// viewCommand shows a run of several machines.
type viewCommand struct {
	*app
	where reach.Where
	text  bool
}

func newViewCommand(a *app) *cobra.Command {
	c := viewCommand{app: a}
	cmd := &cobra.Command{
		Use:     "view --join-file FILE | PLACE | FOLDER | --hub URL --run NAME",
		GroupID: groupLive, Args: cobra.MaximumNArgs(1),
		Short: "Watch a training that runs on several machines",
		Long: `Shows all ranks of a training whose machines send to a gmemtop hub, live: which rank differs
from the others, which machine has fallen silent, and what was lost on the way.

PLACE is where the hub is, for a machine that cannot connect to it: ssh://HOST/RUN, slurm:JOB on a login
node, ssh://LOGIN/slurm:JOB from elsewhere, k8s://NAMESPACE/JOB. ssh, srun or kubectl starts
your own gmemtop there, and the keys stay there.

Afterwards, view FOLDER shows the same for the folder that gmemtop hub -o wrote, or for the recordings that
gmemtop run -o or gmemtop record wrote there.

--text prints one line for each rank and ends.`,
		Example: "  gmemtop view --join-file /shared/r1.join\n  gmemtop view --join-file /shared/r1.join " +
			"--text\n  gmemtop view ssh://node0/r1\n  gmemtop view slurm:4242\n" +
			"  gmemtop view /shared/r1",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && reach.IsPlace(args[0]):
				c.where.Place = args[0]
				return c.view(cmd.Context())
			case len(args) > 0:
				return c.viewFolder(cmd.Context(), args[0])
			}
			return c.view(cmd.Context())
		},
	}
	p := cmd.Flags()
	addReachFlags(p, &c.where)
	p.StringVar(&c.where.Run, "run", "", "with --hub, the `name` of the run")
	help.Rare(p, "run")
	p.BoolVar(&c.text, "text", false, "print the ranks as they are now, and end")
	p.BoolVar(&c.flags.json, "json", false, "print the ranks as JSON, and end")
	c.flags.screen(cmd)
	return cmd
}

// view shows the run of the join file, or of a place.
func (c *viewCommand) view(ctx context.Context) error {
	text, err := c.prints()
	if err != nil {
		return err
	}
	hub, leave, err := c.where.Open(ctx, "view", bus.Viewer)
	if err != nil {
		return err
	}
	defer leave()
	conn, join, err := hub.Dial(ctx)
	if err != nil {
		return err
	}
	w := fleet.NewWatch(fleet.WatchOptions{})
	defer w.Reading(ctx, func(ctx context.Context) { w.Follow(ctx, conn, join, hub) })()
	if !text {
		return c.show(ctx, w.Job(), "for the nodes of run "+report.Printable(join.Run),
			feed.Capturing(w, func(ctx context.Context) (fleet.Reach, func(), error) {
				return c.where.Orders(ctx, hub)
			}))
	}
	if err := w.CatchUp(ctx, join.Run); err != nil {
		return err
	}
	return c.print(join.Run, w.Job())
}

// viewFolder shows the recordings in a folder.
func (c *viewCommand) viewFolder(ctx context.Context, dir string) error {
	if c.where.JoinFile != "" || c.where.URL != "" {
		return exit.Mistakef("name either a folder, or --join-file or --hub")
	}
	text, err := c.prints()
	if err != nil {
		return err
	}
	j, err := fleet.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer j.Close()
	if text {
		return c.print(filepath.Base(filepath.Clean(dir)), j)
	}
	return c.show(ctx, j, "", nil)
}

// prints reports whether text is asked for, or an error if neither that nor the screen is possible.
func (c *viewCommand) prints() (bool, error) {
	text := c.text || c.flags.json
	if !text && !c.HasScreen() {
		return false, exit.Mistakef("%w; --text prints the ranks as they are now", errNoScreen)
	}
	return text, nil
}

// show shows a job on the screen.
func (c *viewCommand) show(ctx context.Context, j *job.Job, waiting string, capture feed.Capturer) error {
	f := feed.NewJob(j, waiting, feed.JobOptions{Capture: capture})
	defer f.Close()
	o := c.screen()
	o.Feed, o.Planner = f, planner.NewFleet(j)
	return tui.Run(ctx, o)
}

// print prints the ranks of a run as they are now.
func (c *viewCommand) print(run string, j *job.Job) error {
	table := headless.RanksOf(run, j)
	return c.answer(table, func(w io.Writer) error { return table.WriteText(w, c.flags.report.Units) })
}
