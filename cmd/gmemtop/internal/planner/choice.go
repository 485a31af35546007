package planner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/replay/live"
	"github.com/gmemtop/gmemtop/replay/sim"
	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Manager returns the manager of that name.
func Manager(name string) (plan.Manager, error) {
	list, err := managers.Select(name)
	if err != nil {
		return nil, &Mistake{err}
	}
	if len(list) != 1 {
		return nil, mistake("--manager %s names %d managers: name one", name, len(list))
	}
	return list[0], nil
}

// Pools reports whether this names a manager that only chooses addresses.
func Pools(name string) bool {
	m, err := Manager(name)
	return err == nil && m.Info().Family == plan.Pooling
}

// Apart separates managers that only choose addresses from a list, if they were named: a training does not
// carry them out unless asked.
func Apart(list []plan.Manager, names string) (pooling, others []plan.Manager) {
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

// SameResults is the default of --results.
const SameResults = "same"

// Results reads --results.
func Results(word string) (live.Results, error) {
	switch word {
	case SameResults:
		return live.Same, nil
	case "any":
		return live.Any, nil
	}
	return 0, mistake("--results %q is unknown: write same, or any to allow ops that add in no fixed "+
		"order", word)
}

// choose returns the choice of a manager's plan for a budget in bytes.
func choose(manager string, h live.Hardware, budget int64) (*crew.Choice, error) {
	m, err := Manager(manager)
	if err != nil {
		return nil, err
	}
	c := Choose(m, func(context.Context, *plan.Problem, maybe.Int) (int64, error) { return budget, nil })
	c.Hardware = h
	return c, nil
}

// Replan makes a manager's plan for a problem on the task's terms.
func (t *Task) Replan(ctx context.Context, p *plan.Problem, manager string) (*plan.Plan, error) {
	m, err := Manager(manager)
	if err != nil {
		return nil, err
	}
	x := Choose(m, func(_ context.Context, p *plan.Problem, _ maybe.Int) (int64, error) {
		return t.BudgetFor(p)
	})
	x.Hardware = live.Hardware{Hardware: p.Hardware}
	made, err := x.Plan(ctx, p, maybe.Int{}, 0)
	return made.Plan, err
}

// A BudgetFunc returns the budget of a plan given the room on the device.
type BudgetFunc func(ctx context.Context, p *plan.Problem, room maybe.Int) (int64, error)

// Choose returns the choice of a manager's plan.
func Choose(m plan.Manager, budget BudgetFunc) *crew.Choice {
	c := terms(m.Info().Name)
	c.Pools = m.Info().Family == plan.Pooling
	c.Budget = budget
	c.Make = func(ctx context.Context, p *plan.Problem, budget int64) (*plan.Plan, error) {
		return m.Plan(ctx, p, plan.Request{Budget: budget, Seed: 1, Evaluator: sim.Simulator{}})
	}
	return c
}

// maxPlan limits the size of a plan's file: some hundred bytes for each of a million buffers.
const maxPlan = 1 << 30

// FromFile returns the choice of the plan in a file. Without the training, it can check only the file's
// header.
func FromFile(path string) (*crew.Choice, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err != nil {
		return nil, err
	}
	head, err := plan.ReadHead(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := terms(load.Name(path))
	c.Pools = head.Addresses
	c.Make = func(_ context.Context, p *plan.Problem, _ int64) (*plan.Plan, error) {
		pl, err := plan.ReadJSON(bytes.NewReader(text), p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return pl, nil
	}
	return c, nil
}

// terms returns a named choice that does not yet know how to make its plan.
func terms(name string) *crew.Choice {
	return &crew.Choice{Name: name, Eager: managers.Eager, Caching: Caching}
}
