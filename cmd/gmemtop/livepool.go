package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/pytorch/pool"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/traces"
)

var _ live.PoolTrainer = (*trainer)(nil)

// recordedSteps is how many steps of the allocator a plan is made of: what is alive across a step's end shows
// in the next but one.
const recordedSteps = 3

// pools reports whether this is the name of a manager that only chooses addresses.
func pools(name string) bool {
	list, err := managers.Select(name)
	return err == nil && len(list) == 1 && list[0].Info().Family == plan.Pooling
}

// apart takes the managers that only choose addresses out of a list, where they were named: they are not
// carried out unasked.
func apart(list []plan.Manager, names string) (pooling, others []plan.Manager) {
	if names == "" || names == "all" {
		return nil, list
	}
	for _, m := range list {
		if m.Info().Family == plan.Pooling {
			pooling = append(pooling, m)
		} else {
			others = append(others, m)
		}
	}
	return pooling, others
}

// target returns the training as a target of plans that choose addresses, or of those that move and drop what
// is saved.
func (t *trainer) target(ctx context.Context, pooled bool, o live.Options) (*live.Target, error) {
	if !pooled {
		return live.NewTarget(t, o), nil
	}
	library, err := pool.Build(ctx)
	if err != nil {
		return nil, err
	}
	return live.NewPoolTarget(t, library, o), nil
}

// DescribeEvents implements live.PoolTrainer. The memory of a GPU is recorded by torch itself.
func (t *trainer) DescribeEvents(ctx context.Context, library string) (*traces.Trace, error) {
	v := t.session.Snapshot()
	if !slices.Contains(v.Target.Capabilities, capture.HowEvents) {
		return nil, errors.New("the agent in the process is of an older gmemtop, which knows no pool: restart the job, or detach the viewer that put it there")
	}
	o := capture.Order{Do: capture.Describe, Steps: recordedSteps, How: capture.HowEvents, Library: library}
	if strings.HasPrefix(v.Target.Device, "cuda") {
		o.How, o.Library = capture.HowHistory, ""
	}
	w, err := t.describe(ctx, o)
	if refused := (*orderError)(nil); errors.As(err, &refused) {
		return nil, fmt.Errorf("its allocator cannot be recorded: %s", refused.Text)
	}
	if err != nil {
		return nil, err
	}
	return w.Trace, nil
}
