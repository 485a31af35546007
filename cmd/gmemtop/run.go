package main

import (
	"context"
	"errors"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// runCommand starts a command and watches it.
type runCommand struct {
	watcher
	choice choiceFlags
	join   string // the join file of the run's hub, "" for none
	creds  string // the file with the key for a site's own servers
}

func newRunCommand(a *app) *cobra.Command {
	c := runCommand{watcher: watcher{app: a}}
	cmd := &cobra.Command{
		Use: "run [flags] -- CMD ...", GroupID: groupLive,
		Short: "Start a PyTorch training and watch it from its first step",
		Long: `Starts a command and shows the steps of the training in it as they come. O shows the command's
output. The exit code is the command's, whatever happens to gmemtop.

gmemtop finds torchrun's ranks itself; -o writes a file for each, such as run-rank1.gmt beside
run.gmt. If you leave the screen, the command stays in the foreground. --headless shows no screen: use it
with -o in batch jobs.

--manager trains with a plan that takes less memory, from the first steps on, even if the training did not
fit before. Its results stay bit-identical.`,
		Example: "  gmemtop run -- python train.py --epochs 3\n  gmemtop run --headless -o run.gmt -- " +
			"torchrun --nproc-per-node 8 train.py\n" +
			"  gmemtop run --manager joint -- python train.py\n  gmemtop run --manager joint --budget " +
			"12GiB -- python train.py",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the command to start: gmemtop run -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := c.choice.Choice()
			if err != nil {
				return err
			}
			if x != nil {
				x.Stays = true // the command may not fit without
			}
			return c.run(cmd.Context(), args, x, c.choice.Offloads())
		},
	}
	c.choice.add(cmd)
	c.choice.addUnplanned(cmd)
	c.live.add(cmd)
	c.flags.writing(cmd, "also record what is watched to this native file, for replay; one for each process")
	c.flags.screen(cmd)
	cmd.Flags().StringVar(&c.join, "join-file", "", "send the steps of this machine's ranks to the gmemtop "+
		"hub that wrote this `file`")
	addCredsFlag(cmd.Flags(), &c.creds)
	cmd.Flags().BoolVar(&c.live.headless, "headless", false, "show no screen: the command keeps the terminal")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// run starts a command and watches it. With a choice the command trains with that plan; until then, what
// autograd saves on devices of the types in offload is kept on the host. The error carries the command's exit
// code.
func (c *runCommand) run(ctx context.Context, argv []string, x *crew.Choice, offload []string) error {
	screen := !c.live.headless && c.HasScreen()
	w, err := c.watch()
	if err != nil {
		return err
	}
	ranks := job.New(w)
	if w.Recorded() {
		ranks.Record = c.recordRank(c.flags.force)
		c.flags.force = false // from now on the file at -o is this recording
	}
	// a screen shows what a process cannot be asked for; plans report it themselves
	if !screen && (x == nil || c.live.depth != "") {
		ranks.Unmet = headless.OncePerText(c.complain)
	}
	starting := headless.Starting{Screen: screen, OnSignal: c.OnSignal, Complain: c.complain}
	command, err := starting.Start(ranks, c.launch(argv, offload, screen))
	if err != nil {
		_ = errors.Join(ranks.Close(), w.Abandon())
		if code, why := headless.NotStarted(err); code != 0 {
			c.Tell(oneLine(why))
			return childError{code}
		}
		return err
	}
	run, stop := context.WithCancel(context.Background())
	defer stop()
	f := feed.NewJob(ranks, say.WaitsForTorch.Text(), feed.JobOptions{Prints: screen})
	ranks.Run(run, command)
	leaveFleet := c.joinFleet(ranks)
	if c.join != "" {
		defer headless.BeginStandBy(c.program, reach.Where{JoinFile: c.join, Credentials: c.creds},
			[]int{command.PID()}, c.Err, c.complain)()
	}
	procs.ReapOrphans(run, command.PID())
	var training sync.WaitGroup
	if x != nil {
		inform := c.note
		if screen {
			inform = nil
		}
		training.Go(func() {
			crew.OfJob(ranks, ranks.First(), true).TrainTold(run, x, c.flags.report.Units, inform)
		})
	}
	if screen {
		err := c.showTraining(ctx, f, func() *crew.Crew { return crew.OfJob(ranks, f.Lead(), false) })
		if err != nil && ctx.Err() == nil {
			c.Tell(oneLine(err))
		}
		if _, over := ranks.Over(); !over {
			c.notef("the command still runs, as process %d: Ctrl-C now ends it", command.PID())
		}
		headless.CopyOutput(run, c.Out, ranks)
	}
	failed := childResult(command)
	training.Wait()
	leaveFleet()
	if err := ranks.Close(); err != nil {
		c.Tell("the recording is incomplete: " + oneLine(err))
	}
	f.Close()
	said := c.teller()
	said.Process(w.Process, f.First)
	said.Ranks(ranks, c.flags.output)
	said.Death(c.Err, ranks)
	return failed
}

// recordRank returns a function that records another process of the job beside the first one's file, so that
// both open as one run. Without force it leaves an existing file alone.
func (c *runCommand) recordRank(force bool) func(p *job.Process) error {
	files := headless.NewRankFiles(c.flags.output)
	return func(p *job.Process) error {
		return files.Record(p, func(path, who string) (capture.RecordOptions, error) {
			return c.recordOptions(path, force, who, p)
		})
	}
}

// launch says how to start the command.
func (c *runCommand) launch(argv, offload []string, screen bool) pytorch.Launch {
	l := pytorch.Launch{Argv: argv, Env: c.Environ, Detached: screen, First: job.FirstSteps,
		Depth: c.live.depth, Offload: offload}
	if c.join != "" {
		l.Note = fleet.Identify(c.Env).Note(c.join)
	}
	if !screen {
		headless.Streams(&l, &c.Console, c.live.outlives)
	}
	return l
}

// joinFleet sends the ranks' steps to the run's hub until leave is called, if there is one to be joined.
func (c *runCommand) joinFleet(j *job.Job) (leave func()) {
	if c.join == "" {
		return func() {}
	}
	n := fleet.StartNode(j, fleet.NodeOptions{Identity: fleet.Identify(c.Env), Join: c.join,
		Credentials: c.creds, Tell: func(text string) {
			c.tell(c.complain, j.First(), capture.Notice{Key: "fleet", Text: report.Printable(text)})
		}})
	return func() {
		if lost := n.Close().Dropped; lost > 0 {
			c.complainf("%d messages of this machine did not reach the hub, which did not answer for too "+
				"long", lost)
		}
	}
}

// childResult waits for the command and returns its exit code as an error, nil for 0.
func childResult(command *pytorch.Job) error {
	code, err := command.Wait(context.Background())
	switch {
	case err != nil:
		return err
	case code == 0:
		return nil
	}
	return childError{code}
}
