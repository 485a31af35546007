package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/doctor"
	"github.com/gmemtop/gmemtop/replay/acceptance"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/spf13/cobra"
)

func newDoctorCommand(a *app) *cobra.Command {
	g := &gpuReport{app: a}
	c := &cobra.Command{
		Use: "doctor", GroupID: groupMachine, Args: cobra.NoArgs,
		Short: "What works on this machine, and how to fix the rest",
		Long: `What works on this machine, and how to fix the rest.

--gpu-report also runs gmemtop and small trainings on your GPU for up to nine minutes, and compares what it
measures with what gmemtop claims. The report has no names, paths or process numbers; gmemtop shows what is
in it and sends nothing. It does not need root, and leaves other programs' memory alone.`,
		Example: "  gmemtop doctor\n  gmemtop doctor --gpu-report gpu.json --python ~/venv/bin/python\n" +
			"  gmemtop doctor --gpu-report gpu.json --all --keep checks",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("gpu-report") || cmd.Flags().Changed("checks") {
				return g.run(cmd.Context())
			}
			stop := a.newProgress().Clock("asking Python, the driver and the kernel")
			d := doctor.Diagnose(cmd.Context(), doctor.Terminal{Out: a.Out, Tty: console.IsTerminal(a.Out),
				Color: a.flags.color, Colored: a.colored(), Units: a.flags.report.Units, Environ: a.Environ,
				Env: a.Env})
			stop()
			return a.write(false, func(w io.Writer) error {
				if a.flags.json {
					return report.WriteJSON(w, d)
				}
				if a.flags.quiet {
					return d.WriteMissing(w)
				}
				return d.WriteText(w)
			})
		},
	}
	c.Flags().BoolVar(&a.flags.json, "json", false, "print JSON")
	g.addFlags(c)
	return c
}

// gpuReport is doctor with --gpu-report: it runs checks on this machine's GPU and writes one redacted file of
// the results.
type gpuReport struct {
	*app
	file    string
	python  string
	minutes float64
	checks  []string
	all     bool
	keep    string
	device  int
	tiny    bool
}

func (g *gpuReport) addFlags(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&g.file, "gpu-report", "",
		"run checks on the GPU and write a redacted report to this file; nothing is sent")
	p.StringVar(&g.python, "python", "",
		"the Python with torch for --gpu-report (default python3, if it has torch)")
	p.Float64Var(&g.minutes, "minutes", 9, "how long the checks may take")
	p.StringSliceVar(&g.checks, "checks", nil, "run these `checks` only; \"list\" lists them")
	p.BoolVar(&g.all, "all", false, "run every check, however long that takes")
	p.StringVar(&g.keep, "keep", "", "keep recordings and logs in this folder, and resume from it")
	p.IntVar(&g.device, "device", 0, "the GPU to check, by CUDA's number")
	p.BoolVar(&g.tiny, "tiny", false, "train tiny networks only")
	p.BoolVarP(&g.flags.force, "force", "f", false, "overwrite an existing file")
}

// listed prints the available checks.
func (g *gpuReport) listed(w io.Writer) error {
	for _, c := range acceptance.Checks() {
		if _, err := fmt.Fprintf(w, "%-24s %s\n", c.Name, c.About); err != nil {
			return err
		}
	}
	return nil
}

func (g *gpuReport) run(ctx context.Context) error {
	if slices.Equal(g.checks, []string{"list"}) {
		return g.write(false, g.listed)
	}
	switch {
	case g.file == "" || g.file == "-":
		return usagef("--gpu-report needs the name of a file: the summary goes to standard output")
	case !(g.minutes > 0 && g.minutes <= 24*60):
		return usagef("--minutes %g is not between 0 and 1440", g.minutes)
	case g.device < 0:
		return usagef("--device %d is below 0", g.device)
	}
	if err := g.mayWrite(g.file); err != nil {
		return err
	}
	o, err := g.options(ctx)
	if err != nil {
		return err
	}
	// A signal stops the checks and everything they started before the program ends.
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer cancel()
	g.signals(func(os.Signal) { cancel() })

	r, err := acceptance.Run(ctx, o)
	if err := ctx.Err(); err != nil {
		if g.keep != "" {
			g.note("stopped; run the same command again to continue")
		}
		return err
	}
	if errors.Is(err, acceptance.ErrNoGPU) {
		return unsupportedError{fmt.Errorf("%w; gmemtop doctor says more", err)}
	}
	if errors.Is(err, acceptance.ErrNoCheck) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	if err := g.writeTo(g.file, false, r.Write); err != nil {
		return err
	}
	if err := g.write(false, func(w io.Writer) error { return g.summary(w, r) }); err != nil {
		return err
	}
	if r.Failed() > 0 {
		return errFinding
	}
	return nil
}

// options gathers what the checks need.
func (g *gpuReport) options(ctx context.Context) (acceptance.Options, error) {
	program, err := os.Executable()
	if err != nil {
		return acceptance.Options{},
			fmt.Errorf("cannot find gmemtop's own file: %w; start it with its full path", err)
	}
	b := build.This()
	o := acceptance.Options{Program: program, Build: acceptance.Build{Version: b.Version,
		Revision: b.Revision, Modified: b.Modified}, Python: doctor.TrainingPython(ctx, g.python),
		Device: g.device, Environ: g.Environ, Only: g.checks, Tiny: g.tiny, Begin: g.begins, End: g.ends}
	if !g.all {
		o.Limit = time.Duration(math.Round(g.minutes * float64(time.Minute)))
	}
	if g.keep != "" {
		o.Folder, err = filepath.Abs(g.keep)
	}
	return o, err
}

func (g *gpuReport) begins(c acceptance.Check) {
	if g.Redraws(g.Err) && !g.flags.quiet {
		fmt.Fprintf(g.Err, "\r\x1b[K%s ...", c.Name)
	}
}

func (g *gpuReport) ends(r acceptance.Result) {
	if g.flags.quiet {
		return
	}
	if g.Redraws(g.Err) {
		fmt.Fprint(g.Err, "\r\x1b[K")
	}
	fmt.Fprintf(g.Err, "%-24s %s\n", r.Check, r)
}

// summary prints what is in the file and what to do with it.
func (g *gpuReport) summary(w io.Writer, r *acceptance.Report) error {
	if _, err := fmt.Fprintf(w, "This is all that %s holds:\n\n", g.file); err != nil {
		return err
	}
	if err := r.WriteText(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nIt names no person, machine, file or process, and nothing was sent. Read "+
		"it, then attach it to an issue of the project:\n"+
		"it becomes rows of docs/gpu-results.md.\n")
	return err
}
