package live

import (
	"cmp"
	"fmt"
	"slices"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// ranksPane is the list of a job's processes; the rest of the screen is about the chosen one. If there is
// little room it is one line, and the list replaces the steps while it has the keys.
type ranksPane struct {
	key   key.Binding // gives it the keys or takes them away
	table *table.Table
	order []int // rows as indices of Look.Ranks
	focus bool  // the list has the keys
	// listed means that it was drawn as a list, not as one line.
	listed bool
	room   int // rows that were drawn
	// odd counts, by process ID, for how many more looks a process is shown as different: otherwise one at
	// the threshold would come and go.
	odd map[int]int
}

// oddLooks is for how many looks a process that no longer differs is still shown as different: two seconds or
// more.
const oddLooks = 20

// Columns of the list of processes.
const (
	rankChosen = iota
	rankName
	rankPID
	rankHost
	rankScript
	rankDevice
	rankStep
	rankTime
	rankForward
	rankBackward
	rankOptimizer
	rankBytes
	rankCaptured
	rankDiffers
)

func newRanksPane() ranksPane {
	right := func(title string, width, drop int, sortable bool) table.Column {
		return table.Column{Title: title, Width: width, Right: true, Drop: drop, Sortable: sortable}
	}
	tab := key.NewBinding(key.WithKeys("tab"), key.WithHelp("tab", "ranks"))
	return ranksPane{key: tab, odd: map[int]int{}, table: table.New(
		table.Column{Width: 1}, right("rank", 5, 0, true), right("pid", 7, 4, false),
		table.Column{Title: "node", Width: 8, Max: 24, Drop: 2}, table.Column{Title: "script", Width: 12,
			Max: 24, Drop: 2},
		table.Column{Title: "device", Width: 7, Drop: 3},
		right("step", 6, 0, true), right("time", 8, 0, true), right("forward", 8, 1, true),
		right("backward", 8, 1, true), right("optimizer", 9, 6, true), right("", 9, 0, true),
		right("captured", 8, 5, false), table.Column{Title: "unlike the others", Width: 15, Max: 60},
	)}
}

// chooseMsg shows a process; clicking it sends this.
type chooseMsg struct{ id int }

// take updates the list to a new look.
func (p *ranksPane) take(l, before *Look) {
	if len(l.Ranks) == 0 {
		p.focus = false
		p.table.SetRows(0)
		return
	}
	for id := range p.odd {
		if p.odd[id]--; p.odd[id] <= 0 {
			delete(p.odd, id)
		}
	}
	for _, d := range l.Peers.Differences {
		if d.Peer < len(l.Ranks) && l.Ranks[d.Peer].State != Ended && !l.pair() {
			p.odd[l.Ranks[d.Peer].ID] = oddLooks
		}
	}
	if i := l.Peers.Slow; i >= 0 && i < len(l.Ranks) {
		p.odd[l.Ranks[i].ID] = oddLooks
	}
	keep := l.Chosen
	if row := p.table.Selected(); p.focus && row >= 0 && row < len(p.order) {
		if i := p.order[row]; i < len(before.Ranks) {
			keep = before.Ranks[i].ID
		}
	}
	p.table.SetRows(len(l.Ranks))
	p.sort(l)
	if !p.focus && !p.allInSight(l) { // those at the top are worth a look
		p.table.Select(0)
		return
	}
	p.selectRank(l, keep)
}

// allInSight reports whether there is room for all processes.
func (p *ranksPane) allInSight(l *Look) bool { return p.room == 0 || len(l.Ranks) <= p.room }

// selectRank puts the list's cursor on a process.
func (p *ranksPane) selectRank(l *Look, id int) {
	for row, i := range p.order {
		if l.Ranks[i].ID == id {
			p.table.Select(row)
		}
	}
}

// sort orders the rows by the chosen column; without one the processes keep their own order, except that if
// they do not all fit, those worth a look come first.
func (p *ranksPane) sort(l *Look) {
	ranks := l.Ranks
	if len(p.order) != len(ranks) {
		p.order = p.order[:0]
		for i := range ranks {
			p.order = append(p.order, i)
		}
	}
	value := func(i int) int64 {
		r := &ranks[i]
		switch p.table.SortBy {
		case rankStep:
			return r.Step.Or(-1)
		case rankTime:
			return r.Typical.Duration.Or(-1)
		case rankForward:
			return r.Typical.Forward.Or(-1)
		case rankBackward:
			return r.Typical.Backward.Or(-1)
		case rankOptimizer:
			return r.Typical.Optimizer.Or(-1)
		case rankBytes:
			return r.Typical.Bytes.Or(-1)
		}
		return int64(i)
	}
	var first func(i int) int
	switch {
	case p.table.SortBy >= 0:
		first = func(int) int { return 0 }
	case p.focus: // rows do not move under the cursor
		return
	default:
		all := p.allInSight(l)
		first = func(i int) int {
			if !all && (p.odd[ranks[i].ID] > 0 || ranks[i].Failed || ranks[i].Silent != "") {
				return 0
			}
			return 1
		}
	}
	slices.SortStableFunc(p.order, func(a, b int) int {
		if c := cmp.Compare(first(a), first(b)); c != 0 {
			return c
		}
		x, y := value(a), value(b)
		if p.table.SortBy >= 0 && p.table.Descending {
			x, y = y, x
		}
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
	})
}

// update handles a key or the mouse; ok is false if the message is not for the list. If it chose a process,
// chosen is true and id is that process.
func (p *ranksPane) update(l *Look, msg tea.Msg) (id int, chosen, ok bool) {
	if len(l.Ranks) == 0 {
		return 0, false, false
	}
	choose := func(row int) (id int, chosen, ok bool) {
		if row < 0 || row >= len(p.order) {
			return 0, false, true
		}
		return l.Ranks[p.order[row]].ID, true, true
	}
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if key.Matches(msg, p.key) {
			if p.focus = !p.focus; p.focus {
				p.selectRank(l, l.Chosen)
			}
			return 0, false, true
		}
		if !p.focus {
			return 0, false, false
		}
		a := p.table.Update(msg)
		switch a.Kind {
		case table.Opened:
			return choose(a.Row)
		case table.Sorted:
			p.sort(l)
		}
		return 0, false, a.Kind != table.Ignored
	case tea.MouseClickMsg:
		if !p.listed && !p.focus {
			return 0, false, false
		}
		a := p.table.Update(msg)
		switch a.Kind {
		case table.Ignored:
			return 0, false, false
		case table.Opened, table.Moved:
			p.focus = true
			return choose(a.Row)
		case table.Sorted:
			p.sort(l)
		}
		return 0, false, true
	case tea.MouseWheelMsg, tea.MouseMotionMsg, tea.MouseReleaseMsg:
		if !p.listed && !p.focus {
			return 0, false, false
		}
		return 0, false, p.table.Update(msg).Kind != table.Ignored
	}
	return 0, false, false
}

// Ranks returns the processes to choose from, nil for a job of one.
func (v *View) Ranks(u timeline.Units) []leaf.Choice {
	var list []leaf.Choice
	for i := range v.look.Ranks {
		r := &v.look.Ranks[i]
		detail := fmt.Sprintf("process %d", r.PID)
		if r.Device != "" {
			detail += " on " + r.Device
		}
		if text, _ := v.look.unlike(i, u); text != "" {
			detail += ": " + text
		}
		if r.ID == v.look.Chosen {
			detail = "shown now, " + detail
		}
		list = append(list, leaf.Choice{Title: r.Name(), Detail: detail, Msg: chooseMsg{r.ID}})
	}
	return list
}
