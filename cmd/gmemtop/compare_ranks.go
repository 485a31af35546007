package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/input"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces/load"
)

// described returns the iteration to plan. For a folder that is the fullest rank's iteration, and ranks has
// all ranks. With a problem it may also return what was wrong with the rest of the input.
func (c *compareCommand) described(ctx context.Context) (ranks *planner.Ranks, p *plan.Problem, readErr,
	err error) {
	if c.plan.Network != "" || !input.AnyFolder(c.paths) {
		p, readErr, err = c.problem(ctx, c.paths)
		return nil, p, readErr, err
	}
	switch {
	case c.maxBatch:
		err = errors.New("--max-batch is for one rank: name its file instead of the folder")
	case c.devices.target != "sim":
		err = errors.New("a folder of ranks is planned for on the simulator: name the file of one rank to " +
			"measure its plans on a GPU")
	}
	if err != nil {
		return nil, nil, nil, usageError{err}
	}
	if ranks, readErr, err = c.ranks(ctx, c.paths[0]); err != nil {
		return nil, nil, nil, err
	}
	fullest := ranks.Lead()
	p = fullest.Problem
	if n := ranks.Len(); n > 1 {
		c.note("planning for %d ranks; %s holds most", n, fullest.Name)
	}
	return ranks, p, readErr, nil
}

// ranks returns the iterations of all ranks whose traces are in a folder, and what was wrong with any of
// them.
func (c *compareCommand) ranks(ctx context.Context, dir string) (_ *planner.Ranks, readErr, err error) {
	if err := c.plan.Check(); err != nil {
		return nil, nil, err
	}
	bar := c.newProgress()
	found, err := load.OpenRun(ctx, []string{dir}, c.loadOptions(bar.Tell))
	bar.Done()
	if err != nil {
		return nil, nil, err
	}
	var list []planner.RankProblem
	for _, f := range found {
		t, err := c.build(ctx, f.Trace, nil)
		if err != nil {
			return nil, nil, err
		}
		name := load.Name(f.Path)
		if rank, ok := f.Rank.Value(); ok {
			name = fmt.Sprintf("rank %d", rank)
		}
		p, err := c.ofTimeline(ctx, t, name, f.Err)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
		}
		list = append(list, planner.RankProblem{Name: name, Problem: p})
		readErr = cmp.Or(readErr, f.Err)
	}
	return planner.NewRanks(list, c.plan.Seed, c.plan.Work), readErr, nil
}
