package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/signals"
)

// recordEvery is the default of --every: one step in this many is recorded whole.
const recordEvery = 100

// recordCommand records a training to a file.
type recordCommand struct {
	watcher
	steps   int64
	invited bool // the process runs the agent by itself: it reads its source from our standard output
}

func newRecordCommand(a *app) *cobra.Command {
	c := recordCommand{watcher: watcher{app: a}}
	cmd := &cobra.Command{
		Use: "record [flags] PID | record [flags] -- CMD ...", GroupID: groupLive,
		Short: "Record a training to a file, without a screen",
		Long: `Writes every step's totals to a file, and one step in --every whole, op by op. The file can be
replayed while it grows, and what was written stays readable if the training, gmemtop or the machine dies.

Triggers keep only the steps around an event: oom, allocated>60GiB, rss>20GiB, step_time>500ms,
iteration=100, leak>1MiB/step.

Ctrl-C ends the recording; a process that record attached to goes on. Closing the terminal ends neither.
gmemtop attach PID shows what is being recorded.`,
		Example: "  gmemtop record -o run.gmt 4242\n  gmemtop record -o oom.gmt --trigger oom --before 3 " +
			"-- python train.py",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a process, or a command after --: gmemtop record 4242, or " +
					"gmemtop record -- python train.py")
			}
			if cmd.ArgsLenAtDash() != 0 && len(args) > 1 {
				return fmt.Errorf("%q is one too many: record takes one process; a command goes after --",
					args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.flags.output == "" {
				c.flags.output = "gmemtop-" + time.Now().Format("20060102-150405") + ".gmt"
			}
			if c.probes != "" {
				return c.recordProbes(cmd, args)
			}
			if !cmd.Flags().Changed("every") {
				c.live.every, c.live.unasked = recordEvery, true
			}
			c.live.outlives = true
			signals.OutliveTerminal()
			if cmd.ArgsLenAtDash() == 0 {
				c.live.headless = true
				return (&runCommand{watcher: c.watcher}).run(cmd.Context(), args, nil, nil)
			}
			pid, err := processNumber(args[0])
			if err != nil {
				return fmt.Errorf("%w; a command goes after --", err)
			}
			return c.run(cmd.Context(), pid)
		},
	}
	c.live.add(cmd)
	cmd.Flags().Lookup("every").Usage = everyUsage(fmt.Sprintf(" (default %d)", recordEvery))
	c.flags.writing(cmd, "record to this native file (default gmemtop-DATE-TIME.gmt)")
	c.probing(cmd)
	cmd.Flags().Int64Var(&c.steps, "steps", 0,
		"end after this many steps, once a capture under way is done (default: when the process "+
			"ends, or on Ctrl-C)")
	cmd.Flags().BoolVar(&c.invited, "invited", false,
		"write the agent's source, after a line with its length, to standard output for the process to run")
	_ = cmd.Flags().MarkHidden("invited") // for `import gmemtop` alone; fails only for an unknown flag
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// run attaches to a process and records it until it ends, ctx is done or enough steps were seen.
func (c *recordCommand) run(ctx context.Context, pid int) error {
	found, err := job.Attachable(pid)
	invitation := job.Invitation{Out: c.Out}
	switch {
	case c.invited:
		c.bring = invitation.HandOver
	case err != nil:
		return err
	}
	ctx, interrupt := c.UntilSignal(ctx)
	defer interrupt()
	w, err := c.watch()
	if err != nil {
		return err
	}
	f := feed.NewProcess(w.Process, "for the agent")
	stopFeed := f.Start()
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Connect(run, pid, found.Started)
	c.notef("recording process %d to %s; Ctrl-C ends it", pid, c.flags.output)
	if c.invited {
		go invitation.Decline(run, w)
	}
	rec := c.recording(w)
	ended, end := rec.Until(ctx, f)
	left := w.LetGo()
	stop()
	w.Wait()
	stopFeed()
	recorded, err := rec.Finish(ended, end, left)
	switch {
	case recorded:
		c.teller().Process(w.Process, f)
	case !ended || end.Reason == capture.Exited:
		c.complainf("nothing was recorded: no training step of process %d was seen", pid)
	}
	return err
}

// recordProbes records what probes see of a process, until it ends or Ctrl-C.
func (c *recordCommand) recordProbes(cmd *cobra.Command, args []string) error {
	p, err := c.probesOf(cmd, args)
	if err != nil {
		return err
	}
	source, err := p.Source()
	if err != nil {
		return err
	}
	signals.OutliveTerminal()
	ctx, interrupt := c.UntilSignal(cmd.Context())
	defer interrupt()
	w, err := c.watch()
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Run(run, source)
	c.notef("recording process %d to %s; Ctrl-C ends it", p.PID, c.flags.output)
	end, ended := c.recording(w).UntilProbesEnd(ctx)
	stop()
	err = w.Close()
	seen := w.History.Snapshot()
	files, _ := w.Files()
	failed := ended && end.Reason == capture.Refused
	switch {
	case len(seen.Steps) > 0:
		c.note(headless.SummaryOfProbes(seen, files, c.flags.report.Units))
	case failed:
		_ = w.Abandon()
	default:
		c.complainf("nothing was seen of process %d, so nothing was recorded to %s", p.PID, c.flags.output)
	}
	if failed {
		return errors.Join(errors.New(feed.HowEnded(end)), err)
	}
	return err
}

// recording returns what follows the recording of a process.
func (c *recordCommand) recording(w *job.Watch) *headless.Recording {
	return &headless.Recording{Watch: w, Progress: c.newTicker(), Steps: c.steps, Windows: c.live.every > 0,
		Note: c.note}
}
