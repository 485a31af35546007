// Package fit estimates how much memory a training takes on a GPU that need not be present, and whether it
// fits.
package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gmemtop/gmemtop/capture/pytorch/estimate"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/allocator"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces"
)

// Training is a command that trains, and the device that it should fit.
type Training struct {
	// Options say how to run the command; the fields below determine its device.
	Options estimate.Options
	// Argv is the command. Sizes are substituted for its placeholders.
	Argv     []string
	Hardware plan.Hardware
	// Budget is the memory that it must fit in, and Outside the part of it that no tensor accounts for.
	Budget, Outside int64
	// Notes go into the report.
	Notes []string
	// Real runs PyTorch's own allocator; nil emulates it.
	Real *Real
	// Keep makes estimates by PyTorch's own allocator keep what files are made from: Estimate.Recording and
	// Process.Snapshot. That takes two more steps.
	Keep bool
	// Trying, unless nil, is called before the command runs at a size that the search for the largest batch
	// chose, and done after it.
	Trying func(size string) (done func())
}

// trying says that the command runs at a size that the search chose.
func (t *Training) trying(size Size) (done func()) {
	if t.Trying == nil {
		return func() {}
	}
	return t.Trying(size.String() + ", to find the largest batch")
}

// Estimate is what a training takes at one size.
type Estimate struct {
	Size
	Result *estimate.Result
	Device *timeline.Device
	// Peak is the most that is allocated, at PeakAt, in step PeakStep: counted from 1, 0 before the first and
	// after the last. A block that the allocator does not split counts whole.
	Peak     int64
	PeakAt   timeline.Moment
	PeakStep int
	// Reserved is what PyTorch's caching allocator would reserve; Fits reports whether that fits.
	Reserved int64
	Fits     bool
	// StepTime is the time of the last step, in nanoseconds.
	StepTime int64
	// Process is what PyTorch's own allocator reported in the process that used the most memory; nil if it
	// was emulated.
	Process   *estimate.Process
	Processes int
	// Why says in a sentence why memory ran out and what was found to help, "" if that was not examined: see
	// Report.Explain.
	Why string
}

// Recording returns the content of a file for other commands: steps op by op if there are some, otherwise the
// allocator's history, with a note that says what that is good for.
func (x *Estimate) Recording() (t *traces.Trace, note string) {
	p := x.Process
	switch {
	case p == nil:
		return x.Result.Trace, ""
	case p.Described != nil:
		return p.Described, ""
	}
	why := p.Undescribed
	if p.Died {
		why = "it ran out of memory"
	}
	return p.Trace, fmt.Sprintf("no step was described op by op (%s): the file holds the allocator's "+
		"history, which serves only managers that choose addresses", cmp.Or(why, "the script ended before"))
}

// unseen reports whether a script that trains ended before its first step, so that the memory of a step is
// unknown.
func (x *Estimate) unseen() bool { return x.Fits && x.Result.Steps == 0 && !x.Result.Whole }

// At runs the command at a size.
func (t *Training) At(ctx context.Context, size Size) (*Estimate, error) {
	if t.Real != nil {
		return t.realAt(ctx, size)
	}
	hw := t.Hardware
	o := t.Options
	o.Argv = size.command(t.Argv)
	o.Device = device(&hw, t.Budget)
	r, err := estimate.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return t.estimate(ctx, size, r)
}

// estimate sums up what the command allocated at a size.
func (t *Training) estimate(ctx context.Context, size Size, r *estimate.Result) (*Estimate, error) {
	tl, err := timeline.Build(ctx, r.Trace, nil)
	if err != nil {
		return nil, err
	}
	x := &Estimate{Size: size, Result: r, Device: tl.Main()}
	if x.Device == nil {
		return nil, fmt.Errorf("%w: the script allocated nothing", estimate.ErrUnsupported)
	}
	settings, err := t.settings(r)
	if err != nil {
		return nil, err
	}
	if err := t.reserve(ctx, x, settings); err != nil {
		return nil, err
	}
	at := x.Device.Time(x.PeakAt)
	for i, m := range r.Trace.Marks {
		if at >= m.Start && at <= m.End && x.PeakStep == 0 {
			x.PeakStep = i + 1
		}
		x.StepTime = m.End - m.Start
	}
	return x, nil
}

// settings returns the caching allocator's settings that the command's torch reads from its environment. If
// there are any, it adds a note.
func (t *Training) settings(r *estimate.Result) (allocator.Settings, error) {
	torch, err := allocator.ParseVersion(r.Torch)
	if err != nil {
		return allocator.Settings{}, err
	}
	env := t.Options.Env
	if env == nil {
		env = os.Environ()
	}
	name, conf := allocator.EnvironmentConf(torch, func(name string) (value string, set bool) {
		for _, e := range env { // the last one counts
			if v, found := strings.CutPrefix(e, name+"="); found {
				value, set = v, true
			}
		}
		return value, set
	})
	settings, err := allocator.ParseSettingsOf(torch, conf)
	if err != nil {
		return allocator.Settings{}, fmt.Errorf("%s: %w", name, err)
	}
	if conf != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("the allocator is emulated with %s, as %s says", conf, name))
	}
	return settings, nil
}

// reserve emulates the caching allocator over the whole script, first without a limit on what it may reserve.
// If that does not fit, it emulates it again with the budget as the limit: the allocator then returns its
// cache to the driver before it runs out.
func (t *Training) reserve(ctx context.Context, x *Estimate, settings allocator.Settings) error {
	all, err := emulate(ctx, x, settings, 1<<50)
	if err != nil {
		return err
	}
	x.Peak, x.PeakAt, x.Reserved = all.allocated, all.at, all.reserved
	x.Fits = x.Reserved+t.Outside <= t.Budget
	if !x.Fits && t.Budget > t.Outside {
		limited, err := emulate(ctx, x, settings, t.Budget-t.Outside)
		if err != nil {
			return err
		}
		x.Fits = limited.met
	}
	return nil
}

// emulated is the result of emulating the caching allocator.
type emulated struct {
	allocated int64           // the most, at the moment at
	at        timeline.Moment // the first such
	reserved  int64           // the most
	met       bool            // all requests were met
}

// emulate runs a script's allocations through PyTorch's caching allocator on a driver with `capacity` bytes,
// up to the first request that it cannot meet.
func emulate(ctx context.Context, x *Estimate, settings allocator.Settings, capacity int64) (
	seen emulated, err error) {
	d, emptied, n := x.Device, x.Result.Emptied, int64(0) // n counts allocations
	driver := allocator.NewDriver(capacity)
	alloc, err := allocator.NewCaching(allocator.Config{Driver: driver, Settings: settings})
	if err != nil {
		return seen, err
	}
	blocks := map[uint64]allocator.Block{}
	for m := range timeline.Moment(d.Len()) {
		if m%4096 == 0 && ctx.Err() != nil {
			return seen, ctx.Err()
		}
		ev := d.Event(m)
		switch {
		case ev.Action == traces.Alloc:
			for ; len(emptied) > 0 && emptied[0] <= n; emptied = emptied[1:] {
				if err := alloc.EmptyCache(); err != nil {
					return seen, err
				}
			}
			n++
			b, err := alloc.Malloc(ev.Size, 0)
			if errors.Is(err, allocator.ErrOutOfMemory) {
				return seen, nil
			}
			if err != nil {
				return seen, err
			}
			blocks[ev.Addr] = b
			if now := alloc.Stats().Allocated; now > seen.allocated {
				seen.allocated, seen.at = now, m
			}
			seen.reserved = driver.Peak()
		case ev.Action.IsFreeCompletion():
			if err := alloc.Free(blocks[ev.Addr]); err != nil {
				return seen, err
			}
			delete(blocks, ev.Addr)
		}
	}
	seen.met = true
	return seen, nil
}

// LargestBatch is the largest batch that fits, 0 if none does.
type LargestBatch struct {
	Batch int
	// Inferred means that it was computed from one batch and the growth of each category.
	Inferred bool
	// Over is the smallest batch that was run and does not fit, 0 if none.
	Over int
}

// Largest finds the largest batch that fits. Two runs make a model of how sizes grow, the model predicts the
// limit, and runs near it confirm or correct it. A command without {batch} runs once, and planner.Scaled
// scales the categories that grow.
func (t *Training) Largest(ctx context.Context, all []*Estimate) (*LargestBatch, error) {
	if t.Real != nil {
		return t.largestReal(ctx, all)
	}
	one := all[0]
	p, err := t.problem(ctx, one)
	if err != nil {
		return nil, err
	}
	points := []batch.Point{{Batch: one.Batch, Problem: p}}
	canRun := strings.Contains(strings.Join(t.Argv, " "), batchPlace)
	if canRun {
		other := (*Estimate)(nil)
		if len(all) > 1 {
			other = all[len(all)-1]
		} else if other, err = t.tryAt(ctx, Size{2 * one.Batch, one.Sequence}); err != nil {
			return nil, err
		}
		q, err := t.problem(ctx, other)
		if err != nil {
			return nil, err
		}
		if other.Batch != one.Batch {
			points = append(points, batch.Point{Batch: other.Batch, Problem: q})
		}
	}
	model, err := batch.Fit(points...)
	if err != nil {
		return nil, err
	}
	n, err := batch.MaxBatch(ctx, model.Scaled, t.fits(ctx))
	if err != nil || !canRun {
		return &LargestBatch{Batch: n, Inferred: model.Inferred()}, err
	}
	n, err = confirm(n, func(n int) (bool, error) {
		x, err := t.tryAt(ctx, Size{n, one.Sequence})
		if err != nil {
			return false, err
		}
		return x.Fits, nil
	})
	if err != nil {
		return nil, err
	}
	return &LargestBatch{Batch: n}, nil
}

// tryAt is At for a size that the search chose.
func (t *Training) tryAt(ctx context.Context, size Size) (*Estimate, error) {
	defer t.trying(size)()
	return t.At(ctx, size)
}

// mostRuns limits the runs that confirm a model's answer.
const mostRuns = 8

// confirm returns the largest batch that was run and fits, near the model's answer, 0 for none.
func confirm(n int, run func(batch int) (fits bool, err error)) (int, error) {
	best := 0
	for tries := 0; n > 0 && tries < mostRuns; tries++ {
		fits, err := run(n)
		switch {
		case err != nil:
			return 0, err
		case fits:
			best = n
			n++
		case best > 0:
			return best, nil
		default:
			n -= max(1, n/64)
		}
	}
	return best, nil
}

// problem makes the planning problem of the steady step.
func (t *Training) problem(ctx context.Context, x *Estimate) (*plan.Problem, error) {
	p, err := plan.FromDevice(ctx, x.Device, plan.BuildOptions{Iteration: plan.SteadyIteration,
		Hardware: t.Hardware,
		Name:     "the script"})
	if err != nil {
		return nil, err
	}
	p.Outside = t.Outside
	return p, nil
}

// fits asks the emulated caching allocator about a problem.
func (t *Training) fits(ctx context.Context) func(p *plan.Problem) (bool, error) {
	return func(p *plan.Problem) (bool, error) {
		all, err := planner.Caching(ctx, p)
		return err == nil && all-p.Outside+t.Outside <= t.Budget, err
	}
}
