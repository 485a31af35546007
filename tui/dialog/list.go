package dialog

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// Entry is one row of a list.
type Entry struct {
	Group, Title, Key, Detail string
	// Off rows are shown and cannot be chosen.
	Off bool
	// Msg is sent when the row is chosen; nil only closes the list.
	Msg tea.Msg
}

// List is a dialog of rows that the user searches by typing and chooses with enter or a click.
//
// bubbles' list ranks its matches and shows them in pages. Here rows keep their order while the user types,
// because a list that reorders itself cannot be learnt, and their groups have headings.
type List struct {
	Footer string

	title   string
	hint    string // says what typing does
	entries []Entry
	shown   []int // indices into entries that match the text
	at, top int
	rows    int  // rows visible at the last draw
	loose   bool // the wheel has scrolled: the chosen row may be out of sight
	text    textinput.Model
}

// NewList returns a list; hint says what typing does.
func NewList(title, hint string, entries []Entry) *List {
	for i := range entries {
		for _, s := range []*string{&entries[i].Group, &entries[i].Title, &entries[i].Key,
			&entries[i].Detail} {
			*s = canvas.Plain(*s)
		}
	}
	l := &List{title: canvas.Plain(title), hint: hint, entries: entries, text: newInput("")}
	l.filter()
	return l
}

// Pick returns the list of choices that a view offers.
func Pick(pick leaf.PickMsg) *List {
	var entries []Entry
	for _, c := range pick.Choices {
		entries = append(entries, Entry{Title: c.Title, Detail: c.Detail, Off: c.Off, Msg: c.Msg})
	}
	l := NewList(pick.Title, "type to search; enter chooses", entries)
	l.Footer = pick.Footer
	return l
}

var listKeys = struct{ up, down, pageUp, pageDown, first, last, choose, leave key.Binding }{
	up: bind("↑", "up", "up", "ctrl+k"), down: bind("↓", "down", "down", "ctrl+j", "ctrl+n"),
	pageUp: bind("pgup", "page up", "pgup"), pageDown: bind("pgdn", "page down", "pgdown"),
	first: bind("home", "first", "home"), last: bind("end", "last", "end"),
	choose: bind("enter", "choose", "enter"), leave: bind("esc", "close", "esc"),
}

// Hints implements Dialog.
func (l *List) Hints() []key.Binding {
	return []key.Binding{listKeys.choose, listKeys.up, listKeys.down, listKeys.leave}
}

// filter finds the entries that contain every word of the text.
func (l *List) filter() {
	l.shown = l.shown[:0]
	words := strings.Fields(strings.ToLower(l.text.Value()))
	for i, e := range l.entries {
		text := strings.ToLower(e.Key + " " + e.Title + " " + e.Detail + " " + e.Group)
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			l.shown = append(l.shown, i)
		}
	}
	l.at, l.top, l.loose = 0, 0, false
}

// Update implements Dialog.
func (l *List) Update(in tea.Msg) (done bool, msg tea.Msg) {
	switch in := in.(type) {
	case RowMsg:
		l.at = 0
		l.move(in.Row) // the row may be from an earlier frame
		return l.choose()
	case CloseMsg:
		return true, nil
	case tea.MouseWheelMsg:
		switch in.Button { // scrolls, and leaves the chosen row as it is, as in tables
		case tea.MouseWheelUp:
			l.top, l.loose = l.top-3, true
		case tea.MouseWheelDown:
			l.top, l.loose = l.top+3, true
		}
	case tea.PasteMsg:
		l.edit(in)
	case tea.KeyPressMsg:
		return l.onKey(in)
	}
	return false, nil
}

func (l *List) onKey(in tea.KeyPressMsg) (done bool, msg tea.Msg) {
	switch {
	case key.Matches(in, listKeys.leave):
		return true, nil
	case key.Matches(in, listKeys.choose):
		return l.choose()
	case key.Matches(in, listKeys.up):
		l.move(-1)
	case key.Matches(in, listKeys.down):
		l.move(1)
	case key.Matches(in, listKeys.pageUp):
		l.page(-1)
	case key.Matches(in, listKeys.pageDown):
		l.page(1)
	case key.Matches(in, listKeys.first):
		l.move(-len(l.shown))
	case key.Matches(in, listKeys.last):
		l.move(len(l.shown))
	default:
		l.edit(in)
	}
	return false, nil
}

// edit applies a key to the text.
func (l *List) edit(in tea.Msg) {
	before := l.text.Value()
	l.text, _ = l.text.Update(in)
	if l.text.Value() != before {
		l.filter()
	}
}

func (l *List) move(by int) { l.at, l.loose = max(min(l.at+by, len(l.shown)-1), 0), false }

// page scrolls by a page and moves the choice along. The next frame keeps both within the list.
func (l *List) page(by int) {
	by *= max(l.rows-1, 1)
	l.top += by
	l.move(by)
}

func (l *List) choose() (done bool, msg tea.Msg) {
	if l.at >= len(l.shown) {
		return false, nil
	}
	e := l.entries[l.shown[l.at]]
	if e.Off {
		return false, nil
	}
	return true, e.Msg
}

const (
	usual       = 72 // cells of a list's width, and of one with long rows at most widest
	widest      = 96
	tallest     = 36 // rows of its height
	leastBeside = 12 // the least width at which anything beside a dialog is readable
)

// frame returns where the list lies on a canvas: in the middle, a little above the centre.
func (l *List) frame(c *canvas.Canvas) canvas.Rect {
	w, h := usual, len(l.entries)+6
	left := l.groupWidth()
	for i, e := range l.entries {
		w = min(max(w, left+e.width()+4), widest, max(usual, c.Width()-2*leastBeside))
		if i > 0 && e.Group != l.entries[i-1].Group {
			h++
		}
	}
	around := c.Bounds().Inset(2, 1)
	if c.Width()-w < 2*leastBeside { // a narrow strip beside it would show half words
		around, w = c.Bounds().Inset(0, 1), c.Width()
	}
	w, h = min(w, around.W), min(h, tallest, around.H)
	return canvas.Rect{X: around.X + (around.W-w)/2, Y: around.Y + (around.H-h)*2/5, W: w, H: h}
}

// Draw implements Dialog.
func (l *List) Draw(th *theme.Theme, c *canvas.Canvas) {
	c.DropZones()
	r := l.frame(c)
	g := onDialog(th, c)
	c.Zone(r, stayMsg{})
	c.Fill(r, ' ', th.Dialog)
	if th.Mono { // no background sets it apart
		c.Print(r.X, r.Y, c.Gloss(th.Dialog).Border(lipgloss.NormalBorder()).Width(r.W).Height(r.H).Render(
			""))
	}
	w, h := r.W-4, r.H-3
	in := c.Sub(canvas.Rect{X: r.X + 2, Y: r.Y + 2, W: w, H: h})
	in.Print(0, 0, g.accent.Render("› ")+l.viewText(g, w-2))
	l.rows = h - 2
	if l.Footer != "" {
		l.rows--
		in.Print(0, h-1, g.dim.Render(canvas.Truncate(l.Footer, w)))
	}
	left := l.groupWidth()
	l.drawRows(th, in.Sub(canvas.Rect{Y: 2, W: w, H: l.rows}), left)
	canvas.Scrollbar(c, r.X+r.W-2, r.Y+4, l.rows, l.top, len(l.shown), th.OnDialog(th.Dim),
		th.OnDialog(th.Faint))
	c.Print(r.X+2, r.Y, g.strong.Render(canvas.Truncate(l.title, r.W-10)))
	c.Print(r.X+r.W-5, r.Y, g.dim.Render("esc"))
	c.Zone(canvas.Rect{X: r.X + r.W - 6, Y: r.Y, W: 6, H: 1}, CloseMsg{})
}

func (l *List) viewText(g glosses, w int) string {
	l.text.Placeholder = canvas.Truncate(l.hint, w)
	return viewInput(&l.text, g.strong, g.dim, w)
}

// groupWidth returns the width of the group names beside the rows.
func (l *List) groupWidth() int {
	w := 0
	for _, e := range l.entries {
		w = max(w, canvas.Width(e.Group)+2)
	}
	if w == 2 {
		return 0
	}
	return w
}

// drawRows draws the rows around the chosen one, left cells from the edge. A group's name is beside its first
// visible row.
func (l *List) drawRows(th *theme.Theme, c *canvas.Canvas, left int) {
	w, h := c.Size()
	g, chosen := onDialog(th, c), onSelected(th, c)
	if len(l.shown) == 0 {
		c.Print(0, 0, g.dim.Render("nothing matches"))
		return
	}
	if !l.loose {
		l.top = max(min(l.top, l.at), l.at-h+1)
	}
	l.top = max(min(l.top, len(l.shown)-h), 0)
	for y, i := range l.shown[l.top:min(l.top+h, len(l.shown))] {
		e, look := l.entries[i], g
		if y == 0 || e.Group != l.entries[l.shown[l.top+y-1]].Group {
			c.Print(0, y, g.dim.Render(canvas.Truncate(e.Group, left-1)))
		}
		if l.top+y == l.at {
			look = chosen
		}
		c.Print(left, y, e.view(look, l.top+y == l.at, w-left))
		c.Zone(canvas.Rect{X: left, Y: y, W: w - left, H: 1}, RowMsg{l.top + y})
	}
}

// width is the cells that the row needs to be whole.
func (e *Entry) width() int {
	n := 1 + canvas.Width(e.Title) + 1
	if e.Key != "" {
		n += max(8, canvas.Width(e.Key)+1)
	}
	if e.Detail != "" {
		n += canvas.Width(e.Detail) + 3
	}
	return n
}

// view returns the row in w cells: the key, the title, and the detail at the right where it has room.
func (e *Entry) view(g glosses, chosen bool, w int) string {
	text, keys := g.text, g.accent
	if e.Off && !chosen {
		text, keys = g.faint, g.faint
	}
	x := 1
	if e.Key != "" {
		x += max(8, canvas.Width(e.Key)+1)
	}
	row := fill(keys, " "+e.Key, x)
	title := canvas.Truncate(e.Title, w-x)
	room := w - x - canvas.Width(title) - 3
	if e.Detail == "" || room <= 4 {
		return row + fill(text, title, w-x)
	}
	detail := canvas.Truncate(e.Detail, room)
	n := canvas.Width(detail) + 1
	return row + fill(text, title, w-x-n) + fill(g.dim, detail, n)
}

// fill returns text in a style, with blanks behind it up to w cells.
func fill(st lipgloss.Style, text string, w int) string {
	return st.Render(text + strings.Repeat(" ", max(w-canvas.Width(text), 0)))
}
