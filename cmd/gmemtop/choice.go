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
		"the memory to fit in: 8GiB, or 50% of the step's peak without a plan (default 90% of what is "+
			"free on the GPU)")
	p.StringVar(&f.Plan, "plan", "",
		"train with the plan in this file, which gmemtop plan --target live:PID wrote")
	p.StringVar(&f.Hardware, "hardware", "",
		"plan with the copy speed of this `GPU`: a name from gmemtop help hardware, or a JSON file")
	p.StringVar(&f.MostOverhead, "most-overhead", "",
		"turn the plan off for good if steps take longer by more than this, such as 10%")
	p.StringVar(&f.Results, "results", planner.SameResults,
		"if any bit of a tensor has changed when it comes back: same turns the plan off, any counts it and "+
			"goes on")
	help.Rare(p, "hardware", "most-overhead", "results")
}

// addUnplanned adds the flag for what to do until there is a plan. A training that already runs does not need
// it.
func (f *choiceFlags) addUnplanned(c *cobra.Command) {
	c.Flags().StringVar(&f.UntilPlanned, "until-planned", planner.UnplannedAuto,
		"where what autograd saves goes until there is a plan: offload moves it to the host, so that even "+
			"a training that does not fit runs; keep leaves it on the device; auto offloads on GPUs only, "+
			"and only as long as needed")
	help.Rare(c.Flags(), "until-planned")
}
