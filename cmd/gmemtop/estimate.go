package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/capture/standin"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/fit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/timeline/report"
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
	allocator string   // model or real
	allocConf []string // settings of PyTorch's allocator
	snapshot  string   // the file for PyTorch's own snapshot
	sizes     fit.Sizes
	printed   *fit.Printed // what the command prints, nil if --verbose shows it
	stderr    fit.Tail     // the end of its standard error, under --verbose

	fit.Training
}

// defaultOutside is the assumed size of a CUDA context with PyTorch's kernels. Drivers and builds differ by
// some hundred MiB; --outside replaces it.
const defaultOutside = "600MiB"

func newEstimateCommand(a *app) *cobra.Command {
	e := estimateCommand{app: a}
	cmd := &cobra.Command{
		Use: "estimate [flags] -- CMD ...", GroupID: groupLive,
		Short: "Check whether a PyTorch training will fit, without a GPU",
		Long: `Will it fit, on which GPU, with which batch? Runs your script unchanged for a few steps
(to its end if it trains nothing), without a GPU, and prints whether it fits, the peak by category and what
PyTorch's caching allocator would reserve.

Nothing is computed, no checkpoint is written, and files that the script makes are removed afterwards, except
in caches. Values that it asks for, such as a loss to print, are made up and counted, so what it prints means
nothing: --verbose shows it. {batch} and {sequence} in the command stand for each size of --batch and
--sequence.

--allocator model (the default) uses tensors that have sizes but no memory, and emulates PyTorch's
allocator. It does not see what kernels allocate inside an op. --allocator real asks PyTorch itself: its
CUDA build runs the script on a stand-in GPU. Workspaces, fragmentation and where it runs out of memory are
then PyTorch's own. It needs Linux on amd64 and a torch built for CUDA.

Exits with 0 if it fits, 3 if it does not, 1 if the script failed, and 5 if it cannot be followed or ended
before its first step.`,
		Example: "  gmemtop estimate --hardware h100 -- python train.py\n" +
			"  gmemtop estimate --hardware a100 --batch 16,32,64 -- \\\n" +
			"      python train.py --batch-size {batch}\n" +
			"  gmemtop estimate --budget 24GiB --batch 8 --max-batch -- \\\n" +
			"      python train.py --batch-size {batch}\n" +
			"  gmemtop estimate --allocator real --hardware all -- python train.py\n" +
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
	p.StringVar(&e.plan.Hardware, "hardware", "", "the `GPU`: a name of gmemtop help hardware, a JSON "+
		"file, or all (default "+planner.DefaultHardware+")")
	p.StringVar(&e.plan.Budget, "budget", "", "the memory that it must fit in (default the device's)")
	p.StringVar(&e.plan.Outside, "outside", defaultOutside,
		"memory that no tensor accounts for: CUDA context, libraries, NCCL")
	p.IntSliceVar(&e.sizes.Batches, "batch", nil,
		"batch `sizes` for {batch}, separated by commas; without {batch}, the script's own")
	p.IntSliceVar(&e.sizes.Sequences, "sequence", nil,
		"sequence `lengths` for {sequence}, separated by commas")
	p.BoolVar(&e.maxBatch, "max-batch", false, "also find the largest batch that fits")
	p.IntVar(&e.steps, "steps", 3, "steps to train")
	p.IntVar(&e.processes, "world-size", 0,
		"processes that train together, as torchrun would start; one is estimated")
	p.BoolVar(&e.eager, "eager", false, "leave torch.compile out, instead of refusing a script that uses it")
	p.BoolVar(&e.cpu, "cpu", false, "train on the CPU: the script finds no GPU")
	p.StringVar(&e.allocator, "allocator", "model",
		"model: tensors without memory, PyTorch's allocator emulated; real: PyTorch's own")
	p.StringArrayVar(&e.allocConf, "alloc-conf", nil,
		"settings of PyTorch's allocator, such as expandable_segments:True; given several times, a table of "+
			"them (default: as the environment says)")
	p.StringVar(&e.snapshot, "snapshot", "",
		"with --allocator real: also write PyTorch's own memory snapshot, of the first size, to a `FILE`")
	p.BoolVar(&e.flags.json, "json", false,
		"print JSON (schema_version 2), sizes in bytes and times in nanoseconds")
	e.flags.writing(cmd, "also write the steps, of the first size, to a native file for replay and compare")
	help.Rare(p, "alloc-conf", "snapshot", "steps", "outside", "eager", "cpu")
	p.SetInterspersed(false)
	return cmd
}

// run runs the command at each size and says what fits.
func (e *estimateCommand) run(ctx context.Context, argv []string) error {
	for _, path := range []string{e.flags.output, e.snapshot} {
		if err := e.mayWrite(path); err != nil {
			return err
		}
	}
	e.Argv = argv
	cards, err := e.chooseDevices()
	if err != nil {
		return err
	}
	if err := e.chooseMemory(cards); err != nil {
		return err
	}
	if err := e.check(); err != nil {
		return usageError{err}
	}
	e.noteVariants(cards)
	e.Options = estimate.Options{Env: e.Environ, Stdin: e.In, Stdout: e.Err, Stderr: e.Err, CPU: e.cpu,
		Steps: e.steps, Processes: e.processes, Eager: e.eager, Tell: e.tell}
	if e.flags.verbose {
		e.Options.Stderr = io.MultiWriter(e.Err, &e.stderr)
	} else {
		if e.printed, err = fit.NewPrinted(); err != nil {
			return fmt.Errorf("no file for what the command prints: %w; --verbose needs none", err)
		}
		defer e.printed.Close()
		e.Options.Stdout, e.Options.Stderr = e.printed.File, e.printed.File
	}
	way := e.chosen(cards)
	switch {
	case len(cards) > 1:
		all, err := e.OnCards(ctx, e.sizes.All()[0], cards, way, e.noteRow)
		if e.flags.json {
			return e.writeTable(all, err, func(w io.Writer, l fit.Look) error {
				return all.WriteCardsJSON(w, l.Units)
			})
		}
		return e.writeTable(all, err, all.WriteCards)
	case len(e.allocConf) > 1:
		err := e.oneSize("several --alloc-conf")
		if err == nil && e.flags.json {
			err = errors.New("several --alloc-conf print a table, not JSON: leave --json out")
		}
		if err != nil {
			return usageError{err}
		}
		all, err := e.WithSettings(ctx, e.sizes.All()[0], e.allocConf, way, e.noteRow)
		return e.writeTable(all, err, all.WriteSettings)
	}
	e.Choose(way)
	return e.atSizes(ctx)
}

// chosen returns how to run the training: on the only card, if any, and with the only settings, if any.
func (e *estimateCommand) chosen(cards []standin.Card) (way fit.Choice) {
	if len(cards) == 1 {
		way.Card = &cards[0]
	}
	if len(e.allocConf) > 0 {
		way.AllocConf = e.allocConf[0]
	}
	way.Building = func() {
		e.note("compiling the stand-in GPU for this torch, once: that takes about a minute")
	}
	return way
}

// noteRow says which row of a table is next.
func (e *estimateCommand) noteRow(name string) { e.note("%s", name) }

// tell reports the progress of a command that takes a while.
func (e *estimateCommand) tell(ran time.Duration, at []estimate.Place) {
	e.note("%s", fit.Progress(ran, at, e.steps))
}

// chooseDevices finds what --hardware names: cards for PyTorch's own allocator, smallest first, or, for the
// emulated one, a preset.
func (e *estimateCommand) chooseDevices() (cards []standin.Card, err error) {
	switch {
	case e.allocator == "real":
		if cards, err = e.realCards(); err != nil {
			return nil, usageError{err}
		}
		return cards, nil
	case e.allocator != "model":
		return nil, usagef("--allocator %q is neither model nor real", e.allocator)
	case e.snapshot != "":
		return nil, usagef("--snapshot needs --allocator real: the emulated allocator takes none")
	}
	e.Hardware, err = fit.DeviceChosen(&e.plan.Task)
	return nil, err
}

// chooseMemory finds the memory that the training must fit in: what --budget says, or the device's.
func (e *estimateCommand) chooseMemory(cards []standin.Card) (err error) {
	if e.Outside, err = planner.Bytes("outside", e.plan.Outside); err != nil {
		return err
	}
	if e.cpu && e.plan.Outside == defaultOutside {
		e.Outside = 0
	}
	if e.Budget, err = planner.Bytes("budget", e.plan.Budget); err != nil {
		return err
	}
	switch {
	case e.Budget > 0:
	case len(cards) > 0:
		e.Budget = cards[0].Memory
	default:
		e.Budget = fit.Memory(&e.Hardware)
	}
	if e.Budget == 0 {
		return usagef("the memory of %s is unknown: give --budget", e.Hardware.Name)
	}
	return nil
}

// noteVariants adds a note if the name of the hardware could mean several cards.
func (e *estimateCommand) noteVariants(cards []standin.Card) {
	asked := e.plan.Hardware
	if asked == "" && len(cards) == 1 {
		asked = planner.DefaultHardware
	}
	if v := fit.Variants(asked); v != "" {
		e.Notes = append(e.Notes, v)
	}
}

// atSizes runs the command at each size and reports.
func (e *estimateCommand) atSizes(ctx context.Context) error {
	var err error
	r := fit.Report{Training: &e.Training}
	sizes := e.sizes.All()
	for i, x := range sizes {
		doing := "estimating"
		if len(sizes) > 1 {
			doing = fmt.Sprintf("%s, %d of %d", x, i+1, len(sizes))
			e.note("%s", doing)
		}
		e.Keep = i == 0 && (e.flags.output != "" || e.snapshot != "")
		stop := e.newProgress().Clock(doing)
		at, err := e.At(ctx, x)
		if errors.Is(err, standin.ErrNoCUDATorch) || errors.Is(err, standin.ErrPlatform) {
			at, err = e.withoutRealAt(ctx, x, err)
		}
		if stop(); err != nil {
			return e.explain(err)
		}
		r.Estimates = append(r.Estimates, at)
	}
	if e.maxBatch && !r.Unseen() {
		if r.Largest, err = e.Largest(ctx, r.Estimates); err != nil {
			return e.explain(err)
		}
	}
	if err := errors.Join(r.Explain(ctx, e.look()), e.files(ctx, r.Estimates[0])); err != nil {
		return err
	}
	if err := e.writeTo("", false, func(w io.Writer) error {
		if e.flags.json {
			return r.WriteJSON(w)
		}
		return r.WriteText(w, e.look())
	}); err != nil {
		return err
	}
	switch {
	case r.Unseen():
		return errNoStep
	case !r.Fits():
		return errFinding
	}
	return nil
}

// writeTable writes a table that was made with an error, if any; the error says what its exit code is.
func (e *estimateCommand) writeTable(all *fit.Table, made error,
	write func(io.Writer, fit.Look) error) error {
	if made != nil {
		return e.explain(made)
	}
	if err := e.writeTo("", false, func(w io.Writer) error { return write(w, e.look()) }); err != nil {
		return err
	}
	switch {
	case all.Unseen():
		return errNoStep
	case !all.Fits():
		return errFinding
	}
	return nil
}

// look is how the report is written.
func (e *estimateCommand) look() fit.Look {
	return fit.Look{Units: e.flags.report.Units, Width: e.Width(), Brief: e.flags.quiet && !e.flags.json}
}

// files writes the files that were asked for.
func (e *estimateCommand) files(ctx context.Context, x *fit.Estimate) error {
	if e.flags.output != "" {
		trace, note := x.Recording()
		if err := e.write(true, func(w io.Writer) error { return gmt.Write(ctx, w, trace) }); err != nil {
			return err
		}
		if note != "" {
			e.note("%s", note)
		}
	}
	switch {
	case e.snapshot == "":
		return nil
	case x.Process == nil:
		e.note("no snapshot was written: PyTorch's allocator was emulated")
		return nil
	}
	return e.writeTo(e.snapshot, true, func(w io.Writer) error {
		_, err := w.Write(x.Process.Snapshot)
		return err
	})
}

// errNoStep is the error for a script that ended before its first step.
var errNoStep = unsupportedError{errors.New("the script ended before its first step, so nothing says " +
	"whether a step fits: it may have been told to train for no steps, or to stop")}

// withoutRealAt runs the command at a size that PyTorch's own allocator cannot answer for, for the given
// reason. The emulated allocator answers instead, and the report says so.
func (e *estimateCommand) withoutRealAt(ctx context.Context, x fit.Size, why error) (*fit.Estimate, error) {
	hw, err := fit.DeviceChosen(&e.plan.Task)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", why, err)
	}
	e.Hardware = hw
	if e.plan.Budget == "" && hw.MemoryBytes > 0 {
		e.Budget = fit.Memory(&hw)
	}
	e.Choose(e.chosen(nil))
	at, err := e.At(ctx, x)
	if err == nil {
		at.Result.Notes = append([]string{fmt.Sprintf("%v: PyTorch's allocator is emulated, as with "+
			"--allocator model", why)}, at.Result.Notes...)
	}
	return at, err
}

// check rejects flags that do not go together.
func (e *estimateCommand) check() error {
	switch {
	case e.steps < 1 || e.steps > 100:
		return fmt.Errorf("--steps %d is not between 1 and 100", e.steps)
	case e.processes < 0 || e.processes > 1<<16:
		return fmt.Errorf("--world-size %d is not between 1 and 65536", e.processes)
	}
	return e.sizes.Check(e.Argv, e.maxBatch)
}

// explain turns an error into a message for the user and an exit code.
func (e *estimateCommand) explain(err error) error {
	var failed *estimate.Failed
	switch {
	case errors.As(err, &failed):
		said := e.showPrinted()
		if hint := hint(said); e.allocator == "real" && hint != "" {
			e.complain("%s", hint)
		}
		e.complain("%s; its output is above", failed)
		return childError{exitFailure}
	case errors.Is(err, standin.ErrNoCompiler), errors.Is(err, standin.ErrNoCUDATorch),
		errors.Is(err, standin.ErrPlatform):
		return unsupportedError{fmt.Errorf("%w; leave out --allocator real to do without it", err)}
	case errors.Is(err, estimate.ErrUnsupported), errors.As(err, new(*plan.Unavailable)):
		return unsupportedError{err}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the command cannot be started: %w", err)
	}
	return err
}

// wantsCards finds in what a command printed that it missed a GPU: PyTorch's words, and Lightning's.
// wantsNetwork finds that it missed the network: ours, Hugging Face's and urllib3's.
var (
	wantsCards   = regexp.MustCompile(`invalid device ordinal|your machine only has`)
	wantsNetwork = regexp.MustCompile(`gmemtop refuses connections|HF_HUB_OFFLINE|[Oo]ffline mode|` +
		`Hugging Face Hub|huggingface\.co|Max retries exceeded`)
)

// hint says what a command that failed seems to miss, "" if what it printed does not show that.
func hint(said string) string {
	switch {
	case wantsCards.MatchString(said):
		return "the script wants more GPUs than it finds: CUDA_VISIBLE_DEVICES=0,1 in its environment " +
			"gives it two, 0,1,2,3 four"
	case wantsNetwork.MatchString(said):
		return "the script seems to want something from the network, which an estimate does not reach: " +
			"start it once without gmemtop, until it has downloaded all that it needs"
	}
	return ""
}

// oneSize returns an error if a table is asked for together with flags for reports of a single size.
func (e *estimateCommand) oneSize(table string) error {
	if e.maxBatch || e.flags.output != "" || e.snapshot != "" || len(e.sizes.All()) > 1 {
		return fmt.Errorf("%s is a table of one size: leave --max-batch, -o, --snapshot and further sizes "+
			"out", table)
	}
	return nil
}

// showPrinted prints the end of what a failed command printed, unless that was shown at once, and returns it.
func (e *estimateCommand) showPrinted() string {
	if e.printed == nil {
		return e.stderr.String()
	}
	text := e.printed.End()
	for line := range strings.Lines(text) {
		fmt.Fprintln(e.Err, report.Printable(strings.TrimRight(line, "\r\n")))
	}
	return text
}

// realCards returns the cards that --hardware names for PyTorch's own allocator: one, or all of them,
// smallest first.
func (e *estimateCommand) realCards() ([]standin.Card, error) {
	switch {
	case e.cpu:
		return nil, errors.New("--allocator real is for GPUs: leave out --cpu")
	case e.maxBatch && !strings.Contains(strings.Join(e.Argv, " "), "{batch}"):
		return nil, errors.New("--max-batch with --allocator real needs {batch} in the command: -- python " +
			"train.py --batch-size {batch}")
	case e.plan.Hardware == "all" && len(e.allocConf) > 1:
		return nil, errors.New("--hardware all and several --alloc-conf are two tables: choose one")
	case e.plan.Hardware != "all":
		card, err := fit.CardNamed(cmp.Or(e.plan.Hardware, planner.DefaultHardware))
		return []standin.Card{card}, err
	case e.plan.Budget != "":
		return nil, errors.New("--hardware all takes each card's own memory: leave --budget out")
	}
	if err := e.oneSize("--hardware all"); err != nil {
		return nil, err
	}
	cards := slices.Clone(standin.Cards())
	slices.SortStableFunc(cards, func(a, b standin.Card) int { return cmp.Compare(a.Memory, b.Memory) })
	return cards, nil
}
