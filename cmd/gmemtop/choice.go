package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// choiceFlags choose the plan that a command trains with.
type choiceFlags struct {
	manager, file, most, results, unplanned string
	plan                                    planFlags
}

func (f *choiceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.manager, "manager", "",
		"train with this manager's plan, made from two captured steps")
	p.StringVar(&f.plan.Budget, "budget", "",
		"memory that the plan must fit into: 8GiB, or 50% of what a step holds at its peak today "+
			"(default 90% of what is free on the GPU)")
	p.StringVar(&f.file, "plan", "",
		"train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.plan.Hardware, "hardware", "", "the `GPU` whose copy costs the plan assumes")
	p.StringVar(&f.most, "most-overhead", "",
		"turn the plan off for good if steps take longer by more than this, such as 10%")
	p.StringVar(&f.results, "results", planner.SameResults,
		"if a tensor comes back with any bit changed: turn the plan off (same), or count it and go on (any)")
	help.Rare(p, "hardware", "most-overhead", "results")
}

// addUnplanned adds the flag for what to do until there is a plan. A training that already runs does not need
// it.
func (f *choiceFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.unplanned, "until-planned", unplannedAuto,
		"until there is a plan, move what autograd saves to the host, so that even a training that does "+
			"not fit runs (offload), leave it on the device (keep), or offload on GPUs only, and only "+
			"as long as needed (auto)")
	help.Rare(c.Flags(), "until-planned")
}

// choice returns the chosen plan, nil for none.
func (f *choiceFlags) choice() (*crew.Choice, error) {
	switch {
	case !slices.Contains([]string{"", unplannedAuto, unplannedOffload, unplannedKeep}, f.unplanned):
		return nil, usagef("--until-planned %q is unknown: write auto, offload or keep",
			f.unplanned)
	case f.manager == "" && f.file == "":
		if f.plan.Budget != "" || f.most != "" {
			return nil, usagef("--budget and --most-overhead are for --manager or --plan: name one")
		}
		return nil, nil
	case f.manager != "" && f.file != "":
		return nil, usagef("--manager makes a plan and --plan reads one: choose one of them")
	}
	var most float64
	if f.most != "" {
		if n, err := fmt.Sscanf(f.most, "%f%%", &most); err != nil || n != 1 || !(most > 0) {
			return nil, usagef("--most-overhead %q is not a share: write 10%%", f.most)
		}
	}
	w, err := f.planned()
	if err != nil {
		return nil, err
	}
	w.MostOverhead, w.Offload = most/100, f.unplanned == unplannedOffload
	if w.Results, err = planner.Results(f.results); err != nil {
		return nil, err
	}
	w.Hardware, err = f.plan.LiveHardware()
	return w, err
}

// planned returns the choice of the manager's plan, or of the file's.
func (f *choiceFlags) planned() (*crew.Choice, error) {
	if f.manager == "" {
		return planner.FromFile(f.file)
	}
	m, err := planner.Manager(f.manager)
	if err != nil {
		return nil, err
	}
	return planner.Choose(m, f.fitInto), nil
}

// fitInto returns the budget of a manager's plan, given the room on the device.
func (f *choiceFlags) fitInto(_ context.Context, p *plan.Problem, room maybe.Int) (int64, error) {
	switch {
	case f.plan.Budget != "" || planner.Pools(f.manager):
		return f.plan.BudgetFor(p)
	case !room.IsKnown():
		return 0, errors.New("the device's memory is unknown: give the memory that the plan must fit into " +
			"with --budget")
	}
	return int64(float64(room.Or(0)) * crew.RoomShare), nil
}

// Values of --until-planned.
const (
	unplannedAuto    = "auto"
	unplannedOffload = "offload"
	unplannedKeep    = "keep"
)

// offloads returns the device types whose saved tensors are kept on the host until there is a plan.
func (f *choiceFlags) offloads() []string {
	switch {
	case f.unplanned == unplannedOffload:
		return []string{"cuda", "cpu"}
	// a choice of addresses takes nothing off the peak
	case f.unplanned == unplannedAuto && (f.manager != "" && !planner.Pools(f.manager) || f.file != ""):
		return []string{"cuda"}
	}
	return nil
}

// trainWith carries a choice out in all processes of a training until ctx is done. It reports progress to all
// viewers and, if aloud is set, on standard error.
func (c *watcher) trainWith(ctx context.Context, all *crew.Crew, x *crew.Choice, aloud bool) {
	var say func(string)
	if aloud {
		say = func(text string) { c.note("%s", text) }
	}
	all.TrainTold(ctx, x, c.flags.report.Units, say)
}
