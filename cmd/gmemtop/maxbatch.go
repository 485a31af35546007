package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/managers/batch"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
)

// maxBatches finds, for every manager of a comparison, the largest batch whose plan fits in the budget.
func (a *app) maxBatches(ctx context.Context, c *replay.Comparison, list []plan.Manager, paths []string, f *planFlags, opt replay.Options) error {
	scaled, inferred, err := a.scaling(ctx, c.Problem, paths, f)
	if err != nil {
		return err
	}
	bar := a.newProgress()
	defer bar.done()
	opt.Update, opt.Parallel = nil, 1
	for i, m := range list {
		bar.tell("largest batch with "+m.Info().Name, int64(i), int64(len(list)))
		at := -1
		for k := range c.Results {
			if r := &c.Results[k]; r.Available && r.Info.Name == m.Info().Name && r.Executor == plan.Ideal {
				at = k
			}
		}
		if at < 0 {
			continue
		}
		largest, err := batch.MaxBatch(ctx, scaled, func(p *plan.Problem) (bool, error) {
			one, err := replay.Compare(ctx, p, []plan.Manager{m}, opt)
			if errors.Is(err, replay.ErrTooSmall) {
				return false, nil
			}
			return err == nil && one.Results[0].Available && one.Results[0].Fits, err
		})
		if err != nil {
			return err
		}
		c.Results[at].MaxBatch, c.Results[at].MaxBatchInferred = largest, inferred
	}
	return nil
}

// scaling returns what makes the problem at any batch size: the network's layers, or a model fitted to one or two recordings.
func (a *app) scaling(ctx context.Context, p *plan.Problem, paths []string, f *planFlags) (scaled func(int) (*plan.Problem, error), inferred bool, err error) {
	if f.network != "" {
		return f.made, false, nil
	}
	if len(f.batch) != len(paths) {
		return nil, false, usageError{fmt.Errorf("--max-batch needs the batch size of each of the %d recordings: --batch 32 for one, --batch 32,64 for two", len(paths))}
	}
	points := []batch.Point{{Batch: f.batch[0], Problem: p}}
	if len(paths) == 2 {
		second, readErr, err := a.recorded(ctx, paths[1], f)
		if err := firstError(err, readErr); err != nil {
			return nil, false, err
		}
		points = append(points, batch.Point{Batch: f.batch[1], Problem: second})
	}
	model, err := batch.Fit(points...)
	if err != nil {
		return nil, false, err
	}
	return model.Scaled, model.Inferred(), nil
}
