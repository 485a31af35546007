package managers

import (
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/managers/plan/plantest"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// What tests outside of the package look at.

// Budget returns the budget in force.
func (v *View) Budget() int64 { return v.budget.bytes }

// Headline returns the sentence.
func (v *View) Headline(s *leaf.State) string { return v.headline(s) }

// Chosen returns the name of the selected manager.
func (v *View) Chosen() string {
	if v.ranking.chosen.manager < 0 {
		return ""
	}
	return v.managers[v.ranking.chosen.manager].Info.Name
}

// Order returns the names in the table's order.
func (v *View) Order() []string {
	var names []string
	for _, r := range v.ranking.rows {
		names = append(names, v.managers[r.manager].Info.Name)
	}
	return names
}

// Running reports whether planning is under way.
func (v *View) Running() bool { return v.planning.active() }

// Moving reports whether the budget has not rested yet.
func (v *View) Moving() bool { return v.budget.moving }

// Inside reports whether a plan is being looked into.
func (v *View) Inside() bool { return v.inside != nil }

// Slider returns where the slider was drawn last.
func (v *View) Slider() canvas.Rect { return v.budget.slider }

// Spot returns where a manager's letter was drawn last in the trade-off.
func (v *View) Spot(name string) (x, y int, ok bool) {
	for _, p := range v.charts.spots {
		if v.managers[p.of.manager].Info.Name == name {
			return p.x, p.y, true
		}
	}
	return 0, 0, false
}

// ParseBudget is parseBudget.
var ParseBudget = parseBudget

// Kept is how many questions' answers are kept.
const Kept = kept

// Answers returns how many questions' answers there are.
func (v *View) Answers() int { return len(v.planning.answers) }

// Measuring reports whether a device is at work.
func (v *View) Measuring() bool { return v.measuring.running() }

// Settled is the message that the budget has rested.
func Settled(v *View) tea.Msg { return settledMsg{&v.budget, v.budget.number} }

// Live returns the line about the training at its longest.
func (v *View) Live(s *leaf.State) string {
	q, _ := v.question(s)
	return v.training.text(s.Units, q)
}

// FirstBudget is the budget that opens where a step holds some bytes at its peak and a floor of them cannot
// leave the device.
func FirstBudget(held, floor int64) int64 {
	return (&setup{p: plantest.Chain(4, 1<<20, 1e6), held: held, floor: floor}).firstBudget(false)
}
