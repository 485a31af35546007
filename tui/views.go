package tui

import (
	"github.com/gmemtop/gmemtop/tui/allocations"
	"github.com/gmemtop/gmemtop/tui/diff"
	"github.com/gmemtop/gmemtop/tui/iterations"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/live"
	"github.com/gmemtop/gmemtop/tui/machine"
	"github.com/gmemtop/gmemtop/tui/managers"
	"github.com/gmemtop/gmemtop/tui/oom"
	"github.com/gmemtop/gmemtop/tui/overview"
	"github.com/gmemtop/gmemtop/tui/peak"
	"github.com/gmemtop/gmemtop/tui/ranks"
	"github.com/gmemtop/gmemtop/tui/segments"
	"github.com/gmemtop/gmemtop/tui/timelineview"
	"github.com/gmemtop/gmemtop/tui/tracepage"
)

// newViews makes the views in the order of the tab bar; those of the machine and of a running job come first.
func newViews(p managers.Planner, all *machine.View, job *live.View) []leaf.View {
	views := []leaf.View{
		overview.New(), timelineview.New(), peak.New(), segments.New(), iterations.New(), allocations.New(), ranks.New(), oom.New(),
		diff.New(), tracepage.New(), managers.New(p),
	}
	if job != nil {
		views = append([]leaf.View{job}, views...)
	}
	if all != nil {
		views = append([]leaf.View{all}, views...)
	}
	return views
}
