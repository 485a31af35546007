package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay/cuda"
)

// deviceFlags choose the GPUs that carry plans out, in addition to the simulator.
type deviceFlags struct {
	target     string
	results    string
	margin     string
	iterations int
	calibrate  bool
}

func (f *deviceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.target, "target", "sim",
		"where to carry the plans out and measure, besides the simulator: cuda, cuda:1, cuda:all, "+
			"or live:PID, a running training, instead of FILE")
	p.IntVar(&f.iterations, "iterations", 20,
		"how many iterations to time on a GPU or in a training, after three to warm up")
	p.StringVar(&f.results, "results", planner.SameResults,
		"if a tensor in a training comes back with any bit changed: turn the plan off (same), or count it "+
			"and go on (any)")
	p.StringVar(&f.margin, "device-margin", "",
		"how much of a GPU's free memory to leave unused (default 512MiB)")
	p.BoolVar(&f.calibrate, "calibrate", false,
		"measure the GPU's cost of copies, launches and allocations again")
	help.Rare(p, "iterations", "results", "device-margin", "calibrate")
}

// options returns how to measure on a GPU.
func (f *deviceFlags) options() (cuda.Options, error) {
	if err := f.check(); err != nil {
		return cuda.Options{}, err
	}
	margin, err := planner.Bytes("device-margin", f.margin)
	return cuda.Options{Iterations: f.iterations, Margin: margin}, err
}

func (f *deviceFlags) check() error {
	if f.iterations < 1 || f.iterations > 10_000 {
		return exit.Mistakef("--iterations %d: time between 1 and 10000 of them", f.iterations)
	}
	return nil
}

// live reports whether --target names a running training.
func (f *deviceFlags) live() bool {
	return strings.HasPrefix(f.target, "live") && !strings.Contains(f.target, ",")
}

// devices opens the GPUs that --target names. It returns the usable ones together with the error of the
// others.
func (f *deviceFlags) devices(ctx context.Context) ([]*planner.Device, error) {
	ordinals, err := planner.Ordinals(f.target)
	if err != nil || len(ordinals) == 0 {
		return nil, err
	}
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	list, err := planner.OpenAll(ctx, ordinals, o)
	if planner.Unusable(err) {
		err = exit.AsUnsupported(err)
	}
	return list, err
}

// stillSimulated reports whether to print a report despite an error: if a GPU cannot be used, the simulator
// still answers.
func stillSimulated(err error) bool {
	return exitCode(err) != exitUsage && !errors.Is(err, context.Canceled)
}
