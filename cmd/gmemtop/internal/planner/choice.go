package planner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay"
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
		return nil, exit.AsMistake(err)
	}
	if len(list) != 1 {
		return nil, exit.Mistakef("--manager %s names %d managers: name one", name, len(list))
	}
	return list[0], nil
}

// Pools reports whether this names a manager that only chooses addresses.
func Pools(name string) bool {
	m, err := Manager(name)
	return err == nil && m.Info().Family == plan.Pooling
}

// Managers returns the named managers. With a GPU among the targets, the default includes those that only a
// GPU can carry out.
func Managers(names, targets string) ([]plan.Manager, error) {
	ordinals, err := gpusOf(targets)
	if err != nil {
		return nil, err
	}
	words := strings.Split(names, ",")
	var there []plan.Manager
	if len(ordinals) > 0 {
		for _, m := range managers.OnDevices() {
			k := slices.Index(words, m.Info().Name)
			if k >= 0 || names == "" || names == "all" {
				there = append(there, m)
			}
			if k >= 0 {
				words = slices.Delete(words, k, k+1)
			}
		}
	}
	if len(words) == 0 {
		return there, nil
	}
	list, err := managers.Select(strings.Join(words, ","))
	if err != nil {
		return nil, exit.AsMistake(err)
	}
	return append(list, there...), nil
}

// Round is managers whose plans for a running training solve the same problem.
type Round struct {
	Managers []plan.Manager
	// Pooled means that they only choose addresses. Their problem is what the allocator was asked for, and
	// they are compared with what PyTorch's allocator does without a plan.
	Pooled bool
}

// Rounds returns the rounds of a comparison in a running training. Managers that only choose addresses take
// part only if they are named.
func Rounds(names string) ([]Round, error) {
	list, err := managers.Select(names)
	if err != nil {
		return nil, exit.AsMistake(err)
	}
	if names == "" || names == "all" {
		return []Round{{Managers: list}}, nil
	}
	pools := func(m plan.Manager) bool { return m.Info().Family == plan.Pooling }
	pooling, err := managers.Select("caching,expandable")
	if err != nil {
		return nil, err
	}
	without := len(pooling)
	for _, m := range list {
		if pools(m) {
			pooling = append(pooling, m)
		}
	}
	var rounds []Round
	if others := slices.DeleteFunc(list, pools); len(others) > 0 {
		rounds = append(rounds, Round{Managers: others})
	}
	if len(pooling) > without {
		rounds = append(rounds, Round{Managers: pooling, Pooled: true})
	}
	return rounds, nil
}

// liveOptions returns the options for comparing on a running training, the target, which has described p.
func (t *Task) liveOptions(p *plan.Problem, w *crew.Crew, target *crew.Target,
	pooled bool) (replay.Options, error) {
	opt, err := t.Options(p)
	if err != nil {
		return opt, err
	}
	about := w.Lead.History.Snapshot().Info.Command()
	if n := target.Ranks(); n > 1 {
		about += fmt.Sprintf(", %d ranks", n)
	}
	if !pooled {
		opt.Eager = managers.Eager
	}
	opt.Devices = []replay.Device{{Target: target, About: about, Eager: !pooled, Pools: pooled}}
	return opt, nil
}

// SameResults is the default of --results.
const SameResults = "same"

// resultsOf reads --results.
func resultsOf(word string) (live.Results, error) {
	switch word {
	case SameResults:
		return live.Same, nil
	case "any":
		return live.Any, nil
	}
	return 0, exit.Mistakef("--results %q is unknown: write same, or any to allow ops that add in no fixed "+
		"order", word)
}

// choose returns the choice of a manager's plan for a budget in bytes.
func choose(manager string, h live.Hardware, budget int64) (*crew.Choice, error) {
	m, err := Manager(manager)
	if err != nil {
		return nil, err
	}
	c := choiceOf(m, func(context.Context, *plan.Problem, maybe.Int) (int64, error) { return budget, nil })
	c.Hardware = h
	return c, nil
}

// replan makes a manager's plan for a problem on the task's terms, for spare bytes less than its budget.
func (t *Task) replan(ctx context.Context, p *plan.Problem, manager string, spare int64) (*plan.Plan, error) {
	m, err := Manager(manager)
	if err != nil {
		return nil, err
	}
	x := choiceOf(m, func(_ context.Context, p *plan.Problem, _ maybe.Int) (int64, error) {
		return t.net(p)
	})
	x.Hardware = live.Hardware{Hardware: p.Hardware}
	made, err := x.Plan(ctx, p, maybe.Int{}, spare)
	return made.Plan, err
}

// A budgetFunc returns the budget of a plan given the room on the device.
type budgetFunc func(ctx context.Context, p *plan.Problem, room maybe.Int) (int64, error)

// choiceOf returns the choice of a manager's plan.
func choiceOf(m plan.Manager, budget budgetFunc) *crew.Choice {
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

// fromFile returns the choice of the plan in a file. Without the training, it can check only the file's
// header.
func fromFile(path string) (*crew.Choice, error) {
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
