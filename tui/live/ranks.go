package live

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

// ranksPane is the list of a job's processes, of which the one that is chosen is what the rest of the screen
// is about. Where there is little room it is one line, and the list takes the place of the steps while it has
// the keys.
type ranksPane struct {
	table *table.Table
	order []int // rows as indices of Look.Ranks
	focus bool  // the keys are the list's
	// listed says that it was drawn as a list and not as one line.
	listed bool
	room   int // rows that were drawn
	// odd says for how many looks more a process, by its ID, is shown as one that differs: what is off by
	// just enough would else come and go.
	odd map[int]int
}

// oddLooks is for how many looks a process that does not differ any more is still shown as one that did: two
// seconds or more.
const oddLooks = 20

// Columns of the list of processes.
const (
	rankChosen = iota
	rankName
	rankPID
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
	return ranksPane{odd: map[int]int{}, table: table.New(
		table.Column{Width: 1}, right("rank", 5, 0, true), right("pid", 7, 4, false), table.Column{Title: "script", Width: 12, Max: 24, Drop: 2},
		table.Column{Title: "device", Width: 7, Drop: 3}, right("step", 6, 0, true), right("time", 8, 0, true), right("forward", 8, 1, true),
		right("backward", 8, 1, true), right("optimizer", 9, 6, true), right("", 9, 0, true), right("captured", 8, 5, false),
		table.Column{Title: "unlike the others", Width: 15, Max: 60},
	)}
}

// chooseMsg shows a process: what a click on it sends.
type chooseMsg struct{ id int }

// takeRanks brings the list up to a new look.
func (v *View) takeRanks(before Look) {
	p, l := &v.ranks, &v.look
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
		if d.Peer < len(l.Ranks) && l.Ranks[d.Peer].State != Ended && !v.pair() {
			p.odd[l.Ranks[d.Peer].ID] = oddLooks
		}
	}
	if i := l.Peers.Slow; i >= 0 && i < len(l.Ranks) {
		p.odd[l.Ranks[i].ID] = oddLooks
	}
	keep := l.Chosen
	if row := p.table.Selected(); p.focus && row >= 0 && row < len(p.order) && p.order[row] < len(before.Ranks) {
		keep = before.Ranks[p.order[row]].ID
	}
	p.table.SetRows(len(l.Ranks))
	v.sortRanks()
	if !p.focus && !v.allInSight() { // those at the top are worth a look
		p.table.Select(0)
		return
	}
	v.selectRank(keep)
}

// allInSight reports whether there is room for all processes.
func (v *View) allInSight() bool { return v.ranks.room == 0 || len(v.look.Ranks) <= v.ranks.room }

// selectRank puts the cursor of the list on a process.
func (v *View) selectRank(id int) {
	for row, i := range v.ranks.order {
		if v.look.Ranks[i].ID == id {
			v.ranks.table.Select(row)
		}
	}
}

// pair reports whether there are but two to compare: both are unlike the other then.
func (v *View) pair() bool {
	n := 0
	for i := range v.look.Ranks {
		if v.look.Ranks[i].Typical.Duration >= 0 {
			n++
		}
	}
	return n <= 2
}

// sortRanks orders the rows by the column that was chosen; else the processes stand in their own order, but
// that those that are worth a look come first where not all are in sight.
func (v *View) sortRanks() {
	p, ranks := &v.ranks, v.look.Ranks
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
			return r.Step
		case rankTime:
			return r.Typical.Duration
		case rankForward:
			return r.Typical.Forward
		case rankBackward:
			return r.Typical.Backward
		case rankOptimizer:
			return r.Typical.Optimizer
		case rankBytes:
			return r.Typical.Bytes
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
		all := v.allInSight()
		first = func(i int) int {
			if !all && (p.odd[ranks[i].ID] > 0 || ranks[i].Failed) {
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

// updateRanks handles what is about the list; ok is false for what is not.
func (v *View) updateRanks(msg tea.Msg) (cmd tea.Cmd, ok bool) {
	p := &v.ranks
	if len(v.look.Ranks) == 0 {
		return nil, false
	}
	choose := func(row int) tea.Cmd {
		if row < 0 || row >= len(p.order) {
			return nil
		}
		return v.choose(v.look.Ranks[p.order[row]].ID)
	}
	switch msg := msg.(type) {
	case chooseMsg:
		return v.choose(msg.id), true
	case tea.KeyPressMsg:
		if key.Matches(msg, v.keys.ranks) {
			if p.focus = !p.focus; p.focus {
				v.selectRank(v.look.Chosen)
			}
			return nil, true
		}
		if !p.focus {
			return nil, false
		}
		a := p.table.Update(msg)
		switch a.Kind {
		case table.Opened:
			return choose(a.Row), true
		case table.Sorted:
			v.sortRanks()
		}
		return nil, a.Kind != table.Ignored
	case tea.MouseClickMsg:
		if !p.listed && !p.focus {
			return nil, false
		}
		a := p.table.Update(msg)
		switch a.Kind {
		case table.Ignored:
			return nil, false
		case table.Opened, table.Moved:
			p.focus = true
			return choose(a.Row), true
		case table.Sorted:
			v.sortRanks()
		}
		return nil, true
	case tea.MouseWheelMsg, tea.MouseMotionMsg, tea.MouseReleaseMsg:
		if !p.listed && !p.focus {
			return nil, false
		}
		return nil, p.table.Update(msg).Kind != table.Ignored
	}
	return nil, false
}

// choose asks for another process to be shown.
func (v *View) choose(id int) tea.Cmd {
	if id == v.look.Chosen {
		return nil
	}
	for i := range v.look.Ranks {
		if r := &v.look.Ranks[i]; r.ID == id {
			return v.order(Order{Kind: Choose, Rank: id}, r.Name()+" is shown from now on, in all views")
		}
	}
	return nil
}

// Ranks returns the processes to choose from with what chooses them, nil for a job of one.
func (v *View) Ranks(u timeline.Units) []leaf.Choice {
	var list []leaf.Choice
	for i := range v.look.Ranks {
		r := &v.look.Ranks[i]
		detail := fmt.Sprintf("process %d", r.PID)
		if r.Device != "" {
			detail += " on " + r.Device
		}
		if text, _ := v.unlike(i, u); text != "" {
			detail += ": " + text
		}
		if r.ID == v.look.Chosen {
			detail = "shown now, " + detail
		}
		list = append(list, leaf.Choice{Title: r.Name(), Detail: detail, Msg: chooseMsg{r.ID}})
	}
	return list
}

// unlike says in what a process is unlike the others, or how it ended; bad that this is worth a look.
func (v *View) unlike(i int, u timeline.Units) (text string, bad bool) {
	r := &v.look.Ranks[i]
	if r.State == Ended {
		return strings.TrimSuffix("ended: "+r.Word, ": "), r.Failed
	}
	var parts []string
	for _, a := range r.Alerts {
		if a.Kind == OutOfMemory || a.Kind == Leak {
			parts = append(parts, a.Text(u))
			bad = true
		}
	}
	for _, d := range v.look.Peers.Of(i) {
		parts = append(parts, d.Text(u))
	}
	return strings.Join(parts, ", "), bad
}

// peersSentence says which process the others wait for, or which one is unlike them; "" where none is.
func (v *View) peersSentence(u timeline.Units) string {
	l := &v.look
	if len(l.Ranks) == 0 {
		return ""
	}
	if i := l.Peers.Slow; i >= 0 && i < len(l.Ranks) {
		name, own, others := l.Ranks[i].Name(), timeline.Duration(l.Peers.Own), timeline.Duration(l.Peers.OthersOwn)
		if l.Ranks[i].Typical.Forward < 0 {
			return fmt.Sprintf("%s is the slowest, %s a step, the others %s", name, own, others)
		}
		text := fmt.Sprintf("%s is the slowest, %s in forward and optimizer, the others %s", name, own, others)
		if l.Peers.Waits {
			text += " and longer in backward"
		}
		return text
	}
	if v.pair() {
		return ""
	}
	for _, d := range l.Peers.Differences {
		if d.Figure == runs.PeerBytes && d.Value > d.Others && d.Peer < len(l.Ranks) &&
			l.Ranks[d.Peer].State != Ended {
			return fmt.Sprintf("%s holds %s, the others %s", l.Ranks[d.Peer].Name(), u.Bytes(d.Value), u.Bytes(d.Others))
		}
	}
	return ""
}
