package managers

import (
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

type keys struct {
	toggle, all, less, further, budget, batch, inside, compare, write, hardware, target, train, measure,
	again, stop, charts key.Binding
}

func newKeys() keys {
	bind := func(help, desc string, ks ...string) key.Binding {
		return key.NewBinding(key.WithKeys(ks...), key.WithHelp(help, desc))
	}
	return keys{
		toggle: bind("space", "on/off", "space"), all: bind("A", "all on or off", "A"),
		less:    bind("←→", "budget ±1 %", "left", "right", "h", "l"),
		further: bind("+−", "budget ±5 %", "+", "=", "shift+right", "-", "_", "shift+left"),
		budget:  bind("b", "type a budget", "b"), batch: bind("B", "largest batch", "B"),
		inside: bind("enter", "look inside", "enter"), compare: bind("d", "side by side", "d"),
		write: bind("W", "save the plan", "W"), hardware: bind("H", "hardware", "H"),
		target:  bind("C", "carry out on …", "C"),
		train:   bind("T", "train with it", "T"),
		measure: bind("x", "run on …", "x"), again: bind("R", "plan again", "R"),
		stop: bind("esc", "stop planning", "esc"), charts: bind("v", "other chart", "v"),
	}
}

// sign is the direction of a key that moves the budget.
func sign(msg tea.KeyPressMsg) int {
	switch msg.String() {
	case "left", "h", "-", "_", "shift+left":
		return -1
	}
	return 1
}

// Lacks implements leaf.Lacking.
func (v *View) Lacks(msg tea.KeyPressMsg) string {
	r := v.ranking.current()
	switch {
	case key.Matches(msg, v.keys.train) && v.training.watched() == "":
		return howToWatch
	case key.Matches(msg, v.keys.train) && r != nil:
		return v.managers[r.manager].untrainable()
	case key.Matches(msg, v.keys.measure) && v.measuring.target == "":
		return "choose where to run plans first: C"
	}
	return ""
}

// Bindings implements leaf.View.
func (v *View) Bindings(s *leaf.State) []key.Binding {
	if v.inside != nil {
		return append(v.training.bindings(v.keys.train, v.ranking.current()), v.inside.Bindings()...)
	}
	if _, ok := v.question(s); !ok {
		return nil
	}
	k := &v.keys
	list := v.training.bindings(k.train, v.ranking.current())
	list = append(list, k.toggle, k.inside, k.less, k.budget, k.compare)
	if v.search.with != nil {
		largest := k.batch
		if otherThan(s) != nil {
			largest.SetHelp("B", "largest batch, longest sequence")
		}
		list = append(list, largest)
	}
	switch stop := k.stop; {
	case v.planning.active():
		list = append([]key.Binding{stop}, list...)
	case v.training.beginning() != nil:
		stop.SetHelp("esc", "cancel")
		list = append([]key.Binding{stop}, list...)
	case v.measuring.running():
		stop.SetHelp("esc", "stop measuring")
		list = append([]key.Binding{stop}, list...)
	case v.search.running():
		stop.SetHelp("esc", "stop searching")
		list = append([]key.Binding{stop}, list...)
	}
	again := k.again
	if v.planning.stopped {
		again.SetHelp("R", "resume planning")
	}
	if target := v.measuring.target; target != "" {
		measure := k.measure
		measure.SetHelp("x", "run "+replay.Place(target))
		list = append([]key.Binding{measure, again}, list...)
		list = append(list, k.write, k.hardware, k.all)
	} else {
		list = append(list, k.write, k.hardware, k.all, again)
	}
	if v.charts.one {
		list = append(list, k.charts)
	}
	list = append(list, k.further, k.target)
	for _, b := range v.ranking.table.Bindings("") {
		// see onTable
		if v.ranking.table.SortBy >= 0 && b.Help().Desc == "by "+v.ranking.table.Columns[colName].Title {
			b.SetHelp("s", "best first")
		}
		list = append(list, b)
	}
	return list
}
