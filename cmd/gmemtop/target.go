package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
)

// deviceFlags say which GPUs carry plans out, beside the simulator, which always does.
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
		"what carries the plans out beside the simulator, and measures: cuda, cuda:1, cuda:all, "+
			"or\nlive:PID, a training that runs, instead of FILE")
	p.IntVar(&f.iterations, "iterations", 20,
		"how many iterations a GPU or a training is timed for, behind three that are not counted")
	p.StringVar(&f.results, "results", resultsSame,
		"turn a plan in a training off where a tensor returns that is not the same to the bit (same), or "+
			"count it and go on (any)")
	p.StringVar(&f.margin, "device-margin", "",
		"how much of a GPU's free memory is left alone (default 512MiB)")
	p.BoolVar(&f.calibrate, "calibrate", false,
		"measure again what copies, launches and allocations cost on the GPU, though it is known")
}

// allDevices stands for every GPU that there is.
const allDevices = -1

// ordinals reads --target: the numbers of the GPUs, none for the simulator alone.
func (f *deviceFlags) ordinals() ([]int, error) {
	var list []int
	for _, name := range strings.Split(f.target, ",") {
		number, device := strings.CutPrefix(name, "cuda:")
		switch {
		case name == "sim":
		case strings.HasPrefix(name, "live"):
			return nil, usageError{fmt.Errorf("--target %q is none: write live:PID, and no other target "+
				"beside it", f.target)}
		case name == "cuda":
			list = append(list, 0)
		case name == "cuda:all":
			list = append(list, allDevices)
		default:
			n, err := strconv.Atoi(number)
			if !device || err != nil || n < 0 {
				return nil, usageError{fmt.Errorf("--target %q is none: write sim, cuda, cuda:1, cuda:all, "+
					"or several separated by commas", name)}
			}
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// options returns how a GPU is measured.
func (f *deviceFlags) options(ordinal int) (cuda.Options, error) {
	if f.iterations < 1 || f.iterations > 10_000 {
		return cuda.Options{}, usageError{fmt.Errorf("--iterations %d: time between 1 and 10000 of them",
			f.iterations)}
	}
	margin, err := optionalBytes("device-margin", f.margin)
	return cuda.Options{Ordinal: ordinal, Iterations: f.iterations, Margin: margin}, err
}

// devices opens the GPUs that --target names, one after the other, and gives them back. Those that can be
// used come back beside the error of those that cannot.
func (f *deviceFlags) devices(ctx context.Context) ([]*planner.Device, error) {
	ordinals, err := f.ordinals()
	if err != nil {
		return nil, err
	}
	if len(ordinals) > 0 && ordinals[0] == allDevices {
		all, err := cuda.Devices("")
		if err != nil {
			return nil, deviceError(fmt.Errorf("cuda:all: %w", err))
		}
		ordinals = ordinals[:0]
		for _, i := range all {
			ordinals = append(ordinals, i.Ordinal)
		}
	}
	var list []*planner.Device
	var failed error
	for _, n := range ordinals {
		o, err := f.options(n)
		if err != nil {
			return nil, err
		}
		d, err := planner.Open(ctx, o)
		if err != nil {
			failed = errors.Join(failed, deviceError(err))
			continue
		}
		list = append(list, d)
	}
	return list, failed
}

// deviceError gives the error of a GPU that cannot be used its exit code.
func deviceError(err error) error {
	for _, why := range []error{driver.ErrNotBuilt, driver.ErrNoDriver, driver.ErrNoDevice, driver.ErrTooOld,
		driver.ErrBusy} {
		if errors.Is(err, why) {
			return unsupportedError{err}
		}
	}
	return err
}

// stillSimulated reports whether a report is printed in spite of an error: where a GPU cannot be used the
// simulator still answers.
func stillSimulated(err error) bool {
	return !errors.As(err, new(usageError)) && !errors.Is(err, context.Canceled)
}

// unmeasured returns what of a comparison's plans could not be carried out on a GPU for another reason than
// that its memory does not suffice, which is in the report and no failure.
func unmeasured(c *replay.Comparison) error {
	failed, done, first := 0, 0, error(nil)
	for i := range c.Measured {
		r := &c.Measured[i]
		if r.Available {
			done++
		}
		if r.Err != nil && !errors.Is(r.Err, driver.ErrOutOfMemory) {
			failed++
			if first == nil {
				first = r.Err
			}
		}
	}
	switch {
	case failed == 0 && done == 0 && len(c.Measured) > 0:
		return fmt.Errorf("nothing could be measured on %s: its memory does not suffice for any of "+
			"these plans", c.Devices[0].Name())
	case failed == 0:
		return nil
	}
	return fmt.Errorf("%d of %d measurements failed, the first with: %w", failed, len(c.Measured), first)
}
