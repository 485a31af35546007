package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/bus"
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
		Use: "worker --join-file FILE TRACE ...", GroupID: groupReport, Args: cobra.MinimumNArgs(1),
		Short: "Make the plans that a gmemtop sweep on another machine hands out",
		Long: `Makes plans for a gmemtop sweep --serve until all are made. Start as many as you like, whenever
you like: if one ends or loses its connection, another takes over its plan.

TRACE are the files of the sweep. Their paths may differ here: gmemtop knows them by their content.`,
		Example: "  srun -n 64 gmemtop worker --join-file /shared/s1.join /shared/traces/*.gmt",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.soon = cmd.Flags().Changed("wait")
			return c.run(cmd.Context(), args)
		},
	}
	p := cmd.Flags()
	p.StringVar(&c.join, "join-file", "", "the `file` that gmemtop sweep --serve wrote")
	p.IntVar(&c.jobs, "jobs", runtime.GOMAXPROCS(0), "how many plans to make at once")
	p.DurationVar(&c.wait, "wait", time.Minute, "how long to wait for a sweep that no longer answers; if "+
		"given, also for one that has not begun, which is otherwise waited for as long as it takes")
	return cmd
}

// joinPause is how often a worker looks for the sweep.
const joinPause = time.Second

func (c *workerCommand) run(ctx context.Context, paths []string) error {
	switch {
	case c.join == "":
		return usagef("name the file that gmemtop sweep --serve wrote: --join-file /shared/s1.join")
	case c.jobs < 1:
		return usagef("--jobs %d: make at least one plan at once", c.jobs)
	}
	var made atomic.Int64
	join, err := c.await(ctx)
	if err != nil {
		return err
	}
	defer func() { c.note("%d plans made", made.Load()) }()
	for ; err == nil; join, err = bus.ReadJoin(c.join) {
		if err := c.work(ctx, join, paths, &made); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the sweep has all plans
	}
	return err
}

// await waits for the join file.
func (c *workerCommand) await(ctx context.Context) (bus.Join, error) {
	told := false
	for late := time.Now().Add(c.wait); ; {
		j, err := bus.ReadJoin(c.join)
		switch {
		case !errors.Is(err, fs.ErrNotExist):
			return j, err
		case c.soon && time.Now().After(late):
			return j, fmt.Errorf("no sweep has begun within %s: gmemtop sweep --serve --join-file %s writes "+
				"that file", c.wait, c.join)
		case !told:
			told = true
			c.note("waiting for a sweep: gmemtop sweep --serve --join-file %s writes that file", c.join)
		}
		select {
		case <-ctx.Done():
			return j, ctx.Err()
		case <-time.After(joinPause):
		}
	}
}

// work makes plans for the sweep of a join file, until the file is gone or another's.
func (c *workerCommand) work(ctx context.Context, join bus.Join, paths []string, made *atomic.Int64) error {
	host, _ := os.Hostname()
	conn, err := bus.Dial(ctx, bus.Access{Join: join, Role: bus.Worker, Patient: true,
		Name: fmt.Sprintf("worker %s:%d", host, os.Getpid())})
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var left sync.WaitGroup
	defer left.Wait()
	defer stop(nil)
	left.Go(func() {
		for heard := time.Now(); ctx.Err() == nil; {
			if conn.Connected() {
				heard = time.Now()
			} else if time.Since(heard) > c.wait {
				stop(fmt.Errorf("the sweep of %s has not answered for %s: start it again, and then this "+
					"worker", c.join, c.wait))
				return
			}
			if j, err := bus.ReadJoin(c.join); err != nil || j.Certificate != join.Certificate {
				stop(nil)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(joinPause):
			}
		}
	})
	asking, enough := context.WithTimeout(ctx, c.wait)
	defer enough()
	said, err := conn.AboutWork(asking)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the sweep of %s does not answer: %w", c.join, err)
	}
	w, err := sweep.NewWorker(ctx, said, paths, c.opening)
	if err != nil {
		return err
	}
	var jobs sync.WaitGroup
	for range c.jobs {
		jobs.Go(func() {
			for ctx.Err() == nil {
				switch err := conn.Take(ctx, w.Do); {
				case err == nil:
					made.Add(1)
				case ctx.Err() != nil, errors.Is(err, bus.ErrNoWork):
				case !conn.Connected(): // it comes back, or the join file goes
					select {
					case <-ctx.Done():
					case <-time.After(joinPause):
					}
				default:
					stop(err)
				}
			}
		})
	}
	jobs.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// opening returns what makes the problem of a trace, as the sweep asks for it.
func (c *workerCommand) opening(device string, task planner.Task) func(ctx context.Context,
	path string) (*plan.Problem, error, error) {
	c.plan.Task, c.flags.device = task, device
	return func(ctx context.Context, path string) (*plan.Problem, error, error) {
		return c.recorded(ctx, path)
	}
}

// serve hands out what a sweep lacks to workers on other machines.
func (c *sweepCommand) serve(ctx context.Context, s *sweep.Sweep, j *sweep.Journal) (err error) {
	said, err := s.About()
	if err != nil {
		return misused(err)
	}
	keys, err := bus.NewKeys(30 * 24 * time.Hour)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "gmemtop-sweep-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := bus.OpenHub(bus.HubOptions{Run: "sweep-" + s.ID, Listen: c.listen, Keys: keys, Work: true,
		Socket: filepath.Join(dir, "sweep.sock")})
	if err != nil {
		return err
	}
	defer h.Close()
	q, err := h.Work(said)
	if err != nil {
		return err
	}
	defer q.Close()
	join := h.Join()
	if c.listen != "" {
		join.Addresses = []string{advertised(c.listen, h.Address())}
	}
	if err := join.Write(c.joinFile); err != nil {
		return err
	}
	defer func() {
		if err == nil { // workers leave; otherwise they wait for the sweep to continue
			_ = os.Remove(c.joinFile)
		}
	}()
	c.note("waiting for workers: gmemtop worker --join-file %s TRACE ...", c.joinFile)
	bar := c.newProgress()
	defer bar.Done()
	var last sweep.Progress
	err = s.Serve(ctx, q, j, func(p sweep.Progress) {
		last = p
		bar.Say(progressText(p))
	})
	bar.Done()
	if errors.Is(err, context.Canceled) && last.Total > 0 {
		c.note("%d of %d plans are done and kept: the same command goes on from there", last.Done, last.Total)
	}
	return err
}
