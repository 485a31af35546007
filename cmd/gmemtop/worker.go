package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/sweep"
	"github.com/gmemtop/gmemtop/managers/plan"
)

// workerCommand plans what a sweep on another machine hands out.
type workerCommand struct {
	planning
	join string
	jobs int
	wait time.Duration
	soon bool // wait no longer than that for a sweep that has not begun
}

func newWorkerCommand(a *app) *cobra.Command {
	c := workerCommand{planning: planning{app: a}}
	cmd := &cobra.Command{
		Use: "worker --join-file FILE TRACE ...", GroupID: groupReport, Args: help.SomeArgs("TRACE"),
		Short: "Make the plans that a gmemtop sweep on another machine hands out",
		Long: `Makes plans for a gmemtop sweep --serve until all are made. Start as many as you like, whenever
you like: if one ends or loses its connection, another takes over its plan.

Name the traces of the sweep. Their paths may differ here: gmemtop recognises them by content.`,
		Example: "  srun -n 64 gmemtop worker --join-file /shared/s1.join /shared/traces/*.gmt",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.soon = cmd.Flags().Changed("wait")
			return c.run(cmd.Context(), args)
		},
	}
	p := cmd.Flags()
	p.StringVar(&c.join, "join-file", "", "the `file` that gmemtop sweep --serve wrote")
	addJobsFlag(p, &c.jobs)
	p.DurationVar(&c.wait, "wait", time.Minute, "how long to wait for a sweep that no longer answers; if "+
		"given, also how long to wait for it to start, which is otherwise unlimited")
	return cmd
}

// run waits for the sweep and makes plans until it has all.
func (c *workerCommand) run(ctx context.Context, paths []string) error {
	if c.join == "" {
		return exit.Mistakef("name the file that gmemtop sweep --serve wrote: --join-file /shared/s1.join")
	}
	if err := checkJobs(c.jobs); err != nil {
		return err
	}
	w, err := sweep.Await(ctx, sweep.WorkerOptions{JoinFile: c.join, Traces: paths, Jobs: c.jobs,
		Wait: c.wait, Soon: c.soon, Open: c.opening, Waiting: func() {
			c.notef("waiting for a sweep: gmemtop sweep --serve --join-file %s writes that file", c.join)
		}})
	if err != nil {
		return err
	}
	defer func() { c.notef("%d plans made", w.Made()) }()
	return w.Work(ctx)
}

// opening returns what makes the problem of a trace, as the sweep asks for it.
func (c *workerCommand) opening(device string, task planner.Task) func(ctx context.Context,
	path string) (*plan.Problem, error, error) {
	c.plan.Task, c.flags.device = task, device
	return c.recorded
}
