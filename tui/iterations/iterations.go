// Package iterations is the view of the training steps: their curves over one another, what each of them
// took, which one is odd, and which call sites grow from step to step.
package iterations

import (
	"context"
	"fmt"
	"sort"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// view shows the iterations. It implements leaf.View.
type view struct {
	steps  leaf.Query[*timeline.Device, *found]
	shapes leaf.Query[shapesKey, *shapes]
	of     *timeline.Device

	table  *table.Table
	leaks  *table.Table
	order  []int // rows of the table as indices of iterations
	tab    key.Binding
	scale  key.Binding
	fit    fit
	cursor timeline.Moment
}

// found is what the tables show.
type found struct {
	it        *steps.Iterations
	leaks     []steps.Leak
	nameWidth int // the cells that the longest name takes
	whyWidth  int // and the longest reason why an iteration differs, without the mark before it
}

// find looks for a device's iterations. It takes time in proportion to the recording's length.
func find(d *timeline.Device) *found {
	f := &found{it: steps.Of(d), leaks: steps.Leaks(d)}
	for i := range f.it.List {
		f.nameWidth = max(f.nameWidth, canvas.Width(f.it.List[i].Name))
		f.whyWidth = max(f.whyWidth, canvas.Width(f.it.List[i].Why(timeline.IEC)))
	}
	return f
}

type shapesKey struct {
	d   *timeline.Device
	fit fit
}

// fit is how curves of different lengths share an axis.
type fit uint8

const (
	automatic fit = iota
	onScale       // one scale of time for all
	stretch       // each over the whole axis
)

// Widths in cells. For the usual ones other columns make room: a name such as ProfilerStep#12, and a first
// clause such as "warm-up: rise +12.4 MiB". Annotations can be long.
const (
	leastNameWidth, usualNameWidth, mostNameWidth = 12, 16, 28
	leastWhyWidth, usualWhyWidth                  = 12, 24
)

// The columns.
const (
	colIndex = iota
	colPeak
	colStep
	colChurn
	colBlocks
	colGrowth
	colSites
	colWhy
)

// New returns the view.
func New() leaf.View {
	v := &view{
		table: table.New(
			table.Column{Title: "iteration", Width: leastNameWidth, Sortable: true},
			table.Column{Title: "peak", Width: 9, Right: true, Sortable: true},
			table.Column{Title: "step", Width: 9, Right: true, Drop: 1, Sortable: true},
			table.Column{Title: "allocs", Width: 9, Right: true, Drop: 3, Sortable: true},
			table.Column{Title: "blocks", Width: 8, Right: true, Drop: 5, Sortable: true},
			table.Column{Title: "growth", Width: 11, Right: true, Drop: 2, Sortable: true},
			table.Column{Title: "new sites", Width: 9, Right: true, Drop: 4, Sortable: true},
			table.Column{Title: "", Width: leastWhyWidth, Max: 120},
		),
		leaks: table.New(
			table.Column{Title: "grows by", Width: 12, Right: true},
			table.Column{Title: "95 %", Width: 20, Drop: 1},
			table.Column{Title: "now", Width: 9, Right: true},
			table.Column{Title: "blocks", Width: 8, Right: true, Drop: 2},
			table.Column{Title: "call site that grows with the iterations", Width: 20, Max: 140},
		),
		tab:   key.NewBinding(key.WithKeys("tab", "shift+tab"), key.WithHelp("tab", "leaks")),
		scale: key.NewBinding(key.WithKeys("f"), key.WithHelp("f", "one time scale")),
	}
	v.table.SortBy = colIndex
	v.leaks.Blurred = true
	return v
}

// ID implements leaf.View.
func (v *view) ID() leaf.ID { return leaf.Iterations }

// Name implements leaf.View.
func (v *view) Name() string { return "Iterations" }

// Available implements leaf.View.
func (v *view) Available(s *leaf.State) (bool, string) {
	switch {
	case s.Device == nil:
		return false, leaf.NoDevice
	case s.Device.Len() < 2:
		return false, "This recording shows a single moment: it has blocks but no events, so there " +
			"are no steps to compare. " +
			leaf.HowToRecord(s)
	}
	return true, ""
}

// Update implements leaf.View.
func (v *view) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch {
	case v.steps.Take(msg):
		v.settle(s)
		return v.askShapes(s)
	case v.shapes.Take(msg):
		return nil
	}
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		if s.Device == nil {
			return nil
		}
		d := s.Device
		v.follow(s)
		return tea.Batch(v.steps.Ask(d, func(context.Context) (*found, error) {
			return find(d), nil
		}), v.askShapes(s))
	case tea.KeyPressMsg:
		if key.Matches(msg, v.tab) && v.leaks.Rows() > 0 {
			v.focusLeaks(!v.table.Blurred)
			return nil
		}
		if key.Matches(msg, v.scale) {
			v.fit = stretch
			if v.stretched() {
				v.fit = onScale
			}
			return v.askShapes(s)
		}
	}
	return v.toTables(s, msg)
}

// known returns the steps of the device in view, nil until they are there.
func (v *view) known(s *leaf.State) *found {
	if d, st, ok := v.steps.Value(); ok && d == s.Device && v.of == d {
		return st
	}
	return nil
}

// askShapes asks for the curves if the device or the axis has changed.
func (v *view) askShapes(s *leaf.State) tea.Cmd {
	st := v.known(s)
	if st == nil || len(st.it.List) == 0 {
		return nil
	}
	k := shapesKey{s.Device, v.fit}
	return v.shapes.Ask(k, func(ctx context.Context) (*shapes, error) { return shapesOf(ctx, k, st.it) })
}

func (v *view) settle(s *leaf.State) {
	d, st, ok := v.steps.Value()
	if !ok || d != s.Device {
		return
	}
	v.of = d
	v.table.SetRows(len(st.it.List))
	name := &v.table.Columns[colIndex]
	name.Width = min(max(st.nameWidth, leastNameWidth), usualNameWidth)
	name.Max = min(st.nameWidth, mostNameWidth)
	v.table.Columns[colWhy].Width = min(max(st.whyWidth, leastWhyWidth), usualWhyWidth)
	v.leaks.SetRows(len(st.leaks))
	v.leaks.Select(0)
	v.focusLeaks(false)
	v.reorder(st)
	v.cursor = timeline.Never
	v.follow(s)
}

func (v *view) focusLeaks(yes bool) { v.table.Blurred, v.leaks.Blurred = yes, !yes }

// reorder sorts the rows in the order that the head of the table shows.
func (v *view) reorder(st *found) {
	keep := v.selected()
	v.order = v.order[:0]
	for i := range st.it.List {
		v.order = append(v.order, i)
	}
	value := func(i int) int64 {
		x := &st.it.List[i]
		switch v.table.SortBy {
		case colPeak:
			return x.PeakAllocated
		case colStep:
			return x.Finish - x.Start
		case colChurn:
			return x.Churn
		case colBlocks:
			return int64(x.Blocks)
		case colGrowth:
			return x.Growth
		case colSites:
			return int64(x.NewSites)
		}
		return int64(x.Index)
	}
	sort.SliceStable(v.order, func(a, b int) bool {
		x, y := value(v.order[a]), value(v.order[b])
		if v.table.Descending {
			return x > y
		}
		return x < y
	})
	v.selectIteration(keep)
}

// selected returns the index of the iteration in the selected row, -1 for none.
func (v *view) selected() int {
	if row := v.table.Selected(); row >= 0 && row < len(v.order) {
		return v.order[row]
	}
	return -1
}

func (v *view) selectIteration(i int) {
	for row, x := range v.order {
		if x == i {
			v.table.Select(row)
			return
		}
	}
}

// follow selects the iteration that the cursor is in.
func (v *view) follow(s *leaf.State) {
	st := v.known(s)
	if st == nil || s.Cursor == v.cursor {
		return
	}
	v.cursor = s.Cursor
	if i := at(st.it, s.Cursor); i >= 0 {
		v.selectIteration(i)
	}
}

// at returns the index of the iteration that a moment lies in, -1 for none.
func at(it *steps.Iterations, m timeline.Moment) int {
	i := sort.Search(len(it.List), func(i int) bool { return it.List[i].First > m }) - 1
	if i < 0 || m >= it.List[i].End {
		return -1
	}
	return i
}

func (v *view) toTables(s *leaf.State, msg tea.Msg) tea.Cmd {
	st := v.known(s)
	if st == nil {
		return nil
	}
	act := v.table.Update(msg)
	if act.Kind == table.Ignored {
		return v.toLeaks(s, st, msg)
	}
	if _, click := msg.(tea.MouseClickMsg); click {
		v.focusLeaks(false)
	}
	i := v.selected()
	switch {
	case act.Kind == table.Sorted:
		v.reorder(st)
	case i < 0:
	case act.Kind == table.Moved:
		v.cursor = st.it.List[i].PeakAt
		return leaf.Send(leaf.CursorMsg{To: v.cursor})
	case act.Kind == table.Opened:
		return open(s, &st.it.List[i])
	}
	return nil
}

// open shows an iteration in the timeline: the cursor at its peak, the window around it.
func open(s *leaf.State, x *steps.Iteration) tea.Cmd {
	last := min(x.End, timeline.Moment(s.Device.Len())-1)
	from, to := leaf.Position(s.Device, s.Window.Axis, x.First), leaf.Position(s.Device, s.Window.Axis, last)
	pad := (to - from) / 20
	return tea.Batch(
		leaf.Send(leaf.CursorMsg{To: x.PeakAt}),
		leaf.Send(leaf.WindowMsg{Window: timeline.Window{Axis: s.Window.Axis, From: from - pad,
			To: to + pad + 1}}),
		leaf.Send(leaf.ShowMsg{View: leaf.Timeline}),
	)
}

func (v *view) toLeaks(s *leaf.State, st *found, msg tea.Msg) tea.Cmd {
	act := v.leaks.Update(msg)
	if act.Kind == table.Ignored {
		return nil
	}
	if _, click := msg.(tea.MouseClickMsg); click {
		v.focusLeaks(true)
	}
	if act.Kind == table.Opened && act.Row >= 0 {
		site := sites.Name(s.Device, st.leaks[act.Row].Stack)
		return tea.Batch(leaf.Send(leaf.QueryMsg{Text: "leaked " + word(site)}),
			leaf.Send(leaf.ShowMsg{View: leaf.Allocations}))
	}
	return nil
}

// word returns the first word of a call site: its function, which a filter finds.
func word(site string) string {
	for i := range len(site) {
		if site[i] == ' ' {
			return site[:i]
		}
	}
	return site
}

// Bindings implements leaf.View.
func (v *view) Bindings(s *leaf.State) []key.Binding {
	st := v.known(s)
	if st == nil || len(st.it.List) == 0 {
		return nil
	}
	tab := v.tab
	list := v.table.Bindings("zoom to it")
	if v.table.Blurred {
		tab.SetHelp("tab", "iterations")
		list = v.leaks.Bindings("its blocks")
	}
	if v.leaks.Rows() > 0 {
		list = append(list, tab)
	}
	scale := v.scale
	if !v.stretched() {
		scale.SetHelp("f", "each over the whole axis")
	}
	return append(list, scale)
}

// stretched reports whether each drawn curve fills the axis.
func (v *view) stretched() bool {
	_, sh, ok := v.shapes.Value()
	return ok && sh.stretched
}

// Status implements leaf.View.
func (v *view) Status(s *leaf.State) string {
	st := v.known(s)
	if st == nil {
		return ""
	}
	if i := v.leaks.Selected(); v.table.Blurred && i >= 0 {
		l := st.leaks[i]
		return fmt.Sprintf("%s an iteration · %s", s.Units.Delta(int64(l.Slope)),
			sites.Name(s.Device, l.Stack))
	}
	i := v.selected()
	if i < 0 {
		return ""
	}
	x := &st.it.List[i]
	text := x.Name + " · peak " + s.Units.Bytes(x.PeakAllocated)
	if s.Device.Timeline().Trace.Clock.HasTime {
		text += " · " + timeline.Duration(x.Finish-x.Start)
	}
	text += fmt.Sprintf(" · events %s to %s", leaf.Count(int64(x.First)), leaf.Count(int64(x.End)))
	if x.Why(s.Units) != "" {
		text += " · " + x.Why(s.Units)
	}
	return text
}
