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

// recordedSteps is how many steps of the allocator a plan is made of: what is alive across a step's end shows in the next but one.
const recordedSteps = 3

// pools reports whether this is the name of a manager that only chooses addresses.
func pools(name string) bool {
	list, err := managers.Select(name)
	return err == nil && len(list) == 1 && list[0].Info().Family == plan.Pooling
}

// apart takes the managers that only choose addresses out of a list, where they were named: they are not carried out unasked.
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

// target returns the training as a target of plans that choose addresses, or of those that move and drop what is saved.
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
	before := t.session.Snapshot()
	from, how := int64(-1), capture.HowEvents
	if n := len(before.Steps); n > 0 {
		from = before.Steps[n-1].Index
	}
	if strings.HasPrefix(before.Target.Device, "cuda") {
		library, how = "", capture.HowHistory
	}
	if !slices.Contains(before.Target.Capabilities, capture.HowEvents) {
		return nil, errors.New("the agent in the process is of an older gmemtop, which knows no pool: restart the job, or detach the viewer that put it there")
	}
	t.session.Notice(capture.Notice{Key: how}) // what was said before is not about this
	if err := t.control.DescribeEvents(ctx, recordedSteps, library); err != nil {
		return nil, err
	}
	var found *traces.Trace
	err := t.until(ctx, func(v *capture.View) (bool, error) {
		for _, w := range v.Windows {
			if w.First > from && w.How == how && !w.Partial && w.Last-w.First >= recordedSteps-1 {
				found = w.Trace
			}
		}
		for _, n := range v.Notices {
			if n.Key == how {
				return false, fmt.Errorf("its allocator cannot be recorded: %s", n.Text)
			}
		}
		return found != nil, nil
	})
	return found, err
}

// DescribeEvents implements capture.Carrier.
func (l *lateControl) DescribeEvents(ctx context.Context, n int, library string) error {
	return l.carrier(func(c capture.Carrier) error { return c.DescribeEvents(ctx, n, library) })
}
