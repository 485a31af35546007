package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/fleet"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui"
)

// viewCommand shows a run of several machines.
type viewCommand struct {
	*app
	reach reachFlags
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
node, ssh://LOGIN/slurm:JOB from elsewhere, k8s://NAMESPACE/JOB. What ssh, srun or kubectl starts there is a
gmemtop of your own, and the keys stay there.

Afterwards, view FOLDER shows the same for the folder that gmemtop hub -o wrote, or for the recordings that
gmemtop run -o or gmemtop record wrote there.

--text prints one line for each rank and ends.`,
		Example: "  gmemtop view --join-file /shared/r1.join\n  gmemtop view --join-file /shared/r1.join " +
			"--text\n  gmemtop view ssh://node0/r1\n  gmemtop view slurm:4242\n" +
			"  gmemtop view /shared/r1",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && isPlace(args[0]):
				return c.view(cmd.Context(), args[0])
			case len(args) > 0:
				return c.viewFolder(cmd.Context(), args[0])
			}
			return c.view(cmd.Context(), "")
		},
	}
	p := cmd.Flags()
	c.reach.add(cmd)
	p.StringVar(&c.reach.run, "run", "", "with --hub, the `name` of the run")
	help.Rare(p, "run")
	p.BoolVar(&c.text, "text", false, "print the ranks as they are now, and end")
	p.BoolVar(&c.flags.json, "json", false, "print the ranks as JSON, and end")
	c.flags.screen(cmd)
	return cmd
}

// catchUp is how long a hub may take to send everything it has.
const catchUp = time.Minute

// prints reports whether text is asked for, or an error if neither that nor the screen is possible.
func (c *viewCommand) prints() (bool, error) {
	text := c.text || c.flags.json
	if !text && !c.HasScreen() {
		return false, usagef("%w; --text prints the ranks as they are now", errNoScreen)
	}
	return text, nil
}

// viewFolder shows the recordings in a folder.
func (c *viewCommand) viewFolder(ctx context.Context, dir string) error {
	if c.reach.join != "" || c.reach.hub != "" {
		return usagef("name either a folder, or --join-file or --hub")
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

// view shows the run of the join file, or of a place.
func (c *viewCommand) view(ctx context.Context, place string) error {
	text, err := c.prints()
	if err != nil {
		return err
	}
	reach, leave, err := c.reach.to(ctx, place, "view", bus.Viewer)
	if err != nil {
		return err
	}
	defer leave()
	conn, join, err := reach.Dial(ctx)
	if err != nil {
		return err
	}
	w := fleet.NewWatch(fleet.WatchOptions{})
	reading, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.Follow(reading, conn, join, reach) })
	defer func() {
		stop()
		work.Wait()
		_ = w.Close()
	}()
	if !text {
		return c.show(ctx, w.Job(), "for the nodes of run "+report.Printable(join.Run),
			capturing(w, func(ctx context.Context) (fleet.Reach, func(), error) {
				return c.reach.orders(ctx, place, reach)
			}))
	}
	if err := caughtUp(ctx, w, join.Run); err != nil {
		return err
	}
	return c.print(join.Run, w.Job())
}

// caughtUp waits until a watch knows what the hub of a run has.
func caughtUp(ctx context.Context, w *fleet.Watch, run string) error {
	select {
	case <-w.Caught():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(catchUp):
		return fmt.Errorf("the hub of run %s did not send what it has within %s: check that gmemtop hub "+
			"still runs there, then try again", run, catchUp)
	}
}

// show shows a job on the screen.
func (c *viewCommand) show(ctx context.Context, j *job.Job, waiting string, capture feed.Capturer) error {
	f := feed.NewJob(j, waiting, feed.JobOptions{Capture: capture})
	defer f.Close()
	o := c.screen()
	o.Feed, o.Planner = f, planner.NewFleet(j)
	return tui.Run(ctx, o)
}

// rankLine is a rank in text and JSON.
type rankLine struct {
	Rank      maybe.Int `json:"rank"`
	Node      string    `json:"node"`
	PID       int       `json:"pid"`
	Step      maybe.Int `json:"step"`
	Time      maybe.Int `json:"step_time_ns"`
	Allocated maybe.Int `json:"allocated_bytes"`
	Peak      maybe.Int `json:"peak_allocated_bytes"`
	Resident  maybe.Int `json:"resident_bytes"`
	Lost      int64     `json:"steps_lost"`
	State     string    `json:"state"`
}

// print prints the ranks of a run as they are now.
func (c *viewCommand) print(run string, j *job.Job) error {
	lines := []rankLine{}
	for _, p := range j.Processes() {
		v := p.History.Snapshot()
		l := rankLine{Rank: v.Target.Rank, Node: v.Target.Host, PID: v.Target.PID, State: "runs"}
		if n := len(v.Steps); n > 0 {
			s := v.Steps[n-1]
			l.Step, l.Time = maybe.Known(s.Index), maybe.Known(s.End-s.Start)
			l.Allocated, l.Resident, l.Peak = s.Allocated, s.RSS, v.PeakAllocated()
		}
		for _, x := range v.Losses {
			if x.Name == "steps" {
				l.Lost += x.Count
			}
		}
		switch {
		case v.Ended:
			l.State = "ended: " + feed.HowEnded(v.End)
		case v.Severed != "":
			l.State = v.Severed
		}
		lines = append(lines, l)
	}
	return c.write(false, func(out io.Writer) error {
		if c.flags.json {
			return report.WriteJSON(out, struct {
				Run   string     `json:"run"`
				Ranks []rankLine `json:"ranks"`
			}{run, lines})
		}
		t := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "rank\tnode\tstep\ttime\tallocated\tpeak\tlost\t  state\n")
		show := func(x maybe.Int, f func(int64) string) string {
			if v, ok := x.Value(); ok {
				return f(v)
			}
			return "-"
		}
		for _, l := range lines {
			fmt.Fprintf(t, "%v\t%s\t%v\t%s\t%s\t%s\t%d\t  %s\n", l.Rank, report.Printable(l.Node), l.Step,
				show(l.Time, timeline.Duration), show(maybe.First(l.Allocated, l.Resident),
					c.flags.report.Units.Bytes),
				show(l.Peak, c.flags.report.Units.Bytes), l.Lost, report.Printable(l.State))
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if len(lines) == 0 {
			fmt.Fprintf(out, "no node of run %s has sent a training step yet\n", report.Printable(run))
		}
		return nil
	})
}
