package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
)

// deviceFlags choose the GPUs or the training that carry plans out, in addition to the simulator.
type deviceFlags struct{ planner.Measuring }

func (f *deviceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.Target, "target", "sim",
		"where to carry the plans out and measure, besides the simulator: cuda, cuda:1, cuda:all, "+
			"or live:PID, a running training, instead of FILE")
	p.IntVar(&f.Iterations, "iterations", 20,
		"how many iterations to time on a GPU or in a training, after three to warm up")
	p.StringVar(&f.Results, "results", planner.SameResults,
		"if a tensor in a training comes back with any bit changed: turn the plan off (same), or count it "+
			"and go on (any)")
	p.StringVar(&f.Margin, "device-margin", "",
		"how much of a GPU's free memory to leave unused (default 512MiB)")
	p.BoolVar(&f.Calibrate, "calibrate", false,
		"measure the GPU's cost of copies, launches and allocations again")
	help.Rare(p, "iterations", "results", "device-margin", "calibrate")
}

// stillSimulated reports whether to print a report despite an error: if a GPU cannot be used, the simulator
// still answers.
func stillSimulated(err error) bool {
	return exitCode(err) != exitUsage && !errors.Is(err, context.Canceled)
}
