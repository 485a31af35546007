package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/hardware"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/managers/pool"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline"
	screen "github.com/gmemtop/gmemtop/tui/managers"
)

// screenPlanner hands the managers to the screen.
func (a *app) screenPlanner() screen.Planner { return &screenPlanner{} }

// screenPlanner plans for the screen on the simulator. One processor is left to the screen itself, so that it stays quick while a dozen managers search.
type screenPlanner struct{}

// Managers implements screen.Planner.
func (*screenPlanner) Managers() []screen.Manager {
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

// Hardware implements screen.Planner: the default first, then the others in their order.
func (*screenPlanner) Hardware() []plan.Hardware {
	list := hardware.Presets()
	first, err := hardware.ByName(defaultHardware)
	if err != nil {
		return list
	}
	i := slices.IndexFunc(list, func(h plan.Hardware) bool { return h.Name == first.Name })
	if i > 0 {
		list = slices.Insert(slices.Delete(slices.Clone(list), i, i+1), 0, first)
	}
	return list
}

// Problem implements screen.Planner.
func (*screenPlanner) Problem(ctx context.Context, d *timeline.Device, h plan.Hardware) (*plan.Problem, int64, error) {
	p, err := plan.FromDevice(ctx, d, plan.BuildOptions{Iteration: -1, Hardware: h, Name: name(d.Timeline().Trace.Source.Path)})
	if err != nil {
		return nil, 0, err
	}
	pl, err := pool.Baselines()[0].Plan(ctx, p, plan.Request{})
	if err != nil {
		return nil, 0, fmt.Errorf("the caching allocator's footprint, which budgets are shares of: %w", err)
	}
	m, err := replay.Simulated{}.Run(ctx, p, pl, plan.RunOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("the caching allocator's footprint, which budgets are shares of: %w", err)
	}
	return p, m.Footprint + p.Outside, nil
}

// Compare implements screen.Planner.
func (*screenPlanner) Compare(ctx context.Context, p *plan.Problem, names []string, budget int64, update func(replay.Progress)) (*replay.Comparison, error) {
	list := quickFirst(names)
	return replay.Compare(ctx, p, list, replay.Options{Eager: managers.Eager,
		Budget: budget, Seed: 1, Targets: []replay.Target{replay.Simulated{Charts: true}}, Parallel: max(runtime.GOMAXPROCS(0)-1, 1), Update: update,
	})
}

// slow are the managers that search for many seconds where the others take a blink, the quickest of them first: their turn comes last, so that nothing
// waits behind a solver.
var slow = []string{"home", "joint", "tvdnn-ilp", "checkmate-lp", "checkmate", "portfolio"}

// quickFirst returns the named managers, those that search for long at the end.
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
func (*screenPlanner) MaxBatch(ctx context.Context, recorded []screen.Recorded, names []string, budget int64, update func(screen.BatchNews)) error {
	var points []batch.Point
	for _, r := range recorded {
		points = append(points, batch.Point{Batch: r.Batch, Problem: r.Problem})
	}
	model, err := batch.Fit(points...)
	if err != nil {
		return err
	}
	for _, m := range quickFirst(names) {
		news := screen.BatchNews{Manager: m.Info().Name, Inferred: model.Inferred()}
		news.Largest, err = largestBatch(ctx, m, model.Scaled, replay.Options{Budget: budget, Seed: 1}, func(n int) {
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
