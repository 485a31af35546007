package managers

import (
	"github.com/gmemtop/gmemtop/managers/plan"
)

// roster is the available managers, in the planner's order, and which of them are on.
type roster []manager

// manager is a manager as the view treats it.
type manager struct {
	Manager
	on     bool
	series int // its tone
}

func newRoster(list []Manager) roster {
	var r roster
	for _, m := range list {
		r = append(r, manager{Manager: m, on: m.On, series: -1})
	}
	n := 0
	// The first get the most distinct colours.
	for _, first := range []func(m *manager) bool{
		func(m *manager) bool { return m.On && m.Info.Ours },
		func(m *manager) bool { return m.On },
		func(*manager) bool { return true },
	} {
		for i := range r {
			if m := &r[i]; first(m) && m.series < 0 {
				m.series = n
				n++
			}
		}
	}
	return r
}

// toggleAll switches all on or, if all are on, back to those that are on by default.
func (r roster) toggleAll() {
	all := true
	for i := range r {
		all = all && r[i].on
	}
	for i := range r {
		r[i].on = !all || r[i].On
	}
}

// serving names the managers that are on and can plan a problem.
func (r roster) serving(p *plan.Problem) []string {
	var names []string
	for i := range r {
		if m := &r[i]; m.on && p.Serve(m.Info) == nil {
			names = append(names, m.Info.Name)
		}
	}
	return names
}

// baseline is the manager that the others are measured against: the first baseline that is on, -1 for none.
func (r roster) baseline() int {
	for i := range r {
		if m := &r[i]; m.on && m.Info.Family == plan.Baseline {
			return i
		}
	}
	return -1
}
