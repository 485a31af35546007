package main

import (
	"context"
	"sync"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/tui"
	"github.com/gmemtop/gmemtop/tui/live"
)

// watcher is shared by commands that watch a training.
type watcher struct {
	*app
	live   liveFlags
	probes string           // which probes, "" for none
	bring  pytorch.Injector // how the agent gets into a process that runs it by itself; nil for injecting it
}

// liveFlags are the flags of commands that watch a job.
type liveFlags struct {
	headless.Keeping
	every    int
	depth    string
	unasked  bool // every is our default
	headless bool
	outlives bool // keep going when the terminal closes
}

// everyUsage is the help of --every. A command whose default is not 0 says so.
func everyUsage(byDefault string) string {
	return "capture one step in `n` op by op" + byDefault + "; 0 captures two at first, then on request"
}

// add adds the flags that all of them have.
func (f *liveFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.IntVar(&f.every, "every", 0, everyUsage(""))
	p.StringVar(&f.depth, "depth", "",
		"capture by ops (each op with what it touches), history (the GPU allocator's own record) or "+
			"profile (torch's profiler) (default ops)")
	p.StringArrayVar(&f.Triggers, "trigger", nil,
		"keep only the steps around this `event`: oom, allocated>60GiB, leak>1MiB/step...; may be given "+
			"several times")
	p.IntVar(&f.Before, "before", 3, "captured steps to keep before a trigger")
	p.IntVar(&f.After, "after", 1, "captured steps to keep after a trigger")
	p.StringVar(&f.MaxSize, "max-size", "", "start a new file at this `size`, such as 1GiB")
	p.DurationVar(&f.MaxAge, "max-age", 0, "start a new file at this age, such as 1h")
	p.IntVar(&f.Keep, "keep", 0, "how many of the newest files to keep (default all)")
	help.Rare(p, "depth", "before", "after", "max-size", "max-age", "keep")
}

// ofRecording returns the name of a flag that was given and says what a recording keeps, "" for none.
func (f *liveFlags) ofRecording() string {
	switch {
	case len(f.Triggers) > 0:
		return "trigger"
	case f.MaxSize != "":
		return "max-size"
	case f.MaxAge != 0:
		return "max-age"
	case f.Keep != 0:
		return "keep"
	}
	return ""
}

// watch prepares to watch a job, and to record it if the command line asks for a file.
func (c *watcher) watch() (*job.Watch, error) {
	if err := headless.CheckDepth(c.live.depth); err != nil {
		return nil, err
	}
	if c.flags.output != "" {
		if err := c.mayWrite(c.flags.output); err != nil {
			return nil, err
		}
	} else if name := c.live.ofRecording(); name != "" {
		return nil, exit.Mistakef("--%s is for a recording: name its file with -o", name)
	}
	w := job.NewWatch(job.Options{
		Every: c.live.every, Unasked: c.live.unasked, Depth: c.live.depth, Attached: feed.AttachedBy,
		Bring: c.bring,
	})
	if c.flags.output == "" {
		return w, nil
	}
	o, err := c.recordOptions(c.flags.output, c.flags.force, "", w.Process)
	if err != nil {
		return nil, err
	}
	return w, w.Record(o)
}

// tell shows a notice about a watched process: on the screen, or, without one, through say: note or complain.
func (c *watcher) tell(say func(text string), p *job.Process, n capture.Notice) {
	if f := &c.live; f.headless || f.outlives || !c.HasScreen() {
		say(n.Text)
		return
	}
	p.Tell(n)
}

// attach attaches to a process that was found to be attachable, watches it, and records it if the command
// line asks for a file.
func (c *watcher) attach(pid int, found inject.Findings) (*feed.Attached, error) {
	w, err := c.watch()
	if err != nil {
		return nil, err
	}
	return feed.Attach(w, pid, found.Started), nil
}

// showMachine shows the machine, and then the process chosen there.
func (c *watcher) showMachine(ctx context.Context, f *feed.Machine) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	var letting sync.WaitGroup
	defer letting.Wait() // detach from a watched process before this one ends
	go f.Run(run)
	o, plans := c.screen(), planner.NewLive()
	o.Machine, o.Attach, o.Planner = f, c.attachFeed(plans, &letting), plans
	return tui.Run(ctx, o)
}

// attachFeed watches a process chosen on the screen until ctx is done, and carries plans out in it. letting
// is done once it has detached.
func (c *watcher) attachFeed(plans *planner.Live, letting *sync.WaitGroup) func(ctx context.Context,
	pid int) (live.Feed, error) {
	return func(ctx context.Context, pid int) (live.Feed, error) {
		found, err := job.Attachable(pid)
		if err != nil {
			return nil, err
		}
		a, err := c.attach(pid, found)
		if err != nil {
			return nil, err
		}
		leave := plans.Watch(func() *crew.Crew { return crew.OfWatch(a.Watch) })
		letting.Go(func() {
			<-ctx.Done()
			leave()
			_ = a.Leave() // the screen is gone, and cannot show an error
		})
		return a.Feed, nil
	}
}

// recordOptions parses the flags of a recording to path. With force it overwrites an existing file. Messages
// about the recording begin with who, unless that is "".
func (c *watcher) recordOptions(
	path string, force bool, who string, p *job.Process,
) (capture.RecordOptions, error) {
	return c.live.Options(path, force, who, func(n capture.Notice, failed bool) {
		if failed {
			c.tell(c.complain, p, n)
		} else {
			c.tell(c.note, p, n)
		}
	})
}

// teller says at the end what was watched.
func (c *watcher) teller() *headless.Teller {
	return &headless.Teller{Note: c.note, Complain: c.complain, Units: c.flags.report.Units,
		Triggers: c.live.Triggers, Terminal: console.IsTerminal(c.Err)}
}
