package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/networks"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// planFlags are the flags of commands that plan one iteration of a trace.
type planFlags struct {
	budget, margin, outside, hardware string
	iteration, network                string
	batch, sequence                   []int
	atSequence                        int
	seed                              uint64
	work                              int64

	eagerOnly bool           // for a training in eager PyTorch: see plan.BuildOptions
	measured  *plan.Hardware // that of the GPU that measures; nil where there is none
}

func (f *planFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.budget, "budget", "",
		"the device's memory: 8GiB, or 50% of what PyTorch's caching allocator takes")
	p.StringVar(&f.margin, "margin", "", "memory to keep free within the budget (default none)")
	p.StringVar(&f.outside, "outside", "",
		"memory that no tensor accounts for: CUDA context, libraries, NCCL (default none: traces do not say)")
	p.StringVar(&f.hardware, "hardware", "",
		"what copies and allocations cost: "+strings.Join(hardwareNames(), ", ")+", or a JSON file")
	p.StringVar(&f.network, "network", "",
		"plan a network made from its layers instead of a file: "+strings.Join(networkNames(), ", "))
	p.IntSliceVar(&f.batch, "batch", nil,
		"samples in a batch: of --network, or of the recorded files in their order")
	p.IntSliceVar(&f.sequence, "sequence", nil,
		"tokens in a sample: of --network, or of the recorded files in their order")
	p.StringVar(&f.iteration, "iteration", "",
		"the iteration to plan on, by its number (default the steady one of the highest peak)")
	p.Uint64Var(&f.seed, "seed", 1, "seed of managers that choose at random: same seed and work, same plan")
	p.Int64Var(&f.work, "work", 0,
		"how much each manager may search, in its own counted units (default its own)")
}

// tracesOrNetwork takes up to most files, or none where --network is given.
func (f *planFlags) tracesOrNetwork(most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case f.network != "" && len(args) > 0:
			return fmt.Errorf("%s plans a file or --network, not both", cmd.Name())
		case f.network == "" && len(args) == 0:
			return fmt.Errorf("%s needs FILE, or --network", cmd.Name())
		case len(args) > most:
			return fmt.Errorf("%s takes at most %d files, but %q came too", cmd.Name(), most, args[most])
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

// made makes the problem of --network at a batch size; 0 is the network's usual one.
func (f *planFlags) made(n int) (*plan.Problem, error) {
	net, err := networks.ByName(f.network)
	if err != nil {
		return nil, usageError{err}
	}
	hw, err := f.chosenHardware()
	if err != nil {
		return nil, err
	}
	if n == 0 && len(f.batch) > 0 {
		n = f.batch[0]
	}
	if n == 0 {
		n = net.Batches[0]
	}
	o, err := f.networkOptions()
	if err != nil {
		return nil, err
	}
	p, err := net.Problem(n, hw, o)
	if err != nil {
		return nil, usageError{err}
	}
	p.Outside, err = optionalBytes("outside", f.outside)
	return p, err
}

func hardwareNames() []string {
	var names []string
	for _, h := range hardware.Presets() {
		names = append(names, h.Name)
	}
	return names
}

// chosenHardware reads --hardware. Where nobody says, it is what was measured on a GPU of this machine, and
// else the default.
func (f *planFlags) chosenHardware() (plan.Hardware, error) {
	name := f.hardware
	switch {
	case name != "":
	case f.measured != nil:
		return *f.measured, nil
	default:
		if h, ok := planner.CalibratedHere(); ok {
			return h, nil
		}
		name = planner.DefaultHardware
	}
	if strings.HasSuffix(name, ".json") {
		return hardware.Load(name)
	}
	h, err := hardware.ByName(name)
	if err != nil {
		return h, usageError{err}
	}
	return h, nil
}

// liveHardware reads --hardware for a training that runs.
func (f *planFlags) liveHardware() (live.Hardware, error) {
	h, err := f.chosenHardware()
	return live.Hardware{Hardware: h, Chosen: f.hardware != "", Of: planner.HardwareOf}, err
}

// planning is what commands have in common that plan one iteration, of a trace, of a network's layers or of a
// training that runs.
type planning struct {
	*app
	plan planFlags
}

// problem takes the iteration to plan from the first of the traces at paths, or makes it from layers. Beside
// a problem it may return what was wrong with the rest of the input.
func (c *planning) problem(ctx context.Context, paths []string) (*plan.Problem, error, error) {
	if c.plan.network != "" {
		p, err := c.plan.made(0)
		return p, nil, err
	}
	return c.recorded(ctx, paths[0])
}

// recorded takes the iteration to plan from the trace at path.
func (c *planning) recorded(ctx context.Context, path string) (*plan.Problem, error, error) {
	hw, err := c.plan.chosenHardware()
	if err != nil {
		return nil, nil, err
	}
	o := plan.BuildOptions{Iteration: -1, Hardware: hw, Name: load.Name(path), EagerOnly: c.plan.eagerOnly}
	if c.plan.iteration != "" {
		n, err := strconv.Atoi(strings.TrimPrefix(c.plan.iteration, "it"))
		if err != nil || n < 0 {
			return nil, nil, usageError{fmt.Errorf("--iteration %q is no iteration: write 2, or it2",
				c.plan.iteration)}
		}
		o.Iteration = n
	}
	t, readErr := c.timeline(ctx, path)
	if t == nil {
		return nil, nil, readErr
	}
	d := t.Main()
	if c.flags.device != "" {
		devices, err := c.flags.report.Devices.Of(t)
		if err != nil {
			return nil, nil, usageError{err}
		}
		if len(devices) > 0 {
			d = devices[0]
		}
	}
	if d == nil {
		return nil, nil, firstError(readErr,
			errors.New("this trace has no device whose memory could be planned"))
	}
	if c.plan.iteration != "" {
		it := steps.Of(d)
		i, err := it.Find(strconv.Itoa(o.Iteration))
		if err == nil && i == len(it.List) {
			err = fmt.Errorf("the last iteration is %d", o.Iteration-1)
		}
		if err != nil {
			return nil, nil, usageError{fmt.Errorf("--iteration %s: %w", c.plan.iteration, err)}
		}
		o.Iteration = i
	}
	if h, ok := planner.HardwareOf(d.Info.Name); ok && c.plan.hardware == "" && c.plan.measured == nil {
		o.Hardware = h
	}
	p, err := plan.FromDevice(ctx, d, o)
	// what was recorded cannot have been: sizes beyond any device, work that no memory was there for
	if errors.Is(err, plan.ErrInvalid) {
		return nil, nil, fmt.Errorf("%s: %w: %w", load.Name(path), traces.ErrFormat, err)
	}
	if err != nil {
		return nil, nil, unsupportedPlan(err)
	}
	if p.Outside, err = optionalBytes("outside", c.plan.outside); err != nil {
		return nil, nil, err
	}
	return p, readErr, nil
}

// unsupportedPlan turns what a recording cannot serve into the exit code for it.
func unsupportedPlan(err error) error {
	if errors.As(err, new(*plan.Unavailable)) {
		return unsupportedError{err}
	}
	return err
}

// unsupportedError is something that this input or machine does not allow.
type unsupportedError struct{ err error }

func (e unsupportedError) Error() string { return e.err.Error() }
func (e unsupportedError) Unwrap() error { return e.err }

func optionalBytes(flag, s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := timeline.ParseBytes(s)
	if err != nil || n < 0 {
		return 0, usageError{fmt.Errorf("--%s %q is no size: write 512MiB", flag, s)}
	}
	return n, nil
}

// budgetBytes reads --budget: bytes, or a share of what PyTorch's caching allocator takes for the same
// iteration.
func (f *planFlags) budgetBytes(ctx context.Context, p *plan.Problem) (int64, error) {
	s := strings.TrimSpace(f.budget)
	share, isShare := strings.CutSuffix(s, "%")
	if !isShare {
		n, err := optionalBytes("budget", s)
		if err == nil && s != "" && n == 0 {
			err = usageError{errors.New("--budget 0 leaves no room for anything")}
		}
		return n, err
	}
	percent, err := strconv.ParseFloat(strings.TrimSpace(share), 64)
	if err != nil || !(percent > 0 && percent <= 1000) { // NaN is neither
		return 0, usageError{fmt.Errorf("--budget %q is no share: write 50%%", s)}
	}
	all, err := planner.Caching(ctx, p)
	if err != nil {
		return 0, fmt.Errorf("the caching allocator's footprint, which --budget %s is a share of: %w", s, err)
	}
	return int64(float64(all) * percent / 100), nil
}

// budgetIn is budgetBytes for a training, whose room does not matter.
func (f *planFlags) budgetIn(ctx context.Context, p *plan.Problem, _ int64) (int64, error) {
	return f.budgetBytes(ctx, p)
}

// options are those of planning for a problem: the budget and what of it is kept free, and how the managers
// search.
func (f *planFlags) options(ctx context.Context, p *plan.Problem) (o replay.Options, err error) {
	o.Seed, o.Work = f.seed, f.work
	if o.Budget, err = f.budgetBytes(ctx, p); err != nil {
		return o, err
	}
	o.Margin, err = optionalBytes("margin", f.margin)
	return o, err
}

// tooSmall prints what must be resident in the user's units, and becomes the exit code of a finding.
func (c *planning) tooSmall(err error, budget int64) error {
	var small *plan.TooSmall
	if !errors.As(err, &small) {
		return err
	}
	u := c.flags.report.Units
	of := "the budget is " + u.Bytes(small.Budget)
	if small.Budget != budget {
		of = fmt.Sprintf("of the budget of %s --outside and --margin leave %s", u.Bytes(budget),
			u.Bytes(small.Budget))
	}
	c.complain("not possible: %s need %s, and %s", small.Held, u.Bytes(small.Need), of)
	return errFinding
}

// compared plans and simulates, with progress; a budget that cannot be met is said in the user's terms.
func (c *planning) compared(ctx context.Context, p *plan.Problem, list []plan.Manager,
	opt replay.Options) (*replay.Comparison, error) {
	bar := progress.NewPlanning(c.newProgress(), len(list))
	opt.Update = bar.Update
	made, err := replay.Compare(ctx, p, list, opt)
	bar.End()
	if errors.Is(err, replay.ErrTooSmall) {
		return nil, c.tooSmall(err, opt.Budget)
	}
	return made, err
}
