package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
)

// estimateCommand runs one command at any size.
type estimateCommand struct {
	*app
	plan      planFlags
	steps     int
	processes int
	eager     bool
	cpu       bool
	maxBatch  bool

	argv            []string
	hardware        plan.Hardware
	budget, outside int64
}

// Places in the command's words that each size of --batch and --sequence is put into.
const (
	batchPlace    = "{batch}"
	sequencePlace = "{sequence}"
)

// defaultOutside is what a CUDA context with PyTorch's kernels takes, an assumption that --outside replaces:
// drivers and builds differ by some hundred MiB.
const defaultOutside = "600MiB"

func newEstimateCommand(a *app) *cobra.Command {
	e := estimateCommand{app: a}
	cmd := &cobra.Command{
		Use: "estimate [flags] -- CMD ...", GroupID: groupLive,
		Short: "Say whether a PyTorch training will fit, without a GPU",
		Long: "Runs a training script, unchanged, on tensors that have sizes and no memory, lets it train " +
			"three steps, and says what they would take on a GPU that need not\n" +
			"be there: the peak by category, what PyTorch's caching allocator would reserve, and whether " +
			"that fits. Nothing is computed and no checkpoint is written; values\n" +
			"that the script asks for (a loss to print) are made up and counted. What kernels take inside " +
			"of an op is not seen. With {batch} and {sequence} in the command\n" +
			"it is run at each size of --batch and --sequence. Times are computed from the device's " +
			"figures.\n" +
			"Exits with 0 where it fits, 3 where it does not, 1 where the script failed, 5 where it cannot " +
			"be followed.",
		Example: "  gmemtop estimate --hardware h100 -- python train.py\n" +
			"  gmemtop estimate --hardware a100 --batch 16,32,64 -- python train.py --batch-size {batch}\n" +
			"  gmemtop estimate --budget 24GiB --batch 8 --max-batch -- python train.py --batch-size " +
			"{batch}\n" +
			"  gmemtop estimate --world-size 8 -o train.gmt -- python train_fsdp.py",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name the command to run: gmemtop estimate -- python train.py")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args) },
	}
	p := cmd.Flags()
	p.StringVar(&e.plan.hardware, "hardware", "", "the device: "+strings.Join(hardwareNames(),
		", ")+", or a JSON file (default "+planner.DefaultHardware+")")
	p.StringVar(&e.plan.budget, "budget", "", "the memory that it has to fit in (default the device's)")
	p.StringVar(&e.plan.outside, "outside", defaultOutside,
		"memory that no tensor accounts for: CUDA context, libraries, NCCL")
	p.IntSliceVar(&e.plan.batch, "batch", nil,
		"batch sizes to put in the place of {batch}; without the place, the one that the script has")
	p.IntSliceVar(&e.plan.sequence, "sequence", nil, "sequence lengths to put in the place of {sequence}")
	p.BoolVar(&e.maxBatch, "max-batch", false, "also find the largest batch that fits")
	p.IntVar(&e.steps, "steps", 3, "steps to train")
	p.IntVar(&e.processes, "world-size", 0,
		"processes that train together, as torchrun would start; one is estimated")
	p.BoolVar(&e.eager, "eager", false, "leave torch.compile out, instead of refusing a script that uses it")
	p.BoolVar(&e.cpu, "cpu", false, "train on the CPU: the script finds no GPU")
	p.BoolVar(&e.flags.json, "json", false,
		"print JSON (schema_version 2), sizes in bytes and times in nanoseconds")
	e.flags.writing(cmd)
	p.Lookup("output").Usage = "also write the steps, of the first size, to a native file for replay and " +
		"compare"
	p.SetInterspersed(false)
	return cmd
}

// estimated is what came out at one size.
type estimated struct {
	batch, sequence int
	result          *estimate.Result
	device          *timeline.Device
	peak            int64
	step            int // of the peak, counted from 1, 0 before the first and after the last
	reserved        int64
	fits            bool
	stepTime        int64 // of the last step
}

// run runs the command at each size and says what fits.
func (e *estimateCommand) run(ctx context.Context, argv []string) error {
	if err := e.mayWrite(e.flags.output); err != nil {
		return err
	}
	var err error
	e.argv = argv
	if e.hardware, err = e.plan.chosenHardware(); err != nil {
		return err
	}
	if e.outside, err = optionalBytes("outside", e.plan.outside); err != nil {
		return err
	}
	if e.cpu && e.plan.outside == defaultOutside {
		e.outside = 0
	}
	if e.budget, err = optionalBytes("budget", e.plan.budget); err != nil {
		return err
	}
	if e.budget == 0 {
		e.budget = e.hardware.MemoryBytes
	}
	if e.budget == 0 {
		return usageError{fmt.Errorf("%s has no size of memory: say --budget", e.hardware.Name)}
	}
	if err := e.check(); err != nil {
		return usageError{err}
	}
	var all []*estimated
	for _, s := range e.sizes() {
		x, err := e.at(ctx, s[0], s[1])
		if err != nil {
			return e.explain(err)
		}
		all = append(all, x)
	}
	var largest *largestFit
	if e.maxBatch {
		if largest, err = e.largest(ctx, all); err != nil {
			return e.explain(err)
		}
	}
	if e.flags.output != "" {
		err := e.write(true, func(w io.Writer) error { return gmt.Write(ctx, w, all[0].result.Trace) })
		if err != nil {
			return err
		}
	}
	w := &strings.Builder{}
	if e.flags.json {
		err = e.writeJSON(w, all, largest)
	} else {
		e.writeText(w, all, largest)
	}
	if err != nil {
		return err
	}
	if err := e.writeTo("", false, func(out io.Writer) error {
		_,
			err := io.WriteString(out, w.String())
		return err
	}); err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(x *estimated) bool { return !x.fits }) {
		return errFinding
	}
	return nil
}

func (e *estimateCommand) check() error {
	text := strings.Join(e.argv, " ")
	switch {
	case e.steps < 1 || e.steps > 100:
		return fmt.Errorf("--steps %d is not 1 to 100", e.steps)
	case e.processes < 0 || e.processes > 1<<16:
		return fmt.Errorf("--world-size %d is not 1 to 65536", e.processes)
	case slices.ContainsFunc(append(slices.Clone(e.plan.batch), e.plan.sequence...),
		func(n int) bool { return n < 1 || n > batch.Limit }):
		return fmt.Errorf("a size of --batch or --sequence is not 1 to %d", batch.Limit)
	case strings.Contains(text, batchPlace) && len(e.plan.batch) == 0:
		return errors.New("the command has a place for {batch}: say which, --batch 8 or --batch 8,16")
	case strings.Contains(text, sequencePlace) && len(e.plan.sequence) == 0:
		return errors.New("the command has a place for {sequence}: say which, --sequence 512")
	case !strings.Contains(text, batchPlace) && len(e.plan.batch) > 1:
		return errors.New("several sizes of --batch need their place in the command: -- python train.py " +
			"--batch-size {batch}")
	case !strings.Contains(text, sequencePlace) && len(e.plan.sequence) > 0:
		return errors.New("--sequence needs its place in the command: -- python train.py --length {sequence}")
	case e.maxBatch && len(e.plan.batch) == 0:
		return errors.New("--max-batch needs --batch: the size that the script has, or one for {batch} in " +
			"the command")
	case e.maxBatch && len(e.plan.sequence) > 1:
		return errors.New("--max-batch is looked for at one --sequence")
	}
	return nil
}

// sizes are the pairs of batch and sequence to run at, 0 where there is none.
func (e *estimateCommand) sizes() [][2]int {
	batches, sequences := e.plan.batch, e.plan.sequence
	if len(batches) == 0 {
		batches = []int{0}
	}
	if len(sequences) == 0 {
		sequences = []int{0}
	}
	var all [][2]int
	for _, b := range batches {
		for _, s := range sequences {
			all = append(all, [2]int{b, s})
		}
	}
	return all
}

// capabilities are the compute capabilities and numbers of multiprocessors of the presets, by how their names
// begin; what is not among them is told to scripts as an A100.
var capabilities = []struct {
	prefix     string
	capability [2]int
	processors int
}{
	{"TITAN X (Maxwell)", [2]int{5, 2}, 24}, {"P100", [2]int{6, 0}, 56}, {"V100", [2]int{7, 0}, 80},
	{"A100", [2]int{8, 0}, 108},
	{"H100", [2]int{9, 0}, 132}, {"H200", [2]int{9, 0}, 132}, {"GH200", [2]int{9, 0}, 132},
}

// at runs the command at a size.
func (e *estimateCommand) at(ctx context.Context, size, sequence int) (*estimated, error) {
	hw := e.hardware
	o := estimate.Options{
		Env: e.environ, Stdin: e.in, Stdout: e.err, Stderr: e.err, CPU: e.cpu, Steps: e.steps,
		Processes: e.processes, Eager: e.eager,
		Device: estimate.Device{Name: "NVIDIA " + hw.Name, MemoryBytes: e.budget,
			FlopsPerSecond: hw.FlopsPerSecond, FlopsType: hw.FlopsType,
			BytesPerSecond: hw.BytesPerSecond, LaunchGap: hw.LaunchGap, Capability: [2]int{8, 0},
			Processors: 108},
	}
	for _, c := range capabilities {
		if strings.HasPrefix(hw.Name, c.prefix) {
			o.Device.Capability, o.Device.Processors = c.capability, c.processors
		}
	}
	for _, word := range e.argv {
		word = strings.ReplaceAll(word, batchPlace, strconv.Itoa(size))
		o.Argv = append(o.Argv, strings.ReplaceAll(word, sequencePlace, strconv.Itoa(sequence)))
	}
	if e.flags.quiet { // what the script prints are values that were made up
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		defer null.Close()
		o.Stdout = null
	}
	r, err := estimate.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	tl, err := timeline.Build(ctx, r.Trace, nil)
	if err != nil {
		return nil, err
	}
	x := &estimated{batch: size, sequence: sequence, result: r, device: tl.Main()}
	if x.device == nil {
		return nil, fmt.Errorf("%w: the script allocated nothing", estimate.ErrUnsupported)
	}
	x.peak = x.device.Totals.PeakAllocated
	at := x.device.Time(x.device.Totals.PeakAt)
	for i, m := range r.Trace.Marks {
		if at >= m.Start && at <= m.End && x.step == 0 {
			x.step = i + 1
		}
		x.stepTime = m.End - m.Start
	}
	return x, e.reserve(ctx, x)
}

// reserve emulates the caching allocator over everything that the script did: without a limit for what it
// would reserve, and where that does not fit, with the budget for the limit, where it gives its cache back
// before it runs out.
func (e *estimateCommand) reserve(ctx context.Context, x *estimated) error {
	reserved, _, err := emulate(ctx, x.device, 1<<50)
	if err != nil {
		return err
	}
	x.reserved, x.fits = reserved, reserved+e.outside <= e.budget
	if !x.fits && e.budget > e.outside {
		if _, x.fits, err = emulate(ctx, x.device, e.budget-e.outside); err != nil {
			return err
		}
	}
	return nil
}

// emulate sends a device's allocations through PyTorch's caching allocator on a driver with so much memory.
// It returns the most that was reserved, and whether all requests could be met.
func emulate(ctx context.Context, d *timeline.Device, capacity int64) (reserved int64, met bool, err error) {
	driver := allocator.NewDriver(capacity)
	alloc, err := allocator.NewCaching(allocator.Config{Driver: driver})
	if err != nil {
		return 0, false, err
	}
	blocks := map[uint64]allocator.Block{}
	for m := range timeline.Moment(d.Len()) {
		if m%4096 == 0 && ctx.Err() != nil {
			return 0, false, ctx.Err()
		}
		ev := d.Event(m)
		switch ev.Action {
		case traces.Alloc:
			b, err := alloc.Malloc(ev.Size, 0)
			if errors.Is(err, allocator.ErrOutOfMemory) {
				return driver.Peak(), false, nil
			}
			if err != nil {
				return 0, false, err
			}
			blocks[ev.Addr] = b
		case traces.Free:
			if err := alloc.Free(blocks[ev.Addr]); err != nil {
				return 0, false, err
			}
			delete(blocks, ev.Addr)
		}
	}
	return driver.Peak(), true, nil
}

// largestFit is the answer to --max-batch.
type largestFit struct {
	batch    int
	run      *estimated // of that batch, where the command could be run at it
	inferred bool       // computed from one batch and what the categories say
}

// largest finds the largest batch that fits. Two runs make a model of how sizes grow, the model says where
// the border is, and runs there confirm it or move it; a command without a place for the batch is run once,
// and what its categories say grows is planner.Scaled.
func (e *estimateCommand) largest(ctx context.Context, all []*estimated) (*largestFit, error) {
	one := all[0]
	p, err := e.problem(ctx, one)
	if err != nil {
		return nil, err
	}
	points := []batch.Point{{Batch: one.batch, Problem: p}}
	canRun := strings.Contains(strings.Join(e.argv, " "), batchPlace)
	if canRun {
		other := (*estimated)(nil)
		if len(all) > 1 {
			other = all[len(all)-1]
		} else if other, err = e.at(ctx, 2*one.batch, one.sequence); err != nil {
			return nil, err
		}
		q, err := e.problem(ctx, other)
		if err != nil {
			return nil, err
		}
		if other.batch != one.batch {
			points = append(points, batch.Point{Batch: other.batch, Problem: q})
		}
	}
	model, err := batch.Fit(points...)
	if err != nil {
		return nil, err
	}
	n, err := batch.MaxBatch(ctx, model.Scaled, e.problemFits(ctx))
	if err != nil || !canRun {
		return &largestFit{batch: n, inferred: model.Inferred()}, err
	}
	var best *largestFit
	for tries := 0; n > 0 && tries < 8; tries++ {
		if best != nil && n == best.batch {
			break
		}
		x, err := e.at(ctx, n, one.sequence)
		if err != nil {
			return nil, err
		}
		switch {
		case x.fits:
			best = &largestFit{batch: n, run: x}
			n++
		case best != nil:
			return best, nil // the one below was run and fits
		default:
			n -= max(1, n/64)
		}
	}
	if best == nil {
		best = &largestFit{}
	}
	return best, nil
}

// problem makes the problem of the steady step.
func (e *estimateCommand) problem(ctx context.Context, x *estimated) (*plan.Problem, error) {
	p, err := plan.FromDevice(ctx, x.device, plan.BuildOptions{Iteration: -1, Hardware: e.hardware,
		Name: "the script"})
	if err != nil {
		return nil, unsupportedPlan(err)
	}
	p.Outside = e.outside
	return p, nil
}

// problemFits asks the emulated caching allocator about a problem.
func (e *estimateCommand) problemFits(ctx context.Context) func(p *plan.Problem) (bool, error) {
	return func(p *plan.Problem) (bool, error) {
		all, err := planner.Caching(ctx, p)
		return err == nil && all-p.Outside+e.outside <= e.budget, err
	}
}

// explain turns what went wrong into what a user is told and the exit code for it.
func (e *estimateCommand) explain(err error) error {
	var failed *estimate.Failed
	switch {
	case errors.As(err, &failed):
		e.complain("%s; what it said stands above", failed)
		return childError{exitFailure}
	case errors.Is(err, estimate.ErrUnsupported):
		return unsupportedError{err}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the command cannot be started: %w", err)
	}
	return err
}
