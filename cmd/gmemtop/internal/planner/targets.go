package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/replay/cuda/driver"
	"github.com/gmemtop/gmemtop/replay/live"
)

// Measuring says where the plans of a comparison are carried out, besides the simulator, and how they are
// measured there, as flags give it.
type Measuring struct {
	// Target is the value of --target, Results that of --results, and Margin that of --device-margin.
	Target, Results, Margin string
	// Iterations is how many iterations are timed.
	Iterations int
	// Calibrate says that a GPU's costs are measured again.
	Calibrate bool
}

// Live reports whether the target is a running training.
func (m *Measuring) Live() bool {
	return strings.HasPrefix(m.Target, "live") && !strings.Contains(m.Target, ",")
}

func (m *Measuring) check() error {
	if m.Iterations < 1 || m.Iterations > 10_000 {
		return exit.Mistakef("--iterations %d: time between 1 and 10000 of them", m.Iterations)
	}
	return nil
}

// LiveOptions returns how to measure in a running training. The error is a mistake.
func (m *Measuring) LiveOptions() (o live.Options, err error) {
	if err := m.check(); err != nil {
		return o, err
	}
	o.Steps = m.Iterations
	o.Results, err = resultsOf(m.Results)
	return o, err
}

// Devices opens the GPUs that the target names. It returns the usable ones together with the error of the
// others.
func (m *Measuring) Devices(ctx context.Context) ([]*Device, error) {
	list, err := gpusOf(m.Target)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	margin, err := Bytes("device-margin", m.Margin)
	if err != nil {
		return nil, err
	}
	devices, err := openAll(ctx, list, cuda.Options{Iterations: m.Iterations, Margin: margin})
	if unusable(err) {
		err = exit.AsUnsupported(err)
	}
	return devices, err
}

// allDevices stands for every GPU of this machine.
const allDevices = -1

// gpusOf parses the targets to measure a comparison on and returns the numbers of the GPUs among them, none
// for the simulator alone.
func gpusOf(targets string) ([]int, error) {
	var list []int
	for _, name := range strings.Split(targets, ",") {
		number, device := strings.CutPrefix(name, "cuda:")
		switch {
		case name == "sim":
		case strings.HasPrefix(name, "live"):
			return nil, exit.Mistakef("--target %q: write live:PID, and no other target beside it", targets)
		case name == "cuda":
			list = append(list, 0)
		case name == "cuda:all":
			list = append(list, allDevices)
		default:
			n, err := strconv.Atoi(number)
			if !device || err != nil || n < 0 {
				return nil, exit.Mistakef("--target %q is unknown: write sim, cuda, cuda:1, cuda:all, or "+
					"several separated by commas", name)
			}
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}

// LivePID returns the process that the target names.
func LivePID(target string) (int, error) {
	number, ok := strings.CutPrefix(target, live.Name+":")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil || pid <= 0 {
		return 0, exit.Mistakef("--target %q names no process: write live:PID, with the number of one "+
			"that trains",
			target)
	}
	return pid, nil
}

// openAll opens GPUs one after another. It returns the usable ones, together with the error of the others.
// The given ordinals replace the one in o.
func openAll(ctx context.Context, ordinals []int, o cuda.Options) ([]*Device, error) {
	if len(ordinals) > 0 && ordinals[0] == allDevices {
		all, err := cuda.Devices("")
		if err != nil {
			return nil, fmt.Errorf("cuda:all: %w", err)
		}
		ordinals = nil
		for _, i := range all {
			ordinals = append(ordinals, i.Ordinal)
		}
	}
	var list []*Device
	var failed error
	for _, n := range ordinals {
		o.Ordinal = n
		d, err := open(ctx, o)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		list = append(list, d)
	}
	return list, failed
}

// unusable reports whether an error says that this machine has no such GPU, or none that can be used.
func unusable(err error) bool {
	return slices.ContainsFunc([]error{driver.ErrNotBuilt, driver.ErrNoDriver, driver.ErrNoDevice,
		driver.ErrTooOld, driver.ErrBusy}, func(why error) bool { return errors.Is(err, why) })
}

// Unmeasured returns an error for plans of a comparison that could not be carried out on a GPU, except for
// lack of memory, which the report shows and is not a failure.
func Unmeasured(c *replay.Comparison) error {
	failed, done, tried, first := 0, 0, 0, error(nil)
	for i := range c.Measured {
		r := &c.Measured[i]
		if r.Available {
			done++
		}
		if r.Available || r.Err != nil {
			tried++
		}
		if r.Err != nil && !errors.Is(r.Err, driver.ErrOutOfMemory) {
			failed++
			if first == nil {
				first = r.Err
			}
		}
	}
	switch {
	case failed == 0 && done == 0 && tried > 0:
		return fmt.Errorf("nothing could be measured on %s: it has too little memory for any of these "+
			"plans", c.Devices[0].Name())
	case failed == 0:
		return nil
	}
	return fmt.Errorf("%d of %d measurements failed, the first with: %w", failed, tried, first)
}
