package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
)

// choiceFlags say with what plan a command is to train.
type choiceFlags struct {
	manager, file, most, results, unplanned string
	plan                                    planFlags
}

func (f *choiceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.manager, "manager", "",
		"train with this manager's plan, made once two steps have been described")
	p.StringVar(&f.plan.Budget, "budget", "",
		"what the plan is to fit into: 8GiB, or 50% of what a step holds at its peak today (default "+
			"nine tenths of what is free on the GPU)")
	p.StringVar(&f.file, "plan", "",
		"train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.plan.Hardware, "hardware", "", "what the plan takes copies to cost")
	p.StringVar(&f.most, "most-overhead", "",
		"turn the plan off for good where steps take longer by more than this: 10%")
	p.StringVar(&f.results, "results", planner.SameResults,
		"turn the plan off where a tensor returns that is not the same to the bit (same), or count it and "+
			"go on (any)")
}

// addUnplanned adds what is done until there is a plan: a training that runs already can do without.
func (f *choiceFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.unplanned, "until-planned", unplannedAuto,
		"until there is a plan, have what autograd saves wait on the host, so that what does not fit runs "+
			"as well (offload), leave it on the device (keep), or the first on GPUs alone and only as "+
			"long as "+
			"it has to be (auto)")
}

// choice returns what was chosen, nil for nothing.
func (f *choiceFlags) choice() (*crew.Choice, error) {
	switch {
	case !slices.Contains([]string{"", unplannedAuto, unplannedOffload, unplannedKeep}, f.unplanned):
		return nil, usageError{fmt.Errorf("--until-planned %q is unknown: write auto, offload or keep",
			f.unplanned)}
	case f.manager == "" && f.file == "":
		if f.plan.Budget != "" || f.most != "" {
			return nil, usageError{errors.New("--budget and --most-overhead are for --manager or --plan: " +
				"name one")}
		}
		return nil, nil
	case f.manager != "" && f.file != "":
		return nil, usageError{errors.New("--manager makes a plan and --plan brings one: name one of them")}
	}
	var most float64
	if f.most != "" {
		if n, err := fmt.Sscanf(f.most, "%f%%", &most); err != nil || n != 1 || !(most > 0) {
			return nil, usageError{fmt.Errorf("--most-overhead %q is not a share: write 10%%", f.most)}
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

// fitInto returns what the plan of a manager is to fit into, of so much room, 0 where that is not known.
func (f *choiceFlags) fitInto(_ context.Context, p *plan.Problem, room int64) (int64, error) {
	switch {
	case f.plan.Budget != "" || planner.Pools(f.manager):
		return f.plan.BudgetFor(p)
	case room == 0:
		return 0, errors.New("what there is of the device's memory is not known: say with --budget what " +
			"the plan is to fit into")
	}
	return int64(float64(room) * crew.RoomShare), nil
}

// What --until-planned says.
const (
	unplannedAuto    = "auto"
	unplannedOffload = "offload"
	unplannedKeep    = "keep"
)

// offloads returns the types of devices whose saved tensors wait on the host until there is a plan.
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

// trainWith has a choice carried out in all processes of a training until ctx is done. All viewers are told
// how it goes; with aloud set, so is standard error.
func (c *watcher) trainWith(ctx context.Context, all *crew.Crew, x *crew.Choice, aloud bool) {
	var say func(string)
	if aloud {
		say = func(text string) { c.note("%s", text) }
	}
	all.TrainTold(ctx, x, c.flags.report.Units, say)
}
