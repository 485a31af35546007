package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/sweep"
)

// sweepCommand plans many iterations at many budgets and batch sizes with many managers.
type sweepCommand struct {
	planning
	ask        sweep.Options
	to         sweep.Output
	merge      string // the folder to merge
	incomplete bool
	jobs       int

	served           bool   // workers plan
	listen, joinFile string // for them
}

func newSweepCommand(a *app) *cobra.Command {
	c := sweepCommand{planning: planning{app: a}}
	cmd := &cobra.Command{
		Use: "sweep FILE ... -o OUT.parquet", GroupID: groupReport, DisableFlagsInUseLine: true,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case c.merge != "" && len(args) > 0:
				return fmt.Errorf("--merge takes no traces: %q is one too many", args[0])
			case c.merge == "" && len(args) == 0:
				return errors.New("sweep needs FILE")
			}
			return nil
		},
		Short: "Compare memory managers on many traces, budgets and batch sizes",
		Long: `Plans one iteration of every trace with every manager at every budget and batch size, checks
and simulates each plan, and writes a row for each to a Parquet file. Then it shows which plans no other beats
in both memory and time.

To resume an interrupted sweep, run the same command again: until it has finished, the results are in
OUT.parquet.part. The same command gives the same file.

--serve plans nothing here and hands out the plans to gmemtop worker on other machines. --shard 3/64 plans the
third of 64 parts, for a job array; --merge joins the parts. The file is the same either way.

--batch plans for batch sizes other than the recorded one. Their sizes and times are scaled from one recording
and marked ~: parameters, gradients and optimizer state stay the same, everything else grows with the batch.

Exits with 3 if nothing fits any budget.`,
		Example: "  gmemtop sweep traces/*.gmt --managers all --budgets 20:80:4 -o sweep.parquet\n" +
			"  gmemtop sweep b8.gmt --recorded-batch 8 --batch 8,16,32 --budgets 12GiB \\\n" +
			"      -o sweep.parquet\n" +
			"  gmemtop sweep traces/*.gmt -o sweep.parquet --serve --listen node0:7433 \\\n" +
			"      --join-file /shared/s1.join\n" +
			"  gmemtop sweep traces/*.gmt --shard $SLURM_ARRAY_TASK_ID/64 --parts parts\n" +
			"  gmemtop sweep --merge parts -o sweep.parquet",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.ask.Paths = args
			if c.merge != "" {
				return c.join()
			}
			return c.run(cmd.Context())
		},
	}
	p := cmd.Flags()
	p.StringVarP(&c.to.File, "output", "o", "", "write the rows to this Parquet `file`")
	c.flags.overwriting(cmd)
	addManagersFlag(p, &c.ask.Managers)
	p.StringVar(&c.ask.Budgets, "budgets", "40:100:10",
		"`sizes`, shares of the step's peak, and ranges of shares with their step, "+
			"separated by commas: 12GiB,50%,20:80:4")
	p.IntSliceVar(&c.ask.Batches, "batch", nil,
		"batch `sizes` to plan for, separated by commas (default the recorded one)")
	p.IntSliceVar(&c.ask.Recorded, "recorded-batch", nil,
		"the batch `size` that the files were recorded at: one, or one for each in order")
	p.BoolVar(&c.served, "serve", false, "hand out the plans to gmemtop worker; needs --join-file")
	p.StringVar(&c.listen, "listen", "", "with --serve, let workers on other machines connect at this "+
		"`host:port`")
	p.StringVar(&c.joinFile, "join-file", "", "with --serve, write the keys for workers to this `file`")
	p.StringVar(&c.to.Shard, "shard", "", "plan only part `I/N` of everything; needs --parts")
	p.StringVar(&c.to.Parts, "parts", "", "the `folder` that shards write their parts to")
	p.StringVar(&c.merge, "merge", "", "join the parts in this `folder`")
	p.BoolVar(&c.incomplete, "incomplete", false, "with --merge, write what there is if parts are missing")
	addJobsFlag(p, &c.jobs)
	addTaskFlags(p, &c.ask.Task)
	c.flags.reading(cmd)
	help.Rare(p, "incomplete", "jobs")
	return cmd
}

// run plans the missing units of a sweep, or of a shard of it.
func (c *sweepCommand) run(ctx context.Context) error {
	path, err := c.journal()
	if err = cmp.Or(err, checkJobs(c.jobs)); err != nil {
		return err
	}
	switch {
	case c.served && c.to.Shard != "":
		return exit.Mistakef("--serve hands out all plans: leave out --shard")
	case c.served != (c.joinFile != ""), c.listen != "" && !c.served:
		return exit.Mistakef("to hand out plans, write --serve --join-file /shared/s1.join, and " +
			"--listen HOST:PORT for workers on other machines")
	}
	c.plan.Task, c.ask.Device = c.ask.Task, c.flags.device
	stop := c.newProgress().Clock("reading the traces")
	s, err := sweep.New(ctx, c.ask)
	if stop(); err != nil {
		return err
	}
	for _, text := range s.Same {
		c.note(text)
	}
	j, err := sweep.OpenJournal(path, s)
	if err != nil {
		return err
	}
	defer j.Close()
	if err := c.plans(ctx, s, j, path); err != nil {
		return err
	}
	if c.to.Parts != "" {
		c.notef("part %s is done; when all are: gmemtop sweep --merge %s -o sweep.parquet", c.to.Shard,
			c.to.Parts)
		return nil
	}
	list, err := s.Finished(j)
	if err != nil {
		return err
	}
	if err := c.writeRows(list); err != nil {
		return err
	}
	return errors.Join(os.Remove(path), c.report(list))
}

// journal checks where results go, and returns the path of the journal.
func (c *sweepCommand) journal() (string, error) {
	path, err := c.to.Journal(&c.ask)
	if err != nil || c.to.Shard != "" {
		return path, err
	}
	return path, c.mayWrite(c.to.File)
}

// plans makes what the journal lacks: here, or with --serve by workers on other machines.
func (c *sweepCommand) plans(ctx context.Context, s *sweep.Sweep, j *sweep.Journal, path string) error {
	bar := c.newProgress()
	var last sweep.Progress
	told := c.served || c.to.Shard != ""
	tell := func(p sweep.Progress) {
		last = p
		bar.Say(p.String())
		if advice := p.Advice(); advice != "" && !told {
			told = true
			bar.Done()
			c.note(advice)
		}
	}
	var err error
	if c.served {
		err = s.Serve(ctx, j, sweep.ServeOptions{Listen: c.listen, JoinFile: c.joinFile, Tell: tell,
			Ready: func() {
				c.notef("waiting for workers: gmemtop worker --join-file %s TRACE ...", c.joinFile)
			}})
	} else {
		err = s.Run(ctx, j, sweep.RunOptions{Jobs: c.jobs, Open: c.recorded, Tell: tell,
			Damaged: func(name string, err error) { c.complainf("%s: %v", name, err) }})
	}
	bar.Done()
	if errors.Is(err, context.Canceled) && last.Total > 0 {
		c.note(last.Kept(path))
	}
	return err
}

// join merges the parts of a folder.
func (c *sweepCommand) join() error {
	if err := c.to.CheckMerge(); err != nil {
		return err
	}
	if err := c.mayWrite(c.to.File); err != nil {
		return err
	}
	list, err := sweep.Merge(c.merge)
	var short *sweep.Incomplete
	switch {
	case errors.As(err, &short) && c.incomplete:
		c.complain(err.Error())
	case errors.As(err, &short):
		return fmt.Errorf("%w; run those again, or add --incomplete to write what there is", err)
	case err != nil:
		return err
	}
	if err := c.writeRows(list); err != nil {
		return err
	}
	return c.report(list)
}

// writeRows writes the rows.
func (c *sweepCommand) writeRows(list []sweep.Done) error {
	return c.files.Write(c.to.File, func(w io.Writer) error { return sweep.WriteParquet(w, list) })
}

// report shows which plans no other beats.
func (c *sweepCommand) report(list []sweep.Done) error {
	o := sweep.TextOptions{Units: c.flags.report.Units, ASCII: c.flags.ascii}
	if err := c.text(func(w io.Writer) error { return sweep.WriteText(w, list, o) }); err != nil {
		return err
	}
	if sweep.NoneFits(list) {
		return errFinding
	}
	return nil
}
