package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/runs"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// running shows the ranks of a training that runs: a strip of all of them, and a list with those worth a look
// first.
type running struct {
	table *table.Table
	strip strip
	group *runs.Group
	order []int        // rows of the table as indices of the group's ranks
	moved bool         // the user has chosen a row: rows stay where they are
	marks map[int]bool // the ranks to capture, by ID
	keys  runningKeys
}

type runningKeys struct{ mark, capture, colour, rows key.Binding }

// Columns of the list.
const (
	runMark = iota
	runRank
	runHost
	runPlace
	runStep
	runBytes
	runBytesOff
	runAlone
	runAloneOff
	runOut
	runLost
	runCaptured
	runWhy
)

func newRunning() running {
	right := func(title string, width, drop int, sortable bool) table.Column {
		return table.Column{Title: title, Width: width, Right: true, Drop: drop, Sortable: sortable}
	}
	bind := func(k, desc string) key.Binding {
		return key.NewBinding(key.WithKeys(k), key.WithHelp(k, desc))
	}
	return running{marks: map[int]bool{}, table: table.New(
		table.Column{Width: 1}, right("rank", 6, 0, true),
		table.Column{Title: "node", Width: 8, Max: 20, Drop: 2},
		table.Column{Title: "place", Width: 9, Max: 24, Drop: 7},
		right("step", 7, 8, true), right("memory", 10, 0, true), right("vs median", 10, 1, true),
		right("alone", 8, 5, true), right("vs median", 9, 6, true), right("full in", 9, 4, true),
		right("lost", 5, 3, true), right("captured", 8, 9, false),
		table.Column{Title: "why", Width: 24, Max: 90},
	), keys: runningKeys{
		mark: bind("space", "choose"), capture: bind("r", "capture a step"),
		colour: bind("K", "colour: time"), rows: bind("tab", "group by"),
	}}
}

// take takes over a newer group.
func (v *running) take(g *runs.Group) {
	if g == v.group {
		return
	}
	old, chosen := v.group, v.chosen()
	id := -1
	if chosen >= 0 {
		id = old.Ranks[chosen].ID
	}
	v.group = g
	v.table.SetRows(len(g.Ranks))
	switch {
	case v.table.SortBy >= 0:
		v.sort()
	case v.moved && old != nil && len(old.Ranks) == len(g.Ranks): // rows do not move under the cursor
	default:
		v.order = g.Order()
	}
	if !v.moved {
		v.table.Select(0)
		return
	}
	v.choose(id)
}

// chosen returns the rank in the selected row, -1 for none.
func (v *running) chosen() int {
	row := v.table.Selected()
	if v.group == nil || row < 0 || row >= len(v.order) {
		return -1
	}
	return v.order[row]
}

// choose selects a rank by its ID.
func (v *running) choose(id int) {
	for row, i := range v.order {
		if v.group.Ranks[i].ID == id {
			v.table.Select(row)
			return
		}
	}
}

// sort orders the rows by the column that the table marks.
func (v *running) sort() {
	g := v.group
	value := func(i int) int64 {
		m, c := &g.Ranks[i], &g.Classes[g.Class[i]]
		switch v.table.SortBy {
		case runStep:
			return m.Step.Or(-1)
		case runBytes:
			return m.Usual.Bytes.Or(-1)
		case runBytesOff:
			return m.Usual.Bytes.Minus(c.Bytes).Or(-1 << 62)
		case runAlone:
			return m.Usual.Alone().Or(-1)
		case runAloneOff:
			return m.Usual.Alone().Minus(c.Alone).Or(-1 << 62)
		case runOut:
			return left(m).Or(1 << 62)
		case runLost:
			return m.Lost
		}
		return int64(i)
	}
	v.order = g.Order()
	slices.SortStableFunc(v.order, func(a, b int) int {
		if v.table.Descending {
			a, b = b, a
		}
		return cmp.Compare(value(a), value(b))
	})
}

// update handles a message.
func (v *running) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		over := v.group != nil && v.group.Over
		switch {
		case key.Matches(msg, v.keys.mark) && !over:
			v.mark()
			return nil
		case key.Matches(msg, v.keys.capture) && !over:
			return v.capture()
		case key.Matches(msg, v.keys.colour):
			v.strip.nextFigure()
			return nil
		case key.Matches(msg, v.keys.rows):
			v.strip.nextRows(v.group)
			return nil
		}
	case tea.MouseClickMsg:
		if i, ok := v.strip.at(msg.X, msg.Y); ok && msg.Button == tea.MouseLeft {
			v.moved = true
			v.choose(v.group.Ranks[i].ID)
			return nil
		}
	}
	switch act := v.table.Update(msg); act.Kind {
	case table.Moved:
		v.moved = true
	case table.Sorted:
		i := v.chosen()
		v.sort()
		if i >= 0 {
			v.choose(v.group.Ranks[i].ID)
		}
	case table.Opened:
		if i := v.chosen(); i >= 0 {
			return leaf.Send(leaf.ShowRankMsg{ID: v.group.Ranks[i].ID})
		}
	}
	return nil
}

// mark toggles the chosen rank's mark for a capture, and moves to the next row.
func (v *running) mark() {
	i := v.chosen()
	if i < 0 {
		return
	}
	id := v.group.Ranks[i].ID
	if v.marks[id] {
		delete(v.marks, id)
	} else {
		v.marks[id] = true
	}
	v.moved = true
	v.table.Select(min(v.table.Selected()+1, len(v.order)-1))
}

// toCapture returns the ranks to capture: those that are marked, or else the chosen one and a typical one.
func (v *running) toCapture() (ids []int, names []string) {
	g := v.group
	add := func(i int) {
		ids, names = append(ids, g.Ranks[i].ID), append(names, g.Ranks[i].Name())
	}
	for i := range g.Ranks {
		if v.marks[g.Ranks[i].ID] {
			add(i)
		}
	}
	if i := v.chosen(); len(ids) == 0 && i >= 0 {
		if k := g.Typical(i); k >= 0 {
			add(k)
		}
		add(i)
	}
	return ids, names
}

// capture captures the same step of some ranks.
func (v *running) capture() tea.Cmd {
	ids, _ := v.toCapture()
	if len(ids) == 0 {
		return nil
	}
	return leaf.Send(leaf.CaptureRanksMsg{IDs: ids})
}

// bindings are the keys that do something now.
func (v *running) bindings() []key.Binding {
	if v.group == nil {
		return nil
	}
	list := v.table.Bindings("show it")
	colour := v.keys.colour
	colour.SetHelp("K", "colour: "+v.strip.otherFigure())
	own := []key.Binding{colour}
	if !v.group.Over {
		own = []key.Binding{v.keys.capture, v.keys.mark, colour}
	}
	if len(rowChoices(v.group)) > 1 {
		own = append(own, v.keys.rows)
	}
	return slices.Concat(list[:min(2, len(list))], own, list[min(2, len(list)):])
}

// status describes the chosen rank.
func (v *running) status(u timeline.Units) string {
	i := v.chosen()
	if i < 0 {
		return ""
	}
	if n := len(v.marks); n > 0 {
		_, names := v.toCapture()
		text := "r captures the same step of " + strings.Join(names[:min(len(names), 6)], ", ")
		if len(names) > 6 {
			text += fmt.Sprintf(" and %d more", len(names)-6)
		}
		return text
	}
	m := &v.group.Ranks[i]
	text := fmt.Sprintf("%s, process %d", m.Name(), m.PID)
	if m.Host != "" {
		text += " of " + m.Host
	}
	for _, a := range m.Axes {
		text += fmt.Sprintf(", %s %d of %d", a.Name, a.At, a.Of)
	}
	if b, ok := m.Usual.Bytes.Value(); ok {
		text += ", " + u.Bytes(b)
		if room, ok := m.Room.Value(); ok {
			text += " of " + u.Bytes(room)
		}
	}
	if k := v.group.Typical(i); k >= 0 && !v.group.Over {
		text += fmt.Sprintf(" · r captures a step of it and of %s, which is typical",
			v.group.Ranks[k].Name())
	}
	return text
}
