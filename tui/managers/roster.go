package managers

import (
	"strings"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// roster is the managers that there are, in the planner's order, and which of them are on.
type roster []manager

// manager is a manager as the view treats it.
type manager struct {
	Manager
	on     bool
	letter rune // its own in charts and in the table
	series int  // its tone
}

func newRoster(list []Manager) roster {
	var r roster
	for _, m := range list {
		r = append(r, manager{Manager: m, on: m.On, letter: '*'})
	}
	taken := map[rune]bool{}
	n := 0
	// The first have their name's first letter, and tones that are told apart best.
	for _, first := range []func(m *manager) bool{
		func(m *manager) bool { return m.On && m.Info.Ours },
		func(m *manager) bool { return m.On },
		func(*manager) bool { return true },
	} {
		for i := range r {
			if m := &r[i]; first(m) && m.letter == '*' {
				m.letter, m.series = letterFor(m.Info.Name, taken), n
				n++
			}
		}
	}
	return r
}

// letterFor returns a letter of the name that no other manager has, or any other.
func letterFor(name string, taken map[rune]bool) rune {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	for _, r := range strings.ToLower(name) + letters + strings.ToUpper(name+letters) + "123456789" {
		if (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '1' && r <= '9') && !taken[r] {
			taken[r] = true
			return r
		}
	}
	return '*'
}

// toggleAll switches all on, or, where all are, back to those that were on at first.
func (r roster) toggleAll() {
	all := true
	for i := range r {
		all = all && r[i].on
	}
	for i := range r {
		r[i].on = !all || r[i].On
	}
}

// serving names the managers that are on and serve a problem.
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

// label names a manager under an executor.
func (r roster) label(k rowKey) string {
	name := r[k.manager].Info.Name
	if k.executor != plan.Ideal {
		name += " (" + k.executor.String() + ")"
	}
	return name
}
