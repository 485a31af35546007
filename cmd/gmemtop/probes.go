package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/usdt"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui"
)

// Watching by probes
//
// attach and record with --probes look at a process from the kernel: nothing is loaded into it and it need
// not be Python. Such a source has no training steps and takes no orders: all that happens is captured whole,
// a window a second, and a row of the live view is an interval of time. What belongs to steps is refused on
// the command line (--every, --steps, triggers on steps) instead of being taken and never coming true.

// probeKinds are the values of --probes.
var probeKinds = map[string]usdt.Probes{"auto": 0, "pytorch": usdt.PyTorch, "driver": usdt.Driver,
	"both": usdt.PyTorch | usdt.Driver}

// probing adds --probes to a command that watches a process.
func (c *watcher) probing(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.probes, "probes", "",
		"watch the memory of any CUDA program by eBPF, from outside of it: auto, pytorch (blocks), driver "+
			"(segments) or both")
	cmd.Flags().Lookup("probes").NoOptDefVal = "auto"
}

// probeSource prepares to watch a process by probes. What they are put on and what they cannot see comes as
// notices; a process that has not loaded CUDA yet is waited for.
func (c *watcher) probeSource(pid int) (job.Source, error) {
	kind, ok := probeKinds[c.probes]
	if !ok {
		return nil, usageError{fmt.Errorf("--probes %q is not one of auto, pytorch, driver, both", c.probes)}
	}
	for _, text := range c.live.triggers {
		name, _, _ := strings.Cut(strings.ReplaceAll(text, " ", ""), ">")
		if !slices.Contains([]string{"allocated", "reserved", "held", "oom"}, name) {
			return nil, usageError{fmt.Errorf("trigger %q: probes see neither steps nor resident memory; "+
				"those on allocated, reserved, held and oom work with --probes", text)}
		}
	}
	if err := usdt.Check(); err != nil {
		return nil, unsupportedError{err}
	}
	// Asked beforehand, so that what stands in the way is said before a file is begun or a screen opened.
	if _, err := usdt.Plan(usdt.Options{PID: pid, Probes: kind}); err != nil &&
		!errors.Is(err, usdt.ErrNotLoaded) {
		return nil, refusedProbes(err)
	}
	return job.Whole(usdt.New(usdt.Options{PID: pid, Probes: kind, Wait: true})), nil
}

// refusedProbes gives an error its exit code: what this machine or process does not allow is not a failure.
func refusedProbes(err error) error {
	if errors.Is(err, usdt.ErrNoProcess) || errors.Is(err, usdt.ErrNotLoaded) {
		return err
	}
	return unsupportedError{err}
}

// probedProcess reads the number of the process, refuses what goes with steps, and prepares to watch it.
func (c *watcher) probedProcess(cmd *cobra.Command, args []string) (pid int, source job.Source, err error) {
	if cmd.ArgsLenAtDash() >= 0 {
		return 0, nil, usageError{errors.New("--probes watches a process that runs: start the command " +
			"first, then give its number; one that has not loaded CUDA yet is waited for")}
	}
	if len(args) != 1 {
		return 0, nil, usageError{errors.New("name the process: --probes PID")}
	}
	for _, name := range []string{"every", "steps"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed {
			return 0, nil, usageError{fmt.Errorf("--%s: probes see no steps, and everything is captured "+
				"whole; leave it out", name)}
		}
	}
	c.live.every = 0
	if pid, err = processNumber(args[0]); err != nil {
		return 0, nil, err
	}
	source, err = c.probeSource(pid)
	return pid, source, err
}

// attachProbes shows a process that is watched by probes.
func (c *attachCommand) attachProbes(cmd *cobra.Command, args []string) error {
	pid, source, err := c.probedProcess(cmd, args)
	if err != nil {
		return err
	}
	if c.dry {
		return c.probeDry(pid)
	}
	if !c.hasScreen() {
		return usageError{errNoScreen}
	}
	if c.flags.output != "" {
		if err := c.mayWrite(c.flags.output); err != nil {
			return err
		}
	}
	w, err := c.watch()
	if err != nil {
		return err
	}
	f := feed.NewProcess(w.Process, fmt.Sprintf("for probes on process %d", pid))
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

// probeDry says where probes would be put.
func (c *attachCommand) probeDry(pid int) error {
	sites, err := usdt.Plan(usdt.Options{PID: pid, Probes: probeKinds[c.probes]})
	if err != nil {
		return refusedProbes(err)
	}
	for _, s := range sites {
		slow := ""
		if !s.Emulated {
			slow = ", stepped over"
		}
		fmt.Fprintf(c.out, "would: put a probe on %s in %s at offset %#x%s\n", s.Name,
			oneLine(errors.New(s.Library)), s.Offset, slow)
	}
	_, unseen := usdt.Explain(sites)
	fmt.Fprintln(c.out, "note:", unseen)
	return nil
}

// recordProbes writes what probes see of a process to a file, until it ends or Ctrl-C.
func (c *recordCommand) recordProbes(cmd *cobra.Command, args []string) error {
	pid, source, err := c.probedProcess(cmd, args)
	if err != nil {
		return err
	}
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	outliveTerminal()
	ctx, interrupted := context.WithCancel(cmd.Context())
	defer interrupted()
	c.signals(func(os.Signal) { interrupted() })
	w, err := c.watch()
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.Run(run, source)
	c.note("recording process %d to %s; Ctrl-C ends it", pid, c.flags.output)
	end, ended := c.followProbes(ctx, w)
	stop()
	err = w.Close()
	rows := w.Session.Snapshot().Steps
	files, _ := w.Files()
	failed := ended && end.Reason == capture.Refused
	switch {
	case len(rows) > 0:
		c.note("%s", probeSummary(rows, files, c.flags.report.Units))
	case failed:
		_ = w.Abandon()
	default:
		c.note("nothing was seen of process %d, and %s holds nothing of it", pid, c.flags.output)
	}
	if failed {
		return errors.Join(errors.New(feed.HowEnded(end)), err)
	}
	return err
}

// followProbes tells what a recording comes to until its source ends, which is reported, or ctx is done.
func (c *recordCommand) followProbes(ctx context.Context, w *job.Watch) (capture.End, bool) {
	p := c.newProgress()
	defer p.Done()
	said := map[string]string{}
	for {
		v := w.Session.Snapshot()
		for _, n := range v.Notices {
			if said[n.Key] != n.Text {
				said[n.Key] = n.Text
				if n.State {
					c.note("waiting %s", n.Text)
					continue
				}
				c.note("%s", n.Text)
			}
		}
		if v.Ended {
			return v.End, true
		}
		if n := len(v.Steps); n > 0 {
			files, _ := w.Files()
			p.Tell(fmt.Sprintf("%d intervals, written", n), sizeOf(files), 0)
		}
		select { // asked now and then: the feed has the session's own channel
		case <-ctx.Done():
			return capture.End{}, false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// probeSummary says in one line what was recorded.
func probeSummary(rows []capture.Step, files []string, units timeline.Units) string {
	most := int64(0)
	for _, r := range rows {
		most = max(most, r.PeakAllocated)
	}
	took := timeline.Duration(rows[len(rows)-1].End - rows[0].Start)
	text := fmt.Sprintf("%s, at most %s allocated since attaching", took, units.Bytes(most))
	for _, f := range files {
		text += "; gmemtop replay " + f
	}
	return text
}
