package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/capture/slurm"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/signals"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui"
)

// attachCommand watches a running process.
type attachCommand struct {
	watcher
	choice choiceFlags
	dry    bool
	join   string // the join file of a hub, "" for none
	creds  string // the file with the key for a site's own servers
}

func newAttachCommand(a *app) *cobra.Command {
	c := attachCommand{watcher: watcher{app: a}}
	cmd := &cobra.Command{
		Use: "attach [PID | slurm:JOB | --join-file FILE]", GroupID: groupLive, Args: cobra.MaximumNArgs(1),
		Short: "Watch a running PyTorch training",
		Long: `Shows the steps of a running PyTorch training as they come. A key press captures a step whole,
op by op.

Nothing changes in your script. The process pauses for a millisecond or two while a small agent is injected,
and removed when you leave the screen. The training's results stay bit-identical.

Without PID, choose from this machine's GPUs and processes; without a terminal, they are listed. --manager or
--plan trains with a plan that takes less memory, for as long as you watch.

slurm:JOB watches all ranks of a running Slurm job, on all of its nodes.

--join-file takes over from a gmemtop run --join-file that was killed on this machine: its command is watched
again, and its steps go to the hub.`,
		Example: "  gmemtop attach 4242\n  gmemtop attach\n  gmemtop attach 4242 --every 100 -o run.gmt\n  " +
			"gmemtop attach 4242 --plan plan.json\n  gmemtop attach --probes 4242\n  " +
			"gmemtop attach slurm:4242\n  gmemtop attach --join-file /shared/r1.join",
		RunE: c.start,
	}
	c.choice.add(cmd)
	c.live.add(cmd)
	c.flags.writing(cmd, "also record what is watched to this native file, for replay")
	c.flags.screen(cmd)
	c.probing(cmd)
	cmd.Flags().StringVar(&c.join, "join-file", "", "take over a command whose gmemtop run was "+
		"killed; send its steps to the hub that wrote this `file`")
	addCredsFlag(cmd.Flags(), &c.creds)
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "print what would be done, and do nothing; "+
		"without PID, list the processes that could be watched")
	return cmd
}

// start attaches to what the arguments name.
func (c *attachCommand) start(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	x, err := c.choice.Choice()
	if err != nil {
		return err
	}
	slurm := len(args) > 0 && strings.HasPrefix(args[0], "slurm:")
	switch {
	case c.join != "" && len(args) > 0:
		return exit.Mistakef("attach --join-file finds the processes itself: leave out %s", args[0])
	case c.join != "":
		if name := help.Besides(cmd, "join-file", "creds"); name != "" {
			return exit.Mistakef("attach --join-file only watches: leave out --%s", name)
		}
		return c.attachOrphans(ctx)
	case slurm:
		if name := help.Besides(cmd); name != "" {
			return exit.Mistakef("attach slurm:JOB only watches: leave out --%s", name)
		}
		return c.attachSlurm(ctx, args[0])
	case x != nil && c.probes != "":
		return exit.Mistakef("--probes only watches and carries out no plan: leave out --probes, or " +
			"--manager and --plan")
	case x != nil && len(args) == 0:
		return exit.Mistakef("name the process to train with the plan: gmemtop attach 4242 --plan plan.json")
	case c.probes != "":
		return c.attachProbes(cmd, args)
	case len(args) == 0 && c.dry:
		return c.listProcesses(ctx)
	case len(args) == 0:
		return c.attachAny(ctx)
	}
	pid, err := processNumber(args[0])
	if err != nil {
		return err
	}
	if c.dry {
		return c.lines(headless.Attaching(pid))
	}
	return c.run(ctx, pid, x)
}

// attachOrphans watches again what gmemtop run --join-file was watching here before it was killed, until the
// commands have ended or a signal arrives.
func (c *attachCommand) attachOrphans(ctx context.Context) error {
	t := c.takeOver(c.join, c.creds)
	if err := t.Find(); err != nil {
		return err
	}
	signals.OutliveTerminal()
	ctx, stop := c.UntilSignal(ctx)
	defer stop()
	return t.Run(ctx)
}

// attachSlurm shows a running job of Slurm.
func (c *attachCommand) attachSlurm(ctx context.Context, place string) error {
	if !c.HasScreen() {
		return exit.AsMistake(errNoScreen)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(place, "slurm:")
	if !slurm.IsJob(id) {
		return exit.Mistakef("%q: write slurm:JOB, such as slurm:4242", place)
	}
	s, err := slurm.Attach(id, own)
	if err != nil {
		return err
	}
	orders := func(ctx context.Context) (fleet.Reach, func(), error) {
		return reach.Where{}.Orders(ctx, s.Reach())
	}
	shown := (&viewCommand{app: c.app}).show(ctx, s.Watch().Job(), "for the ranks of "+place,
		feed.Capturing(s.Watch(), orders))
	return errors.Join(shown, s.Leave())
}

// attachProbes watches a process with probes.
func (c *attachCommand) attachProbes(cmd *cobra.Command, args []string) error {
	p, err := c.probesOf(cmd, args)
	if err != nil {
		return err
	}
	source, err := p.Source()
	if err != nil {
		return err
	}
	if c.dry {
		return c.lines(p.Places())
	}
	if !c.HasScreen() {
		return exit.AsMistake(errNoScreen)
	}
	w, err := c.watch()
	if err != nil {
		return err
	}
	f := feed.NewProcess(w.Process, fmt.Sprintf("for probes on process %d", p.PID))
	defer f.Start()()
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Run(run, source)
	o := c.screen()
	o.Feed = feed.NewProbes(f)
	shown := tui.Run(cmd.Context(), o)
	stop()
	return errors.Join(shown, w.Close())
}

// listProcesses lists the processes that could be watched.
func (c *attachCommand) listProcesses(ctx context.Context) error {
	return c.lines(headless.Trainings(ctx))
}

// lines prints lines of an answer that ends with an error, if any.
func (c *attachCommand) lines(list []string, err error) error {
	for _, text := range list {
		fmt.Fprintln(c.Out, report.Printable(text))
	}
	return err
}

// attachAny shows the machine so that the user can choose a process. Without a screen it lists them.
func (c *attachCommand) attachAny(ctx context.Context) error {
	if !c.HasScreen() {
		return c.listProcesses(ctx)
	}
	f, closing := feed.OpenMachine()
	defer closing()
	return c.showMachine(ctx, f)
}

// run shows one process. With a choice, the process trains with that plan meanwhile.
func (c *attachCommand) run(ctx context.Context, pid int, x *crew.Choice) error {
	found, err := job.Attachable(pid)
	if err != nil {
		return err
	}
	if !c.HasScreen() {
		return exit.AsMistake(errNoScreen)
	}
	a, err := c.attach(pid, found)
	if err != nil {
		return err
	}
	taken := func() {}
	if x != nil {
		taken = crew.OfWatch(a.Watch).TrainMeanwhile(a.Context(), x, c.flags.report.Units)
	}
	shown := c.showTraining(ctx, a.Feed, func() *crew.Crew { return crew.OfWatch(a.Watch) })
	taken()
	err = errors.Join(shown, a.Leave())
	if end := a.History.Snapshot().End; err == nil && end.Reason == capture.Detached {
		c.notef("process %d: %s", pid, end.Sentence())
	}
	return err
}
