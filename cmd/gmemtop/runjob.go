package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui"
)

func (a *app) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run [flags] -- CMD ...", GroupID: groupLive,
		Short: "Start a PyTorch training and watch it from its first step",
		Long: "Starts a command and shows the steps of the training in it as they come; its output is kept and shown with o. The command itself is not changed: two\n" +
			"variables of its environment are, which its children inherit, so that torchrun's ranks are found as well. Leaving the screen leaves the command running\n" +
			"in the foreground. The exit code is the command's; trouble in gmemtop never changes it. With --headless there is no screen and the command keeps the\n" +
			"terminal: use it with -o in jobs.",
		Example: "  gmemtop run -- python train.py --epochs 3\n  gmemtop run --headless -o run.gmt -- torchrun --nproc-per-node 8 train.py",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the command to start: gmemtop run -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.runJob(cmd.Context(), args) },
	}
	a.flags.watching(c)
	a.flags.writing(c)
	a.flags.screen(c)
	c.Flags().BoolVar(&a.flags.live.headless, "headless", false, "show no screen: the command keeps the terminal")
	c.Flags().SetInterspersed(false)
	return c
}

// What a shell returns for a command that cannot be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// runJob starts a command and watches it; its error carries the command's exit code.
func (a *app) runJob(ctx context.Context, argv []string) error {
	headless := a.flags.live.headless || !isTerminal(a.out) || a.env("TERM") == "dumb"
	launch := pytorch.Launch{Argv: argv, Env: a.environ, Detached: !headless, First: firstSteps}
	if headless {
		launch.Stdin, launch.Stdout, launch.Stderr = a.in, a.out, a.err
	}
	if a.flags.output != "" {
		if err := a.mayWrite(a.flags.output); err != nil {
			return err
		}
	}
	w, err := a.watch("", "for the command to load torch")
	if err != nil {
		return err
	}
	job, err := pytorch.Start(launch)
	if err != nil {
		w.abandon()
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(a.err, "gmemtop: %s\n", oneLine(err))
		return childError{exitNotFound}
	case errors.Is(err, fs.ErrPermission):
		fmt.Fprintf(a.err, "gmemtop: %s\n", oneLine(err))
		return childError{exitNotExecutable}
	case err != nil:
		return err
	}
	a.signals(func(s os.Signal) {
		// A command that shares the terminal gets what is typed there from the terminal itself.
		if !headless || s != os.Interrupt {
			_ = job.Signal(s)
		}
	})
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.run(run, job)
	reapOrphans(run, job.PID())
	if !headless {
		o := a.screen()
		o.Feed = w.feed
		if err := tui.Run(ctx, o); err != nil && ctx.Err() == nil {
			fmt.Fprintf(a.err, "gmemtop: %s\n", oneLine(err))
		}
		if !w.session.Snapshot().Ended {
			a.note("the command goes on as process %d; interrupt it with Ctrl-C", job.PID())
		}
		a.stream(w, run)
	}
	failed := a.childResult(job)
	if err := w.close(); err != nil {
		fmt.Fprintf(a.err, "gmemtop: the recording is incomplete: %s\n", oneLine(err))
	}
	a.summary(w)
	return failed
}

// childResult waits for the command and returns its exit code as an error, nil for 0.
func (a *app) childResult(job *pytorch.Job) error {
	code, err := job.Wait(context.Background())
	switch {
	case err != nil:
		return err
	case code == 0:
		return nil
	}
	return childError{code}
}

// stream writes what the command prints to the terminal from where the screen was left, until it ends.
func (a *app) stream(w *watching, ctx context.Context) {
	v := w.session.Snapshot()
	at := v.OutputCut + int64(len(v.Output))
	if v.Ended { // what it said last is why it ended
		lines := tail(v)
		for _, l := range lines[max(len(lines)-20, 0):] {
			fmt.Fprintln(a.out, l)
		}
		return
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		v := w.session.Snapshot()
		if end := v.OutputCut + int64(len(v.Output)); end > at {
			from := max(at-v.OutputCut, 0)
			if _, err := a.out.Write(v.Output[from:]); errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
				return
			}
			at = end
		}
		if v.Ended {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// summary says in one line what was seen, on a terminal or where a file was written.
func (a *app) summary(w *watching) {
	if a.flags.quiet || w.recorder == nil && !isTerminal(a.err) {
		return
	}
	l := w.feed.Look()
	n := len(l.Steps)
	if n == 0 {
		a.note("no training step was seen: the command did not step an optimizer of torch")
		return
	}
	text := fmt.Sprintf("%d training steps", n)
	if l.Report.Duration > 0 {
		text += ", " + timeline.Duration(l.Report.Duration) + " a step"
	}
	if l.Report.Top >= 0 {
		text += fmt.Sprintf(", %s at most %s", l.Figure, a.flags.report.Units.Bytes(l.Steps[l.Report.Top].Bytes))
	}
	if w.recorder != nil {
		for _, f := range w.recorder.Files() {
			text += "; gmemtop replay " + f
		}
	}
	a.note("%s", text)
}
