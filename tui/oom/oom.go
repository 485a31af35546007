// Package oom is the view of the out-of-memory autopsy: why it failed, who held the memory, what would help;
// and, of a recording that did not run out, what would bring its peak down.
package oom

import (
	"context"
	"fmt"
	"slices"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/timeline/report"
	"github.com/gmemtop/gmemtop/tui/icicle"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// asked is what an autopsy is asked for: its sentences have sizes in the units in force.
type asked struct {
	device *timeline.Device
	units  timeline.Units
}

// answer is an autopsy, and which of its holders are logits.
type answer struct {
	*autopsy.Result
	logits []bool
}

func answerOf(ctx context.Context, d *timeline.Device, u timeline.Units) (*answer, error) {
	a, err := autopsy.Of(ctx, d, u)
	if err != nil {
		return nil, err
	}
	x := &answer{Result: a, logits: make([]bool, len(a.Holders))}
	if of := autopsy.Logits(d, a.At); of != nil {
		for i := range a.Holders {
			x.logits[i] = of(a.Holders[i].Largest)
		}
	}
	return x, nil
}

// view shows the autopsy. It implements leaf.View.
type view struct {
	autopsy leaf.Query[asked, *answer]
	trial   leaf.Query[asked, *report.OOMDevice] // what the levers were shown to do
	at      trialMsg                             // how far the trial is
	front   bool
	levers  leverList
	holders *table.Table
	logits  []bool           // which holders are logits
	of      *timeline.Device // whose rows the tables hold
	rest    rest
	tab     key.Binding
	full    key.Binding
	whole   bool // the causes are shown in full, whatever else has no room then
	cut     bool // the last frame did not show the causes in full
}

// New returns the view.
func New() leaf.View {
	v := &view{
		levers: leverList{Table: table.New(
			table.Column{Title: "saves", Width: 10, Right: true},
			table.Column{Title: "tried", Width: 16, Drop: 1},
			table.Column{Title: "  what would help", Width: 26, Max: 100},
		)},
		holders: table.New(
			table.Column{Title: "bytes", Width: 10, Right: true},
			table.Column{Title: "share", Width: 5, Right: true},
			table.Column{Title: "", Width: 10, Max: 16, Drop: 2},
			table.Column{Title: "blocks", Width: 7, Right: true, Drop: 1},
			table.Column{Title: "who held it", Width: 20, Max: 120},
		),
		tab:  key.NewBinding(key.WithKeys("tab", "shift+tab"), key.WithHelp("tab", "holders")),
		full: key.NewBinding(key.WithKeys("W"), key.WithHelp("W", "why")),
	}
	v.focus(v.levers.Table)
	return v
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.OOM }

// Name implements leaf.View.
func (v *view) Name() string { return "OOM" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	if s.Device == nil {
		return false, leaf.NoDevice
	}
	return true, ""
}

func (v *view) focus(t *table.Table) {
	v.levers.Blurred, v.holders.Blurred = t != v.levers.Table, t != v.holders
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if v.autopsy.Take(msg) {
		v.settle(s)
		return tea.Batch(v.try(s), v.rest.ask(s, v.known(s)))
	}
	if v.rest.take(msg) {
		return nil
	}
	if v.trial.Take(msg) {
		v.fill(s)
		return nil
	}
	switch msg := msg.(type) {
	case trialMsg:
		return v.heard(msg)
	case leaf.ChangedMsg:
		v.front = true
		if s.Device == nil {
			return nil
		}
		k := asked{s.Device, s.Units}
		return tea.Batch(v.autopsy.Ask(k, func(ctx context.Context) (*answer, error) {
			return answerOf(ctx, k.device, k.units)
		}), v.try(s), v.rest.ask(s, v.known(s)))
	case icicle.NodeMsg:
		v.rest.icicle.Choose(msg.Node)
		return leaf.Send(leaf.SelectMsg{Alloc: msg.Node.Largest})
	case leaf.LeftMsg:
		v.front = false
		v.trial.Cancel()
		return nil
	case tea.KeyPressMsg:
		if key.Matches(msg, v.full) && (v.cut || v.whole) {
			v.whole = !v.whole
			return nil
		}
		if key.Matches(msg, v.tab) {
			if v.levers.Blurred {
				v.focus(v.levers.Table)
			} else {
				v.focus(v.holders)
			}
			return nil
		}
	}
	return v.toTables(s, msg)
}

// settle takes a new autopsy.
func (v *view) settle(s *leaf.State) {
	k, a, ok := v.autopsy.Value()
	if !ok || k.device != s.Device {
		return
	}
	same := v.of == k.device
	v.of, v.logits = k.device, a.logits
	v.holders.SetRows(len(a.Holders))
	if !same {
		v.whole = false
		v.levers.all = nil
		v.levers.Select(0)
		v.holders.Select(0)
	}
	v.fill(s)
	if !same {
		v.focus(v.levers.Table)
	}
	if len(v.levers.all) == 0 {
		v.focus(v.holders)
	}
}

// fill makes the rows of the levers: as the autopsy found them, or as trying them showed.
func (v *view) fill(s *leaf.State) {
	a := v.known(s)
	if a == nil {
		return
	}
	err := v.trial.Err()
	if v.trial.Pending() {
		err = nil
	}
	v.levers.Columns[1].Hidden = !a.OOM
	if row := v.tried(s); row != nil {
		v.levers.set(leversTried(row, s.Units))
	} else {
		v.levers.set(leversFound(a, err, s.Units))
	}
}

// known returns the autopsy of the device in view, nil until it is there.
func (v *view) known(s *leaf.State) *autopsy.Result {
	if k, a, ok := v.autopsy.Value(); ok && k.device == s.Device && v.of == k.device {
		return a.Result
	}
	return nil
}

func (v *view) toTables(s *leaf.State, msg tea.Msg) tea.Cmd {
	a := v.known(s)
	if a == nil {
		return nil
	}
	for _, t := range []*table.Table{v.levers.Table, v.holders} {
		act := t.Update(msg)
		if act.Kind == table.Ignored {
			continue
		}
		if _, click := msg.(tea.MouseClickMsg); click {
			v.focus(t)
		}
		switch {
		case act.Kind == table.Opened && t == v.levers.Table:
			return tea.Batch(leaf.Send(leaf.CursorMsg{To: a.At}), leaf.Send(leaf.ShowMsg{View: leaf.Peak}))
		case act.Kind == table.Opened:
			return tea.Batch(leaf.Send(leaf.CursorMsg{To: a.At}),
				leaf.Send(leaf.SelectMsg{Alloc: a.Holders[act.Row].Largest}),
				leaf.Send(leaf.ShowMsg{View: leaf.Peak}))
		case act.Kind == table.Moved && t == v.holders:
			return leaf.Send(leaf.SelectMsg{Alloc: a.Holders[act.Row].Largest})
		}
		return nil
	}
	return nil
}

// Bindings implements leaf.View.
func (v *view) Bindings(s *leaf.State) []key.Binding {
	a := v.known(s)
	if a == nil {
		return nil
	}
	tab := v.tab
	list := v.levers.Bindings("what holds it")
	if v.levers.Blurred {
		tab.SetHelp("tab", "what would help")
		list = v.holders.Bindings("show it at that moment")
	}
	full := v.full
	if v.cut && !v.whole {
		list = slices.Insert(list, min(2, len(list)), full)
	}
	if v.levers.Rows() > 0 && v.holders.Rows() > 0 {
		// where the holders have no room, nothing else says that they are there
		list = slices.Insert(list, min(2, len(list)), tab)
	}
	if v.whole { // the way back comes first
		full.SetHelp("W", "in short")
		list = slices.Insert(list, min(2, len(list)), full)
	}
	return list
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	a := v.known(s)
	if a == nil {
		return ""
	}
	if i := v.holders.Selected(); v.levers.Blurred && i >= 0 {
		g := a.Holders[i]
		return fmt.Sprintf("%s in %s · %s", s.Units.Bytes(g.Bytes), timeline.Counted(g.Blocks, "block"),
			g.Name)
	}
	if i := v.levers.Selected(); i >= 0 {
		l := v.levers.all[i]
		if l.command == "" {
			return l.title
		}
		return l.title + " · " + l.command
	}
	return ""
}

// Copy implements leaf.Copier: the command of the lever, or the call site of the holder.
func (v *view) Copy(s *leaf.State) (text, what string) {
	a := v.known(s)
	if a == nil {
		return "", ""
	}
	if i := v.holders.Selected(); v.levers.Blurred && i >= 0 {
		return a.Holders[i].Name, "the call site"
	}
	if i := v.levers.Selected(); i >= 0 && v.levers.all[i].command != "" {
		return v.levers.all[i].command, "the command"
	}
	return v.sentence(s, a), "the answer"
}
