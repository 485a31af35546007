package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/replay/cuda"
	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/traces/load"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// New returns the screen's planner.
func New() *Planner {
	return &Planner{hardware: sync.OnceValue(screenHardware)}
}

// Planner plans for the screen on the simulator. It leaves one processor to the screen, which stays
// responsive while a dozen managers search.
type Planner struct {
	hardware func() []plan.Hardware // the same in all of a session
	plans    replay.Plans           // for other budgets of the same problem
}

// Managers implements screen.Planner.
func (*Planner) Managers() []screen.Manager {
	on := map[string]bool{}
	for _, m := range managers.Default() {
		on[m.Info().Name] = true
	}
	var list []screen.Manager
	for _, m := range managers.All() {
		list = append(list, screen.Manager{Info: m.Info(), On: on[m.Info().Name]})
	}
	return list
}

// Hardware implements screen.Planner.
func (s *Planner) Hardware() []plan.Hardware { return s.hardware() }

// ownHardware is the screen's name for the hardware that a recording or a training itself names.
const ownHardware = "its own GPU"

// screenHardware lists the recording's own hardware, then what was measured on a GPU of this machine, then
// the presets.
func screenHardware() []plan.Hardware {
	list := hardware.Presets()
	if h, ok := calibratedHere(); ok {
		list = slices.Insert(list, 0, h)
	}
	own := recordedHardware("")
	own.Name, own.Origin = ownHardware,
		"the GPU that the recording or the training names; where it names none, "+own.Name
	return slices.Insert(list, 0, own)
}

// recordedHardware returns what is known of a GPU by its name, or else what was measured on a GPU of this
// machine, or the default.
func recordedHardware(name string) plan.Hardware {
	if h, ok := hardwareOf(name); ok {
		return h
	}
	if h, ok := calibratedHere(); ok {
		return h
	}
	h, err := hardware.ByName(DefaultHardware)
	if err != nil {
		return hardware.Presets()[0]
	}
	return h
}

// Problem implements screen.Planner.
func (*Planner) Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, error) {
	if h.Name == ownHardware {
		h = recordedHardware(d.Info.Name)
	}
	name := load.Name(d.Timeline().Trace.Source.Path)
	return plan.FromDevice(ctx, d, plan.BuildOptions{Iteration: plan.SteadyIteration, Hardware: h,
		Name: name})
}

// Compare implements screen.Planner.
func (s *Planner) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64,
	update func(replay.Progress)) (*replay.Comparison, error) {
	o := screenOptions(replay.Simulated{Charts: true}, budget, update)
	o.Known = s.plans.Known(p)
	c, err := replay.Compare(ctx, p, quickFirst(names), o)
	if c != nil {
		s.plans.Add(p, c.Results)
	}
	return c, err
}

// Targets implements screen.Measurer.
func (*Planner) Targets(context.Context) []screen.Target {
	devices, err := cuda.Devices("")
	if err != nil {
		return []screen.Target{{Name: "cuda:0", Why: err.Error()}}
	}
	var list []screen.Target
	for _, d := range devices {
		list = append(list, screen.Target{Name: fmt.Sprintf("cuda:%d", d.Ordinal), About: About(d)})
	}
	return list
}

// Measure implements screen.Measurer. It first calibrates a device that was never calibrated, and saves the
// result for the next session.
func (*Planner) Measure(ctx context.Context, c *replay.Comparison, target string,
	update func(replay.Progress)) error {
	var ordinal int
	if _, err := fmt.Sscanf(target, "cuda:%d", &ordinal); err != nil {
		return fmt.Errorf("%s is not a GPU", target)
	}
	x, err := open(ctx, cuda.Options{Ordinal: ordinal, Iterations: 20})
	if err != nil {
		return err
	}
	if len(c.Results) > 0 {
		update(replay.Progress{Manager: c.Results[0].Info.Name, Target: target, Doing: "calibrate",
			Total: int64(len(c.Results))})
	}
	if _, _, err := x.Calibrate(ctx, false); err != nil && !errors.As(err, new(*Unkept)) {
		return err
	}
	return c.Measure(ctx, x.Replay(), update)
}

// slow lists the managers that search for many seconds, fastest first. They plan last, so that no quick
// manager waits for a solver.
var slow = []string{"home", "joint", "tvdnn-ilp", "checkmate-lp", "checkmate", "portfolio"}

// quickFirst returns the named managers, the slow ones last.
func quickFirst(names []string) []plan.Manager {
	var list []plan.Manager
	for _, m := range managers.All() {
		if slices.Contains(names, m.Info().Name) {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b plan.Manager) int {
		return cmp.Compare(slices.Index(slow, a.Info().Name), slices.Index(slow, b.Info().Name))
	})
	return list
}

// MaxBatch implements screen.Batcher.
func (*Planner) MaxBatch(ctx context.Context, recorded []screen.Recorded, goal screen.Goal,
	names []string, budget int64, update func(screen.BatchNews)) error {
	var points []batch.Point
	for _, r := range recorded {
		points = append(points, batch.Point{Batch: r.Batch, Sequence: r.Sequence, Problem: r.Problem})
	}
	scale, err := batch.Scaling(points...)
	if err != nil {
		return err
	}
	at := func(n int) (*plan.Problem, error) {
		if goal.Longest {
			return scale.At(goal.At, n)
		}
		return scale.At(n, goal.At)
	}
	for _, m := range quickFirst(names) {
		news := screen.BatchNews{Manager: m.Info().Name, Inferred: scale.Inferred()}
		news.Largest, err = largestBatch(ctx, m, at, replay.Options{Budget: budget, Seed: 1}, func(n int) {
			u := news
			u.Trying = n
			update(u)
		})
		if err != nil {
			return err
		}
		news.Done = true
		update(news)
	}
	return nil
}

// Caching returns what PyTorch's caching allocator takes for an iteration, including memory outside of
// tensors.
func Caching(ctx context.Context, p *plan.Problem) (int64, error) {
	pl, err := pool.Baselines()[0].Plan(ctx, p, plan.Request{})
	if err != nil {
		return 0, err
	}
	m, err := replay.Simulated{}.Run(ctx, p, pl, plan.RunOptions{})
	return m.Footprint + p.Outside, err
}
