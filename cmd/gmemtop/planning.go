package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/traces/load"
)

// planFlags are the flags of commands that plan one iteration of a trace.
type planFlags struct{ planner.Task }

func (f *planFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.Budget, "budget", "",
		"the memory to fit in: 8GiB, or 50% of the step's peak")
	p.StringVar(&f.Network, "network", "",
		"plan a `network` from its layers instead of a file: a name from gmemtop help hardware")
	p.IntSliceVar(&f.Batch, "batch", nil,
		"batch `sizes`: of --network, or of each file in order, separated by commas")
	p.IntSliceVar(&f.Sequence, "sequence", nil,
		"sequence `lengths`: of --network, or of each file in order, separated by commas")
	p.BoolVar(&f.InPlace, "gradients-in-place", false,
		"activation layers of --network compute their gradients in place, as frameworks did in vDNN's time")
	addTaskFlags(p, &f.Task)
	help.Rare(p, "network", "sequence", "gradients-in-place")
}

// addTaskFlags adds the flags that planning and sweeping share: what a plan must fit besides its budget, the
// hardware, the iteration, and how managers search.
func addTaskFlags(p *pflag.FlagSet, t *planner.Task) {
	p.StringVar(&t.Margin, "margin", "", "memory to keep free within the budget (default none)")
	p.StringVar(&t.Outside, "outside", "",
		"memory that no tensor accounts for: CUDA context, libraries, NCCL (default none: traces do not say)")
	p.StringVar(&t.Hardware, "hardware", "",
		"the `GPU` to plan for: a name from gmemtop help hardware, or a JSON file")
	p.StringVar(&t.Iteration, "iteration", "",
		"the number of the iteration to plan (default the steady one with the highest peak)")
	p.Uint64Var(&t.Seed, "seed", 1, "seed of managers that choose at random: same seed and work, same plan")
	p.Int64Var(&t.Work, "work", 0,
		"how much each manager may search, in its own counted units (default its own)")
	help.Rare(p, "margin", "outside", "iteration", "seed", "work")
}

// addManagersFlag adds --managers.
func addManagersFlag(p *pflag.FlagSet, names *string) {
	p.StringVar(names, "managers", "",
		"names separated by commas, a prefix with * such as vdnn-*, or all (default a dozen)")
}

// addJobsFlag adds --jobs, which checkJobs checks.
func addJobsFlag(p *pflag.FlagSet, n *int) {
	p.IntVar(n, "jobs", runtime.GOMAXPROCS(0), "how many plans to make at once")
}

func checkJobs(n int) error {
	if n < 1 {
		return exit.Mistakef("--jobs %d: make at least one plan at once", n)
	}
	return nil
}

// tracesOrNetwork takes at most `most` files, and none if --network is given.
func (f *planFlags) tracesOrNetwork(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case f.Network != "" && len(args) > 0:
			return fmt.Errorf("%s plans a file or --network, not both", cmd.Name())
		case f.Network == "" && f.InPlace:
			return fmt.Errorf("--gradients-in-place is for --network: a file says what its training did")
		case f.Network == "" && len(args) == 0:
			return fmt.Errorf("%s needs FILE, or --network", cmd.Name())
		case len(args) > most:
			return fmt.Errorf("%s takes at most %d files: %q is one too many", cmd.Name(), most, args[most])
		}
		return nil
	}
}

// planning is shared by commands that plan one iteration, from a trace, a network's layers or a running
// training.
type planning struct {
	*app
	plan planFlags
}

// problem takes the iteration to plan from the first trace of paths, or builds it from layers. With a problem
// it may also return what was wrong with the rest of the input.
func (c *planning) problem(ctx context.Context, paths []string) (*plan.Problem, error, error) {
	if c.plan.Network != "" {
		p, err := c.plan.OfNetwork(0)
		return p, nil, err
	}
	return c.recorded(ctx, paths[0])
}

// recorded takes the iteration to plan from the trace at path.
func (c *planning) recorded(ctx context.Context, path string) (*plan.Problem, error, error) {
	if err := c.plan.Check(); err != nil {
		return nil, nil, err
	}
	t, readErr := c.reader().Timeline(ctx, path)
	if t == nil {
		return nil, nil, readErr
	}
	p, err := c.plan.OfTimeline(ctx, t, c.flags.report.Devices, load.Name(path))
	if errors.Is(err, planner.ErrNoDevice) && readErr != nil {
		return nil, readErr, readErr
	}
	return p, readErr, err
}

// compared plans and simulates, with progress. If the budget cannot be met, the error uses the user's units.
// If ctrl-c ended the context, that is no error: the results are those so far.
func (c *planning) compared(ctx context.Context, p *plan.Problem, list []plan.Manager,
	opt replay.Options) (*replay.Comparison, error) {
	bar := progress.NewPlanning(c.newProgress(), len(list))
	opt.Update = bar.Update
	defer context.AfterFunc(ctx, func() {
		if replay.Stopped(ctx) {
			bar.Stopping()
		}
	})()
	made, err := replay.Compare(ctx, p, list, opt)
	bar.End()
	if made != nil && replay.Stopped(ctx) {
		return made, nil
	}
	if text, ok := planner.TooSmall(err, opt.Budget, c.flags.report.Units); ok {
		c.complain(text)
		return nil, errFinding
	}
	return made, err
}

// training returns the running training that the target names.
func (c *planning) training(target string) (*planner.Training, error) {
	pid, err := planner.LivePID(target)
	return &planner.Training{Task: &c.plan.Task, PID: pid,
		Attach: job.Options{Unasked: true, Attached: feed.AttachedBy},
		Note:   c.note}, err
}
