// Package allocations is the view with a row for every allocation: sorted, filtered, with its origin.
package allocations

import (
	"context"
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// view shows the allocations that the current filter selects. It implements leaf.View.
type view struct {
	found leaf.Query[question, *result]
	shown *result // what the table's rows are
	table *table.Table
	plots plots

	// The order; chosen says that a column was clicked while the filter was chosenFor.
	sort       sites.SortKey
	chosen     bool
	chosenFor  string
	descending bool
	followed   timeline.AllocID
	of         *timeline.Device
}

// question is what the rows depend on.
type question struct {
	d *timeline.Device
	q sites.Query
}

// The columns.
const (
	colBlock = iota
	colSize
	colRequested
	colCategory
	colStart
	colLife
	colFreed
	colStream
	colSite
)

// sortKeys are the orders that columns stand for.
var sortKeys = map[int]sites.SortKey{
	colBlock: sites.SortAddress, colSize: sites.SortSize, colCategory: sites.SortCategory,
	colStart: sites.SortStart,
	colLife:  sites.SortLifetime, colFreed: sites.SortEnd,
}

// New returns the view.
func New() leaf.View {
	v := &view{
		table: table.New(
			table.Column{Title: "block", Width: 17, Max: 20, Drop: 5, Sortable: true},
			table.Column{Title: "size", Width: 9, Right: true, Sortable: true},
			table.Column{Title: "requested", Width: 9, Right: true, Drop: 7},
			table.Column{Title: "category", Width: 18, Sortable: true},
			table.Column{Title: "start", Width: 9, Right: true, Drop: 2, Sortable: true},
			table.Column{Title: "lifetime", Width: 9, Right: true, Sortable: true},
			table.Column{Title: "freed", Width: 9, Right: true, Drop: 6, Sortable: true},
			table.Column{Title: "stream", Width: 6, Right: true, Drop: 4},
			table.Column{Title: "site", Width: 24, Max: 100},
		),
		sort: sites.SortSize, descending: true, followed: timeline.NoAlloc,
	}
	v.mark(v.sort, v.descending)
	return v
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Allocations }

// Name implements leaf.View.
func (v *view) Name() string { return "Allocations" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	switch {
	case s.Device == nil:
		return false, leaf.NoDevice
	case s.Device.Allocs.Len() == 0:
		return false, "This recording has sums but no allocations. " + leaf.HowToRecord(s)
	}
	return true, ""
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	if v.found.Take(msg) {
		v.settle(s)
		return nil
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		v.follow(s)
		return v.ask(s)
	case tea.KeyPressMsg:
		return v.act(s, v.table.Update(msg))
	case tea.MouseMsg:
		if cmd := v.clickPlot(s, msg); cmd != nil {
			return cmd
		}
		return v.act(s, v.table.Update(msg))
	}
	return nil
}

// ask searches again if the filter, the order or the device has changed.
func (v *view) ask(s *leaf.State) tea.Cmd {
	if s.Device == nil {
		return nil
	}
	d, q := s.Device, v.query(s)
	v.mark(q.Sort, q.Descending)
	if v.of != d {
		v.of, v.shown = d, nil
		v.table.SetRows(0)
	}
	return v.found.Ask(question{d, q}, func(ctx context.Context) (*result, error) {
		return search(ctx, d, q)
	})
}

// query is the shared filter in this view's order. A filter that names an order itself keeps it until a
// column is chosen here.
//
// Fields that the filter does not use are left out, so that moving the cursor searches again only if the
// filter asks for what is live there.
func (v *view) query(s *leaf.State) sites.Query {
	q := s.Query
	if !q.Live {
		q.LiveAt = 0
	}
	if !q.ByStack && !q.BySite {
		q.Stack = 0
	}
	if strings.Contains(s.QueryText, "sort:") && !(v.chosen && v.chosenFor == s.QueryText) {
		return q
	}
	q.Sort, q.Descending = v.sort, v.descending
	return q
}

// mark shows an order in the head of the table.
func (v *view) mark(by sites.SortKey, descending bool) {
	for col, k := range sortKeys {
		if k == by {
			v.table.SortBy, v.table.Descending = col, descending
		}
	}
}

func (v *view) settle(s *leaf.State) {
	of, r, ok := v.found.Value()
	if !ok || of.d != s.Device {
		return
	}
	v.shown = r
	v.table.SetRows(len(r.ids))
	v.followed = timeline.NoAlloc
	v.follow(s)
}

// follow selects the row of the block that another view selected.
func (v *view) follow(s *leaf.State) {
	if v.shown == nil || s.Selected == v.followed {
		return
	}
	v.followed = s.Selected
	if s.Selected == timeline.NoAlloc {
		return
	}
	for i, a := range v.shown.ids {
		if a == s.Selected {
			v.table.Select(i)
			return
		}
	}
}

func (v *view) act(s *leaf.State, a table.Action) tea.Cmd {
	switch a.Kind {
	case table.Moved:
		return v.choose(a.Row)
	case table.Opened:
		return v.open(s, a.Row)
	case table.Sorted:
		k, ok := sortKeys[a.Column]
		if !ok {
			return nil
		}
		v.sort, v.descending = k, v.table.Descending
		v.chosen, v.chosenFor = true, s.QueryText
		return v.ask(s)
	}
	return nil
}

func (v *view) choose(row int) tea.Cmd {
	if v.shown == nil || row < 0 || row >= len(v.shown.ids) {
		return nil
	}
	v.followed = v.shown.ids[row]
	return leaf.Send(leaf.SelectMsg{Alloc: v.followed})
}

// open goes to the timeline at the block's start. One moment has no time; there it goes to the block's
// segment, if that is known.
func (v *view) open(s *leaf.State, row int) tea.Cmd {
	if v.shown == nil || row < 0 || row >= len(v.shown.ids) {
		return nil
	}
	a := v.shown.ids[row]
	v.followed = a
	if s.Device.Len() < 2 {
		if s.Device.Totals.Segments == 0 {
			return nil
		}
		return tea.Batch(leaf.Send(leaf.SelectMsg{Alloc: a}), leaf.Send(leaf.ShowMsg{View: leaf.Segments}))
	}
	return tea.Batch(
		leaf.Send(leaf.CursorMsg{To: s.Device.Allocs.Start[a]}),
		leaf.Send(leaf.SelectMsg{Alloc: a}),
		leaf.Send(leaf.ShowMsg{View: leaf.Timeline}),
	)
}

// current returns the allocation of the selected row, NoAlloc for none.
func (v *view) current() timeline.AllocID {
	if row := v.table.Selected(); v.shown != nil && row >= 0 && row < len(v.shown.ids) {
		return v.shown.ids[row]
	}
	return timeline.NoAlloc
}

// Bindings implements leaf.View.
func (v *view) Bindings(s *leaf.State) []key.Binding {
	if v.shown == nil || len(v.shown.ids) == 0 {
		return nil
	}
	switch {
	case s.Device.Len() > 1:
		return v.table.Bindings("go to its start")
	case s.Device.Totals.Segments > 0:
		return v.table.Bindings("show its segment")
	}
	return v.table.Bindings("")
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	a := v.current()
	if a == timeline.NoAlloc || s.Device == nil || v.of != s.Device {
		return ""
	}
	d := s.Device
	text := fmt.Sprintf("%s of %s · %s %s · %s", leaf.Count(int64(v.table.Selected()+1)),
		leaf.Count(int64(len(v.shown.ids))), d.BlockName(a),
		s.Units.Bytes(d.Allocs.Rounded[a]), block.Life(d, a))
	if site := sites.From(d, a); site != "" {
		text += " · " + site
	}
	return text
}

// Copy implements leaf.Copier.
func (v *view) Copy(s *leaf.State) (text, what string) {
	if a := v.current(); a != timeline.NoAlloc && v.of == s.Device {
		return s.Device.UniqueName(a), "the block's name"
	}
	return "", ""
}
