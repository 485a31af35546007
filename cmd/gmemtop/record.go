package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

// recordEvery is the number of steps of which one is recorded whole unless the command line says otherwise.
const recordEvery = 100

func (a *app) recordCommand() *cobra.Command {
	var steps int64
	c := &cobra.Command{
		Use: "record [flags] PID | record [flags] -- CMD ...", GroupID: groupLive,
		Short: "Record a training to a file, without a screen",
		Long: "Records every step's totals and one step in so many whole, op by op, to a native file that can be replayed while it grows. What was written stays readable\n" +
			"whatever dies: the training, gmemtop or the machine. Triggers keep only what stands around them: allocated>60GiB, rss>20GiB, step_time>500ms, iteration=100,\n" +
			"oom, leak>1MiB/step. Ctrl-C ends the recording of a process that was attached to; the process goes on.",
		Example: "  gmemtop record -o run.gmt 4242\n  gmemtop record -o oom.gmt --trigger oom --before 3 -- python train.py",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a process, or a command after --")
			}
			if cmd.ArgsLenAtDash() != 0 && len(args) > 1 {
				return fmt.Errorf("%q is too much: one process is recorded; a command stands after --", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.flags.output == "" {
				a.flags.output = "gmemtop-" + time.Now().Format("20060102-150405") + ".gmt"
			}
			if !cmd.Flags().Changed("every") {
				a.flags.live.every = recordEvery
			}
			if cmd.ArgsLenAtDash() == 0 {
				a.flags.live.headless = true
				return a.runJob(cmd.Context(), args)
			}
			pid, err := strconv.Atoi(args[0])
			if err != nil || pid <= 0 {
				return usageError{fmt.Errorf("%q is not the number of a process; a command stands after --", args[0])}
			}
			return a.record(cmd.Context(), pid, steps)
		},
	}
	a.flags.watching(c)
	a.flags.writing(c)
	c.Flags().Int64Var(&steps, "steps", 0, "end after so many steps of a process, and what is being captured then (default: with the process, or on Ctrl-C)")
	c.Flags().SetInterspersed(false)
	return c
}

// record attaches to a process and writes what it does to a file until it ends, ctx is done or enough steps were seen.
func (a *app) record(ctx context.Context, pid int, steps int64) error {
	found := inject.Check(pid)
	if err := found.Err(); err != nil {
		return err
	}
	if err := a.mayWrite(a.flags.output); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP) // the end of the terminal does not end a recording
	ctx, interrupted := context.WithCancel(ctx)
	defer interrupted()
	a.signals(func(os.Signal) { interrupted() })
	w, err := a.watch("", "for the agent")
	if err != nil {
		return err
	}
	run, stop := context.WithCancel(context.Background())
	defer stop()
	w.connect(run, pid, found.Started)
	a.note("recording process %d to %s; Ctrl-C ends it", pid, a.flags.output)
	end, reason := a.follow(ctx, w, steps)
	left := w.letGo()
	stop()
	err = errors.Join(left, w.close())
	a.summary(w)
	if end && reason.Reason != capture.Exited && reason.Reason != capture.Detached {
		err = errors.Join(errors.New(endWord(reason)), err)
	}
	return err
}

// follow waits until the recording is to end. It reports whether the source ended by itself, and how.
func (a *app) follow(ctx context.Context, w *watching, steps int64) (bool, capture.End) {
	p := a.newProgress()
	defer p.done()
	for version := int64(0); ; {
		if w.feed.Wait(ctx, version) != nil {
			return false, capture.End{}
		}
		l := w.feed.Look()
		version = l.Version
		if v := w.session.Snapshot(); v.Ended {
			return true, v.End
		}
		if n := len(l.Steps); n > 0 {
			p.tell(fmt.Sprintf("step %d, %d captured whole, written", l.Steps[n-1].Index, len(l.Windows)+l.Forgotten), sizeOf(w.recorder.Files()), 0)
			if steps > 0 && int64(n) >= steps && !l.Capture.Pending { // what was asked for is waited for
				return false, capture.End{}
			}
		}
	}
}

// sizeOf returns the bytes of files, those that are gone not counted.
func sizeOf(files []string) int64 {
	var sum int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sum += info.Size()
		}
	}
	return sum
}
