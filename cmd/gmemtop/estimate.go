package main

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/fit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/traces/gmt"
)

// estimateCommand runs one command at any size.
type estimateCommand struct {
	*app
	ask     fit.Request
	printed *fit.Printed // what the command prints
}

func newEstimateCommand(a *app) *cobra.Command {
	e := estimateCommand{app: a}
	cmd := &cobra.Command{
		Use: "estimate [flags] -- CMD ...", GroupID: groupLive,
		Short: "Check whether a PyTorch training will fit, without a GPU",
		Long: `Will it fit, on which GPU, with which batch? Runs your script unchanged for a few steps
(to its end if it trains nothing), without a GPU, and prints whether it fits, the peak by category and what
PyTorch's caching allocator would reserve.

Nothing is computed, so ignore any loss that the script prints: gmemtop makes such values up (--verbose
shows what it prints). Your files stay as they are, and files that the script makes are removed afterwards,
except in caches. Trackers log nothing, and the script reaches no other machine. {batch} and {sequence} in
the command stand for each size of --batch and --sequence.

--allocator model (the default) uses tensors that have sizes but no memory, and emulates PyTorch's
allocator. It does not see what kernels allocate inside an op. --allocator real asks PyTorch itself: its
CUDA build runs the script on a stand-in GPU. Workspaces, fragmentation and where it runs out of memory are
then PyTorch's own. It needs Linux on amd64 and a torch built for CUDA.

Exits with 0 if it fits, 3 if it does not, 1 if the script failed, and 5 if gmemtop cannot follow it
or it ended before its first step.`,
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
	p.StringVar(&e.ask.Hardware, "hardware", "", "the `GPU`: a name from gmemtop help hardware, a "+
		"JSON file, or all (default "+planner.DefaultHardware+")")
	p.StringVar(&e.ask.Budget, "budget", "", "the memory to fit in (default the GPU's)")
	p.StringVar(&e.ask.Outside, "outside", fit.DefaultOutside,
		"memory that no tensor accounts for: CUDA context, libraries, NCCL")
	p.IntSliceVar(&e.ask.Sizes.Batches, "batch", nil,
		"batch `sizes` for {batch}, separated by commas; without {batch}, the script's own")
	p.IntSliceVar(&e.ask.Sizes.Sequences, "sequence", nil,
		"sequence `lengths` for {sequence}, separated by commas")
	p.BoolVar(&e.ask.MaxBatch, "max-batch", false, "also find the largest batch that fits")
	p.IntVar(&e.ask.Steps, "steps", 3, "steps to train")
	p.IntVar(&e.ask.WorldSize, "world-size", 0,
		"estimate one rank of a training of `N` ranks, as torchrun would start it")
	p.BoolVar(&e.ask.Eager, "eager", false, "run a script that uses torch.compile without it, "+
		"instead of refusing it")
	p.BoolVar(&e.ask.CPU, "cpu", false, "let the script find no GPU, so that it trains on the CPU")
	p.StringVar(&e.ask.Allocator, "allocator", fit.Model,
		"model: tensors without memory, PyTorch's allocator emulated; real: PyTorch's own")
	p.StringArrayVar(&e.ask.AllocConf, "alloc-conf", nil,
		"settings of PyTorch's allocator, such as expandable_segments:True; give several to compare them in "+
			"a table (default: those of the environment)")
	p.StringVar(&e.ask.Snapshot, "snapshot", "",
		"with --allocator real: also write PyTorch's own memory snapshot, of the first size, to this `file`")
	p.BoolVar(&e.flags.json, "json", false,
		"print JSON (schema_version 2), sizes in bytes and times in nanoseconds")
	e.flags.writing(cmd, "also write the steps, of the first size, to a native file for replay and compare")
	help.Rare(p, "alloc-conf", "snapshot", "steps", "outside", "eager", "cpu")
	p.SetInterspersed(false)
	return cmd
}

// run runs the command at each size and says what fits.
func (e *estimateCommand) run(ctx context.Context, argv []string) error {
	for _, path := range []string{e.flags.output, e.ask.Snapshot} {
		if err := e.mayWrite(path); err != nil {
			return err
		}
	}
	e.ask.Output, e.ask.JSON = e.flags.output, e.flags.json
	x, err := e.ask.Prepare(argv)
	if err != nil {
		return err
	}
	x.Building = func() {
		e.note("compiling the stand-in GPU for this torch, once: that takes about a minute")
	}
	o := &x.Options
	o.Env, o.Stdin = e.Environ, e.In
	o.Tell = e.ask.Telling(e.note)
	if e.flags.verbose {
		e.printed = fit.ShowPrinted(o, e.Err)
	} else if e.printed, err = fit.KeepPrinted(o); err != nil {
		return err
	}
	defer e.printed.Close()
	if x.IsTable() {
		return e.table(ctx, x)
	}
	return e.report(ctx, x)
}

// report runs the command at each size and reports.
func (e *estimateCommand) report(ctx context.Context, x *fit.Prepared) error {
	r, err := x.Report(ctx, func(size string) (done func()) {
		if size != "" {
			e.note(size)
		}
		return e.newProgress().Clock(cmp.Or(size, "estimating"))
	})
	if err != nil {
		return e.explain(err)
	}
	if err := errors.Join(r.Explain(ctx, e.look()), e.files(ctx, r.Estimates[0])); err != nil {
		return err
	}
	return e.answer(r, r.WriteJSON)
}

// table runs the command for each row of a table and writes that.
func (e *estimateCommand) table(ctx context.Context, x *fit.Prepared) error {
	t, err := x.Table(ctx, e.note)
	if err != nil {
		return e.explain(err)
	}
	return e.answer(t, func(w io.Writer) error { return t.WriteJSON(w, e.flags.report.Units) })
}

// estimated is a report or a table.
type estimated interface {
	WriteText(w io.Writer, l fit.Look) error
	Unseen() bool
	Fits() bool
}

// answer prints an estimate; json writes it as JSON. The error's exit code is the answer, too: nil for a
// training that fits.
func (e *estimateCommand) answer(x estimated, json func(w io.Writer) error) error {
	text := func(w io.Writer) error { return x.WriteText(w, e.look()) }
	if e.flags.json {
		text = json
	}
	err := e.writeTo("", text) // -o names the recording
	switch {
	case err != nil:
		return err
	case x.Unseen():
		return fit.ErrNoStep
	case !x.Fits():
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
		err := e.writeBinary(e.flags.output, func(w io.Writer) error { return gmt.Write(ctx, w, trace) })
		if err != nil {
			return err
		}
		if note != "" {
			e.note(note)
		}
	}
	switch {
	case e.ask.Snapshot == "":
		return nil
	case x.Process == nil:
		e.note("no snapshot was written: PyTorch's allocator was emulated")
		return nil
	}
	return e.writeBinary(e.ask.Snapshot, func(w io.Writer) error {
		_, err := w.Write(x.Process.Snapshot)
		return err
	})
}

// explain turns an error into a message for the user and an exit code.
func (e *estimateCommand) explain(err error) error {
	var failed *estimate.Failed
	if !errors.As(err, &failed) {
		return fit.Refusal(err)
	}
	if hint := e.ask.Hint(e.printed.Explain(e.Err)); hint != "" {
		e.complain(hint)
	}
	e.complainf("%s; its output is above", failed)
	return childError{exitFailure}
}
