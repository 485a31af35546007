package main

import (
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
)

// choiceFlags choose the plan that a command trains with.
type choiceFlags struct{ planner.Wanted }

func (f *choiceFlags) add(c *cobra.Command) {
	p := c.Flags()
	p.StringVar(&f.Manager, "manager", "",
		"train with this manager's plan, made from two captured steps")
	p.StringVar(&f.Budget, "budget", "",
		"memory that the plan must fit into: 8GiB, or 50% of what a step holds at its peak today "+
			"(default 90% of what is free on the GPU)")
	p.StringVar(&f.Plan, "plan", "",
		"train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.Hardware, "hardware", "", "the `GPU` whose copy costs the plan assumes")
	p.StringVar(&f.MostOverhead, "most-overhead", "",
		"turn the plan off for good if steps take longer by more than this, such as 10%")
	p.StringVar(&f.Results, "results", planner.SameResults,
		"if a tensor comes back with any bit changed: turn the plan off (same), or count it and go on (any)")
	help.Rare(p, "hardware", "most-overhead", "results")
}

// addUnplanned adds the flag for what to do until there is a plan. A training that already runs does not need
// it.
func (f *choiceFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.UntilPlanned, "until-planned", planner.UnplannedAuto,
		"until there is a plan, move what autograd saves to the host, so that even a training that does "+
			"not fit runs (offload), leave it on the device (keep), or offload on GPUs only, and only "+
			"as long as needed (auto)")
	help.Rare(c.Flags(), "until-planned")
}
