package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/replay/crew"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// Values of --until-planned.
const (
	UnplannedAuto    = "auto"
	unplannedOffload = "offload"
	unplannedKeep    = "keep"
)

// Wanted is the plan that a training should run with, as flags ask for it. Each field is the value of the
// flag of its name; Task has the budget and the hardware.
type Wanted struct {
	Task
	// Manager makes the plan, or Plan is a file that has it; both are "" for no plan.
	Manager, Plan         string
	MostOverhead, Results string
	// UntilPlanned is "" for a training that already runs.
	UntilPlanned string
}

// Choice returns the chosen plan, nil for none. The error is a mistake, or says why the file cannot be used.
func (w *Wanted) Choice() (*crew.Choice, error) {
	switch {
	case !slices.Contains([]string{"", UnplannedAuto, unplannedOffload, unplannedKeep}, w.UntilPlanned):
		return nil, exit.Mistakef("--until-planned %q is unknown: write auto, offload or keep",
			w.UntilPlanned)
	case w.Manager == "" && w.Plan == "":
		if w.Budget != "" || w.MostOverhead != "" {
			return nil, exit.Mistakef("--budget and --most-overhead are for --manager or --plan: name one")
		}
		return nil, nil
	case w.Manager != "" && w.Plan != "":
		return nil, exit.Mistakef("--manager makes a plan and --plan reads one: choose one of them")
	}
	var most float64
	if w.MostOverhead != "" {
		if n, err := fmt.Sscanf(w.MostOverhead, "%f%%", &most); err != nil || n != 1 || !(most > 0) {
			return nil, exit.Mistakef("--most-overhead %q is not a share: write 10%%", w.MostOverhead)
		}
	}
	c, err := w.planned()
	if err != nil {
		return nil, err
	}
	c.MostOverhead, c.Offload = most/100, w.UntilPlanned == unplannedOffload
	if c.Results, err = resultsOf(w.Results); err != nil {
		return nil, err
	}
	c.Hardware, err = w.liveHardware()
	return c, err
}

// planned returns the choice of the manager's plan, or of the file's.
func (w *Wanted) planned() (*crew.Choice, error) {
	if w.Manager == "" {
		return fromFile(w.Plan)
	}
	m, err := Manager(w.Manager)
	if err != nil {
		return nil, err
	}
	return choiceOf(m, w.fitInto), nil
}

// fitInto returns the budget of a manager's plan, given the room on the device.
func (w *Wanted) fitInto(_ context.Context, p *plan.Problem, room maybe.Int) (int64, error) {
	switch {
	case w.Budget != "" || Pools(w.Manager):
		return w.BudgetFor(p)
	case !room.IsKnown():
		return 0, errors.New("the device's memory is unknown: give the memory that the plan must fit into " +
			"with --budget")
	}
	return int64(float64(room.Or(0)) * crew.RoomShare), nil
}

// Offloads returns the device types whose saved tensors are kept on the host until there is a plan.
func (w *Wanted) Offloads() []string {
	switch {
	case w.UntilPlanned == unplannedOffload:
		return []string{"cuda", "cpu"}
	// a choice of addresses takes nothing off the peak
	case w.UntilPlanned == UnplannedAuto && (w.Manager != "" && !Pools(w.Manager) || w.Plan != ""):
		return []string{"cuda"}
	}
	return nil
}
