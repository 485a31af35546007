package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/replay/acceptance"
)

// GPUReport says which checks of a GPU's report run, and where.
type GPUReport struct {
	File    string   // for the report
	Python  string   // to train with, "" for one that has torch
	Minutes float64  // for all checks, unless All
	Checks  []string // only these, nil for as many as fit
	All     bool
	Keep    string // the folder for recordings and logs, "" for none
	Device  int    // by CUDA's number
	Tiny    bool   // tiny networks only
}

// Check returns an error if the values cannot be used.
func (g *GPUReport) Check() error {
	switch {
	case g.File == "" || g.File == "-":
		return exit.Mistakef("--gpu-report needs the name of a file: the summary goes to standard output")
	case !(g.Minutes > 0 && g.Minutes <= 24*60): // NaN is neither
		return exit.Mistakef("--minutes %g is not between 0 and 1440", g.Minutes)
	case g.Device < 0:
		return exit.Mistakef("--device %d is below 0", g.Device)
	}
	return nil
}

// Options returns what the checks need, to run with environ.
func (g *GPUReport) Options(ctx context.Context, environ []string) (acceptance.Options, error) {
	program, err := os.Executable()
	if err != nil {
		return acceptance.Options{},
			fmt.Errorf("cannot find gmemtop's own file: %w; start it with its full path", err)
	}
	b := build.This()
	o := acceptance.Options{Program: program, Build: acceptance.Build{Version: b.Version,
		Revision: b.Revision, Modified: b.Modified}, Python: trainingPython(ctx, g.Python),
		Device: g.Device, Environ: environ, Only: g.Checks, Tiny: g.Tiny}
	if !g.All {
		o.Limit = time.Duration(math.Round(g.Minutes * float64(time.Minute)))
	}
	if g.Keep != "" {
		o.Folder, err = filepath.Abs(g.Keep)
	}
	return o, err
}

// Run runs the checks. The error is a mistake if a check is unknown, and unsupported if there is no GPU.
func (g *GPUReport) Run(ctx context.Context, o acceptance.Options) (*acceptance.Report, error) {
	r, err := acceptance.Run(ctx, o)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, acceptance.ErrNoGPU):
		return nil, exit.AsUnsupported(fmt.Errorf("%w; gmemtop doctor says more", err))
	case errors.Is(err, acceptance.ErrNoCheck):
		return nil, exit.AsMistake(err)
	}
	return r, err
}

// WriteChecks lists the checks that there are.
func WriteChecks(w io.Writer) error {
	for _, c := range acceptance.Checks() {
		if _, err := fmt.Fprintf(w, "%-24s %s\n", c.Name, c.About); err != nil {
			return err
		}
	}
	return nil
}

// WriteSummary prints what is in the report's file and what to do with it.
func WriteSummary(w io.Writer, file string, r *acceptance.Report) error {
	if _, err := fmt.Fprintf(w, "This is all that %s holds:\n\n", file); err != nil {
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
