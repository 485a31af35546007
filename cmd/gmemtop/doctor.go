package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/doctor"
	"github.com/gmemtop/gmemtop/replay/acceptance"
	"github.com/spf13/cobra"
)

func newDoctorCommand(a *app) *cobra.Command {
	g := &gpuReport{app: a}
	c := &cobra.Command{
		Use: "doctor", GroupID: groupMachine, Args: cobra.NoArgs,
		Short: "What works on this machine, and how to fix the rest",
		Long: `What works on this machine, and how to fix the rest.

--gpu-report also runs gmemtop and trains small networks on your GPU for up to nine minutes, and compares
what it measures with what gmemtop claims. The report has no names, paths or process numbers; gmemtop shows
what is in it and sends nothing. It does not need root, and leaves other programs' memory alone.`,
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
			text := d.WriteText
			if a.flags.quiet {
				text = d.WriteMissing
			}
			return a.answer(d, text)
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
	doctor.GPUReport
}

func (g *gpuReport) addFlags(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&g.File, "gpu-report", "",
		"run checks on the GPU and write a redacted report to this file; nothing is sent")
	p.StringVar(&g.Python, "python", "",
		"the Python with torch for --gpu-report (default python3, if it has torch)")
	p.Float64Var(&g.Minutes, "minutes", 9, "how long the checks may take")
	p.StringSliceVar(&g.Checks, "checks", nil, "run these `checks` only; \"list\" lists them")
	p.BoolVar(&g.All, "all", false, "run every check, however long that takes")
	p.StringVar(&g.Keep, "keep", "", "keep recordings and logs in this folder, and resume from it")
	p.IntVar(&g.Device, "device", 0, "the GPU to check, by CUDA's number")
	p.BoolVar(&g.Tiny, "tiny", false, "train tiny networks only")
	g.flags.overwriting(c)
}

func (g *gpuReport) run(ctx context.Context) error {
	if slices.Equal(g.Checks, []string{"list"}) {
		return g.write(doctor.WriteChecks)
	}
	if err := g.Check(); err != nil {
		return err
	}
	if err := g.mayWrite(g.File); err != nil {
		return err
	}
	o, err := g.Options(ctx, g.Environ)
	if err != nil {
		return err
	}
	bar := g.newProgress()
	o.Begin = func(c acceptance.Check) { bar.Say(c.Name + " ...") }
	o.End = func(r acceptance.Result) {
		bar.Done()
		if !g.flags.quiet {
			fmt.Fprintf(g.Err, "%-24s %s\n", r.Check, r)
		}
	}
	// A signal stops the checks and everything they started before the program ends.
	ctx, release := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer release()
	ctx, stop := g.UntilSignal(ctx)
	defer stop()

	r, err := g.Run(ctx, o)
	if ctx.Err() != nil && g.Keep != "" {
		g.note("stopped; run the same command again to continue")
	}
	if err != nil {
		return err
	}
	if err := g.writeTo(g.File, r.Write); err != nil {
		return err
	}
	summary := func(w io.Writer) error { return doctor.WriteSummary(w, g.File, r) }
	if err := g.write(summary); err != nil {
		return err
	}
	if r.Failed() > 0 {
		return errFinding
	}
	return nil
}
