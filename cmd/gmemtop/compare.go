package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// compareCommand compares managers on one iteration.
type compareCommand struct {
	planning
	devices  deviceFlags
	names    string // of the managers
	limit    time.Duration
	notes    bool
	maxBatch bool

	paths []string       // of the traces to compare on, if any
	typed *cobra.Command // with the flags of the command line
}

func newCompareCommand(a *app) *cobra.Command {
	c := compareCommand{planning: planning{app: a}}
	cmd := &cobra.Command{
		Use: "compare FILE [FILE ...] | compare FOLDER", GroupID: groupReport,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.devices.Live() {
				return cobra.NoArgs(cmd, args)
			}
			return c.plan.tracesOrNetwork(4)(cmd, args)
		},
		Short: "Compare memory managers on this training, side by side",
		Long: `Which memory manager makes this training fit, and what does it cost? compare plans one
iteration of the trace with each, checks every plan, simulates it, and names the fastest that
fits the budget. gmemtop help managers lists them.

For a FOLDER of the ranks of one training, as gmemtop capture writes it, compare makes one plan for all: for
the memory of the fullest rank and the step time of the slowest.

--target cuda also carries the plans out on your GPU, with real memory and copies: checked byte for byte,
then timed. --target live:PID does so in a running training, one plan after the other, and leaves the
training as it was.

If nothing fits, compare looks for the smallest budget that does, for ten seconds or --limit, and prints the
command line for it.

The first ctrl-c ends planning and prints the best plans so far; the second ends compare at once.

Exits with 3 if nothing fits the budget, and with 5 if there is no GPU to measure on.`,
		Example: "  gmemtop compare snapshot.pickle\n" +
			"  gmemtop compare trace.gmt --budget 12GiB --managers all\n" +
			"  gmemtop compare traces --budget 80%\n" +
			"  gmemtop compare --target live:4242 --budget 80%\n" +
			"  gmemtop compare trace.gmt --budget 50% --hardware h100 --json \\\n" +
			"      --managers 'autoswap,vdnn-*,joint'\n" +
			"  gmemtop compare trace.gmt --budget 12GiB --target cuda\n" +
			"  gmemtop compare --network vgg16 --batch 256 --gradients-in-place \\\n" +
			"      --hardware titan-x --budget 12.5GiB\n" +
			"  gmemtop compare b32.gmt b64.gmt --batch 32,64 --budget 24GiB --max-batch\n" +
			"  gmemtop compare a.gmt b.gmt c.gmt --batch 8,16,8 --sequence 512,512,1024 \\\n" +
			"      --at-sequence 2048 --budget 24GiB --max-batch",
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.devices.Live() {
				return c.runLive(cmd.Context())
			}
			c.paths, c.typed = args, cmd
			return c.run(cmd.Context())
		},
	}
	p := cmd.Flags()
	addManagersFlag(p, &c.names)
	c.plan.add(cmd)
	c.devices.add(cmd)
	p.DurationVar(&c.limit, "limit", 0,
		"time limit for planning with one manager, which then gives its best so far (default none)")
	p.BoolVar(&c.maxBatch, "max-batch", false,
		"also find the largest batch that fits the budget; with one recording, --batch says at which batch "+
			"it was made, and sizes are scaled by a rule; with two at different batches (--batch 32,64), "+
			"or three or four that also differ in --sequence, growth is measured")
	p.IntVar(&c.plan.AtSequence, "at-sequence", 0,
		"the sequence length for --max-batch (default that of the first file)")
	p.BoolVar(&c.notes, "notes", false, "print notes on each result")
	c.flags.reading(cmd)
	c.flags.reporting(cmd)
	help.Rare(p, "limit", "at-sequence", "notes")
	return cmd
}

// run compares managers on a trace or a network, on the simulator and on the named GPUs.
func (c *compareCommand) run(ctx context.Context) error {
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	list, err := planner.Managers(c.names, c.devices.Target)
	if err != nil {
		return err
	}
	if err := c.asked().Check(); err != nil {
		return err
	}
	devices, deviceErr := c.devices.Devices(ctx)
	if deviceErr != nil && !stillSimulated(deviceErr) {
		return deviceErr
	}
	if len(devices) > 0 && c.plan.Hardware == "" {
		h, err := c.calibrated(ctx, devices[0])
		if err != nil {
			return err
		}
		c.plan.Measured = &h
	}
	ranks, p, readErr, err := c.described(ctx)
	if p == nil {
		return err
	}
	opt, err := c.plan.Options(p)
	if err != nil {
		return err
	}
	opt.Limit, opt.Eager = c.limit, managers.Eager
	if ranks != nil {
		opt.Targets = []replay.Target{ranks}
	}
	if c.maxBatch && opt.Budget == 0 {
		return exit.Mistakef("--max-batch needs --budget: the memory that the batch has to fit in")
	}
	for _, d := range devices {
		opt.Devices = append(opt.Devices, d.Replay())
		if opt.Budget > d.Info.Total {
			c.notef("the budget is above the %s of %s: larger plans are only simulated",
				c.flags.report.Units.Bytes(d.Info.Total), d.Target.Name())
		}
	}
	ctx, release := c.stoppable(ctx)
	defer release()
	made, err := c.compared(ctx, p, list, opt)
	if err != nil && !errors.Is(err, errFinding) {
		return err
	}
	smallest, more := c.beyond(ctx, p, list, opt).Add(ctx, made)
	if more != nil && interrupted(ctx) == nil {
		return more
	}
	if smallest != nil {
		c.complain(smallest.Sentence(&replay.Comparison{Problem: p, Budget: opt.Budget},
			c.flags.report.Units))
		for _, command := range smallest.Commands() {
			fmt.Fprintf(c.Err, "  %s\n", command)
		}
	}
	if made == nil {
		return cmp.Or(interrupted(ctx), err)
	}
	return cmp.Or(c.writeComparison(made), interrupted(ctx), readErr, deviceErr, planner.Unmeasured(made),
		fits(made))
}

// asked returns what is asked for.
func (c *compareCommand) asked() *planner.Comparing {
	return &planner.Comparing{Task: &c.plan.Task, Paths: c.paths, Folder: input.AnyFolder(c.paths),
		Target: c.devices.Target, MaxBatch: c.maxBatch}
}

// calibrated returns a GPU's figures and reports where they were measured and saved.
func (c *compareCommand) calibrated(ctx context.Context, d *planner.Device) (plan.Hardware, error) {
	h, path, err := d.Calibrate(ctx, c.devices.Calibrate)
	var unkept *planner.Unkept
	switch {
	case errors.As(err, &unkept):
		c.notef("the calibration of %s could not be saved: %v", d.Target.Name(), unkept)
		return h, nil
	case err == nil && path != "":
		c.notef("measured the cost of copies, launches and allocations on %s (%s): saved in %s, and used in "+
			"simulations from now on", d.Target.Name(), d.Info.Name, path)
	}
	return h, err
}

// described returns the iteration to plan. For a folder that is the fullest rank's iteration, and ranks has
// all ranks. With a problem it may also return what was wrong with the rest of the input.
func (c *compareCommand) described(ctx context.Context) (ranks *planner.Ranks, p *plan.Problem, readErr,
	err error) {
	if !c.asked().OfRanks() {
		p, readErr, err = c.problem(ctx, c.paths)
		return nil, p, readErr, err
	}
	if ranks, readErr, err = c.ranks(ctx, c.paths[0]); err != nil {
		return nil, nil, nil, err
	}
	fullest := ranks.Lead()
	p = fullest.Problem
	if n := ranks.Len(); n > 1 {
		c.notef("planning for %d ranks; %s holds most", n, fullest.Name)
	}
	return ranks, p, readErr, nil
}

// ranks returns the iterations of all ranks whose traces are in a folder, and what was wrong with any of
// them.
func (c *compareCommand) ranks(ctx context.Context, dir string) (_ *planner.Ranks, readErr, err error) {
	if err := c.plan.Check(); err != nil {
		return nil, nil, err
	}
	found, err := c.reader().Ranks(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	return c.plan.OfRun(ctx, found, c.flags.report.Devices,
		func(ctx context.Context, t *traces.Trace) (*timeline.Timeline, error) {
			return c.reader().Build(ctx, t, nil)
		})
}

// beyond says how to add to a comparison what takes further planning.
func (c *compareCommand) beyond(ctx context.Context, p *plan.Problem, list []plan.Manager,
	opt replay.Options) *planner.Beyond {
	return &planner.Beyond{Comparing: c.asked(), Problem: p, Managers: list, Options: opt, Limit: c.limit,
		Clock: func(doing string) (stop func()) { return c.newProgress().Clock(doing) },
		Bar: func() (say func(string), done func()) {
			bar := c.newProgress()
			return bar.Say, bar.Done
		},
		Recording: func(i int) (*plan.Problem, error) {
			p, readErr, err := c.recorded(ctx, c.paths[i])
			return p, cmp.Or(err, readErr)
		},
		Again: func(budget string) string {
			return help.Again(c.typed, c.paths, map[string]string{"budget": budget}, "output", "force",
				"quiet")
		},
		NoneFound: func(within time.Duration) {
			c.complainf("no budget that fits was found in %s: --limit 1m searches longer", within)
		}}
}

// writeComparison writes comparisons one after another; with --json, only the first.
func (c *compareCommand) writeComparison(list ...*replay.Comparison) error {
	if c.flags.json {
		return c.write(func(w io.Writer) error { return list[0].WriteJSON(w, c.flags.report.Units) })
	}
	return c.text(func(w io.Writer) error {
		for _, made := range list {
			if err := made.WriteText(w, replay.TextOptions{Units: c.flags.report.Units, Width: c.width(),
				ASCII: c.flags.ascii, Notes: c.notes}); err != nil {
				return err
			}
		}
		return nil
	})
}

// fits returns the finding that nothing fits in the budget.
func fits(made *replay.Comparison) error {
	if made.AnyFits() {
		return nil
	}
	return errFinding
}

// runLive carries plans out in a running training and leaves it as it was.
func (c *compareCommand) runLive(ctx context.Context) error {
	if err := c.mayWrite(c.flags.output); err != nil {
		return err
	}
	t, err := c.training(c.devices.Target)
	if err != nil {
		return err
	}
	if err := c.asked().CheckLive(); err != nil {
		return err
	}
	o, err := c.devices.LiveOptions()
	if err != nil {
		return err
	}
	rounds, err := planner.Rounds(c.names)
	if err != nil {
		return err
	}
	if c.flags.json && len(rounds) > 1 {
		return exit.Mistakef("--json writes one comparison, and managers that only choose " +
			"addresses solve another problem than the rest: compare them one after the other")
	}
	made, left := t.Compare(ctx, rounds, o, func(ctx context.Context, p *plan.Problem,
		list []plan.Manager, opt replay.Options) (*replay.Comparison, error) {
		opt.Limit = c.limit
		return c.compared(ctx, p, list, opt)
	})
	if len(made) == 0 {
		return left
	}
	err = cmp.Or(c.writeComparison(made...), left)
	for _, one := range made {
		err = cmp.Or(err, planner.Unmeasured(one), fits(one))
	}
	return err
}
