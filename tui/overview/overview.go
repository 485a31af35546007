// Package overview is the first screen: the answer in one sentence, the usage over time that proves it, and
// below that what is held at the cursor and how the iterations compare.
package overview

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/sites"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/chart"
	"github.com/gmemtop/gmemtop/tui/icicle"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// View is the overview.
type View struct {
	usage   chart.Usage
	parts   leaf.Query[at, []sites.Group] // by category at the cursor
	holders leaf.Query[at, []leaf.Holder] // by stack at the cursor
	most    leaf.Query[*timeline.Device, extent]
	only    onlyMoment
	sum     equation
	pointer chart.Pointer
	frame   chart.Frame
	picked  int // row of the table by category, -1 for none
	keys    keyMap
}

type at struct {
	device *timeline.Device
	moment timeline.Moment
}

// extent is how many rows a device's tables can fill. It does not depend on the cursor, so the layout does
// not move with it.
type extent struct{ categories, sites int }

// extentOf counts the categories of all blocks and the call sites that hold something at the peak.
func extentOf(d *timeline.Device) extent {
	var found [timeline.NumCategories]bool
	for _, c := range d.Allocs.Category {
		found[c] = true
	}
	var e extent
	for _, is := range found {
		if is {
			e.categories++
		}
	}
	e.sites = len(held(sites.Breakdown(d, d.Totals.PeakAt, sites.BySite)))
	return e
}

type keyMap struct{ cause, open, rows key.Binding }

// New returns the overview.
func New() *View {
	return &View{picked: -1, keys: keyMap{
		// Every view knows this key: it is a tab's.
		cause: key.NewBinding(key.WithKeys("8"), key.WithHelp("8", "what would help")),
		open:  key.NewBinding(key.WithKeys("enter"), key.WithHelp("enter", "what holds it")),
		rows:  key.NewBinding(key.WithKeys("up", "down", "k", "j"), key.WithHelp("↑↓", "category")),
	}}
}

// ID implements leaf.View.
func (v *View) ID() leaf.ID { return leaf.Overview }

// Name implements leaf.View.
func (v *View) Name() string { return "Overview" }

// Available implements leaf.View.
func (v *View) Available(s *leaf.State) (bool, string) {
	if s.Device == nil {
		if s.Run != nil {
			return false, "A run of several ranks is open, and none is selected: 7 shows all of them, " +
				"w opens one."
		}
		return false, "The recording holds no memory events of any device. " + leaf.HowToRecord(s)
	}
	return true, ""
}

// Bindings implements leaf.View. After an out-of-memory the first key is that of the view with the cause.
func (v *View) Bindings(s *leaf.State) []key.Binding {
	if s.RanOut {
		return []key.Binding{v.keys.cause, v.keys.open, v.keys.rows}
	}
	return []key.Binding{v.keys.open, v.keys.rows}
}

// Status implements leaf.View.
func (v *View) Status(s *leaf.State) string { return leaf.CursorText(s) }

// Update implements leaf.View.
func (v *View) Update(s *leaf.State, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case leaf.ChangedMsg:
		return v.ask(s)
	case icicle.NodeMsg:
		v.only.icicle.Choose(msg.Node)
		return leaf.Send(leaf.SelectMsg{Alloc: msg.Node.Largest})
	case pickMsg:
		if v.picked == msg.row {
			return v.openPicked(s)
		}
		v.picked = msg.row
	case tea.KeyPressMsg:
		switch {
		case key.Matches(msg, v.keys.open):
			return v.openPicked(s)
		case key.Matches(msg, v.keys.rows) && (msg.String() == "up" || msg.String() == "k"):
			v.picked = max(v.picked-1, -1)
		case key.Matches(msg, v.keys.rows):
			v.picked = min(v.picked+1, len(v.rows())-1)
		}
	case tea.MouseMsg:
		cmd, _ := v.pointer.Update(s, &v.frame, msg)
		return cmd
	default:
		_ = v.usage.Take(msg) || v.only.take(msg) || v.sum.state.Take(msg) ||
			v.parts.Take(msg) || v.holders.Take(msg) || v.most.Take(msg)
	}
	return nil
}

// pickMsg is a click on a row of the table by category.
type pickMsg struct{ row int }

// ask asks the questions that this state's frame needs.
func (v *View) ask(s *leaf.State) tea.Cmd {
	d, m := s.Device, s.Cursor
	if d == nil {
		return nil
	}
	k := at{d, m}
	p := v.place(s, s.Width, s.Height)
	var moment tea.Cmd
	if instant(d) {
		moment = v.only.ask(k, s.Units)
	}
	return tea.Batch(
		moment,
		v.most.Ask(d, func(context.Context) (extent, error) { return extentOf(d), nil }),
		v.usage.Ask(s, p.area.W),
		v.parts.Ask(k, func(context.Context) ([]sites.Group, error) {
			return sites.Breakdown(d, m, sites.ByCategory), nil
		}),
		v.holders.Ask(k, func(context.Context) ([]leaf.Holder, error) {
			return slices.DeleteFunc(leaf.Holders(d, m, sites.BySite), func(h leaf.Holder) bool {
				return h.Bytes <= 0
			}), nil
		}),
		v.sum.ask(k),
	)
}

// rows returns the categories at the cursor that hold something.
func (v *View) rows() []sites.Group {
	_, groups, _ := v.parts.Value()
	return held(groups)
}

// held returns the groups, the largest first, that hold something.
func held(groups []sites.Group) []sites.Group {
	for i, g := range groups {
		if g.Bytes <= 0 {
			return groups[:i]
		}
	}
	return groups
}

// openPicked opens the blocks of the picked category, or without one everything that is held at the cursor.
func (v *View) openPicked(*leaf.State) tea.Cmd {
	rows := v.rows()
	if v.picked < 0 || v.picked >= len(rows) {
		return leaf.Send(leaf.ShowMsg{View: leaf.Peak})
	}
	return tea.Sequence(
		leaf.Send(leaf.QueryMsg{Text: "live cat:" + rows[v.picked].Category.String() + " sort:-size"}),
		leaf.Send(leaf.ShowMsg{View: leaf.Allocations}),
	)
}

// headline is the sentence on top; until it is computed, just the peak.
func headline(s *leaf.State) string {
	if s.Analysed {
		return strings.TrimSpace(s.Headline + " " + leaf.Lines(s))
	}
	return fmt.Sprintf("Peak %s: looking for what holds it …", s.Units.Bytes(s.Device.Totals.PeakAllocated))
}

func (v *View) sentenceRows(s *leaf.State) int {
	return leaf.SentenceRows(headline(s), s.Width, s.Height)
}

// places is where the parts of the overview lie.
type places struct {
	labels int         // row of the iterations' names and the peak's pin
	area   canvas.Rect // the plot
	phases int         // row of the phases' lane
	axis   int         // row of the labels of x
	tables canvas.Rect
	sum    int // row of the equation, -1 for none
}

// place lays the overview out below its sentence: the tables get the rows that they can fill, at most nine
// twentieths, and the chart the rest.
func (v *View) place(s *leaf.State, w, h int) places {
	var p places
	p.sum = -1
	sentence := v.sentenceRows(s)
	left := h - sentence
	if left >= 15 {
		p.sum = h - 1
		left--
	}
	gap := 0 // between chart and tables
	if left >= 18 {
		gap = 1
	}
	tables := min(v.tableRows(s, w-2), max(left*9/20, 7))
	p.labels = sentence
	p.area = canvas.Rect{X: 7, Y: sentence + 1, W: max(w-8, 1), H: max(left-tables-3-2*gap, 3)}
	p.phases = p.area.Y + p.area.H
	p.axis = p.phases + 1
	top := p.axis + 1 + gap
	end := h
	if p.sum >= 0 {
		end = p.sum - gap
	}
	p.tables = canvas.Rect{X: 1, Y: top, W: w - 2, H: max(end-top, 0)}
	return p
}

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	w, h := c.Size()
	leaf.Sentence(s, c, headline(s))
	p := v.place(s, w, h)
	if instant(s.Device) { // there is no time to draw
		rows := v.sentenceRows(s)
		v.frame = chart.Frame{}
		v.drawMoment(s, c.Sub(canvas.Rect{X: 1, Y: rows, W: w - 2, H: h - rows - 1}))
	} else {
		v.drawChart(s, c, p)
		v.drawTables(s, c.Sub(p.tables))
	}
	if p.sum >= 0 {
		v.sum.draw(s, c, p.sum)
	}
}

func (v *View) drawChart(s *leaf.State, c *canvas.Canvas, p places) {
	d := s.Device
	v.frame = chart.Frame{Device: d, Area: p.area, Window: s.Window, High: v.usage.High(s, p.area.W)}
	f := &v.frame
	f.YAxis(s, c)
	v.usage.Draw(s, c, f)
	f.Landmarks(s, c, p.labels, p.phases)
	v.labelReserved(s, c, f, p)
}

// labelReserved labels the thin line of reserved bytes at its right end, above or below it.
func (v *View) labelReserved(s *leaf.State, c *canvas.Canvas, f *chart.Frame, p places) {
	_, resv := v.usage.Columns(s, f.Area.W)
	if len(resv) == 0 || resv[len(resv)-1].Max <= 0 {
		return
	}
	last := resv[len(resv)-1]
	text := " reserved " + s.Units.Bytes(last.Max)
	x := f.Area.X + f.Area.W - canvas.Width(text)
	row := f.Row(last.Max)
	for _, y := range []int{f.Area.Y + row + 1, f.Area.Y + row - 1} {
		if y < f.Area.Y || y >= f.Area.Y+f.Area.H {
			continue
		}
		free := true
		for i := range canvas.Width(text) {
			cell := c.At(x+i, y)
			free = free && c.StyleOf(cell.Style).BG == nil && (cell.Rune == ' ' || cell.Rune == '·')
		}
		if free {
			c.Text(x, y, s.Theme.Dim, text)
			return
		}
	}
}
