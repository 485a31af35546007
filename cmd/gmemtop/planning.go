package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// planFlags are the flags of commands that plan one iteration of a trace.
type planFlags struct{ planner.Task }

func (f *planFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.Budget, "budget", "",
		"the device's memory: 8GiB, or 50% of what a step holds at its peak today")
	p.StringVar(&f.Network, "network", "",
		"plan a `network` from its layers instead of a file: a name from gmemtop help hardware")
	p.IntSliceVar(&f.Batch, "batch", nil,
		"batch `sizes`: of --network, or of each file in order, separated by commas")
	p.IntSliceVar(&f.Sequence, "sequence", nil,
		"sequence `lengths`: of --network, or of each file in order, separated by commas")
	addTaskFlags(p, &f.Task)
	help.Rare(p, "network", "sequence")
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

// tracesOrNetwork takes at most `most` files, and none if --network is given.
func (f *planFlags) tracesOrNetwork(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case f.Network != "" && len(args) > 0:
			return fmt.Errorf("%s plans a file or --network, not both", cmd.Name())
		case f.Network == "" && len(args) == 0:
			return fmt.Errorf("%s needs FILE, or --network", cmd.Name())
		case len(args) > most:
			return fmt.Errorf("%s takes at most %d files: %q is one too many", cmd.Name(), most, args[most])
		}
		return nil
	}
}

func networkNames() []string {
	var names []string
	for _, n := range networks.All() {
		names = append(names, n.Name)
	}
	return names
}

func hardwareNames() []string {
	var names []string
	for _, h := range hardware.Presets() {
		names = append(names, h.Name)
	}
	return names
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
	t, readErr := c.timeline(ctx, path)
	if t == nil {
		return nil, nil, readErr
	}
	p, err := c.ofTimeline(ctx, t, load.Name(path), readErr)
	return p, readErr, err
}

// ofTimeline takes the iteration to plan from a timeline, which was read with readErr.
func (c *planning) ofTimeline(ctx context.Context, t *timeline.Timeline, name string,
	readErr error) (*plan.Problem, error) {
	d := t.Main()
	if c.flags.device != "" {
		devices, err := c.flags.report.Devices.Of(t)
		if err != nil {
			return nil, usageError{err}
		}
		if len(devices) > 0 {
			d = devices[0]
		}
	}
	if d == nil {
		return nil, cmp.Or(readErr,
			errors.New("this trace has no device whose memory could be planned"))
	}
	p, err := c.plan.OfDevice(ctx, d, name)
	// the recording is impossible: sizes beyond any device, work without memory for it
	if errors.Is(err, plan.ErrInvalid) {
		return nil, fmt.Errorf("%s: %w: %w", name, traces.ErrFormat, err)
	}
	return p, err
}

// compared plans and simulates, with progress. If the budget cannot be met, the error uses the user's units.
func (c *planning) compared(ctx context.Context, p *plan.Problem, list []plan.Manager,
	opt replay.Options) (*replay.Comparison, error) {
	bar := progress.NewPlanning(c.newProgress(), len(list))
	opt.Update = bar.Update
	made, err := replay.Compare(ctx, p, list, opt)
	bar.End()
	if text, ok := planner.TooSmall(err, opt.Budget, c.flags.report.Units); ok {
		c.complain("%s", text)
		return nil, errFinding
	}
	return made, err
}

// training runs f on a running training once one of its steps has ended, and leaves its processes as they
// were.
func (c *planning) training(ctx context.Context, pid int, f func(w *crew.Crew) error) error {
	return planner.InTraining(ctx, pid, job.Options{Unasked: true, Attached: feed.AttachedBy},
		func() { c.note("waiting for a step of process %d to end", pid) }, f)
}

// describing returns options that have how far the description of process m has come noted.
func (c *planning) describing(o live.Options, m *crew.Member, pooled bool) live.Options {
	if pooled {
		return o
	}
	o.Describing = func(n live.News) {
		n.Usual = m.Usual()
		c.note("%s", n.Doing()[0])
	}
	return o
}

// describedNow describes a training and returns the iteration that process m runs, or what it allocates if
// pooled is set.
func (c *planning) describedNow(ctx context.Context, target planner.Describer, pooled bool,
	m *crew.Member) (*plan.Problem, error) {
	name := fmt.Sprintf("process %d", m.History.Snapshot().Target.PID)
	if pooled {
		name = "what " + name + " allocates"
		c.note("recording the allocations of %d of its steps", crew.RecordedSteps)
	}
	p, err := c.plan.Described(ctx, target, name)
	if err == nil {
		c.note("%s", live.Planning.Doing())
	}
	return p, err
}
