package dialog

import (
	"io"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/list"
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

// FilterValue implements list.Item: the text that is searched.
func (e Entry) FilterValue() string {
	return strings.ToLower(e.Key + " " + e.Title + " " + e.Detail + " " + e.Group)
}

// List is a dialog of rows that the user searches by typing and chooses with enter or a click.
//
// The rows, the choice and the pages are bubbles' list. Its search is replaced: rows keep their order while
// the user types, because a list that reorders itself cannot be learnt, and every word must occur.
type List struct {
	Footer string
	// Careful lists take the second click on a row as the choice: what they do cannot be taken back, and a
	// first click says what it would be.
	Careful bool

	title   string
	hint    string // says what typing does
	entries []Entry
	list    list.Model
	text    textinput.Model
	clicked bool // the row that is selected was clicked
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
	items := make([]list.Item, len(entries))
	for i, e := range entries {
		items[i] = e
	}
	l.list = list.New(items, rows{}, usual, tallest)
	l.list.Filter = inOrder
	for _, show := range []func(bool){l.list.SetShowTitle, l.list.SetShowFilter, l.list.SetShowStatusBar,
		l.list.SetShowPagination, l.list.SetShowHelp} {
		show(false)
	}
	return l
}

// inOrder is a list.FilterFunc that keeps the targets with every word of the term, in their order.
func inOrder(term string, targets []string) []list.Rank {
	var kept []list.Rank
	words := strings.Fields(strings.ToLower(term))
	for i, target := range targets {
		lacks := func(word string) bool { return !strings.Contains(target, word) }
		if !slices.ContainsFunc(words, lacks) {
			kept = append(kept, list.Rank{Index: i})
		}
	}
	return kept
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

// Update implements Dialog.
func (l *List) Update(in tea.Msg) (done bool, msg tea.Msg) {
	switch in := in.(type) {
	case RowMsg:
		if in.Row >= len(l.list.VisibleItems()) { // the row may be from an earlier frame
			return false, nil
		}
		again := l.clicked && in.Row == l.list.Index()
		l.list.Select(in.Row)
		if l.clicked = true; l.Careful && !again {
			return false, nil
		}
		return l.choose()
	case CloseMsg:
		return true, nil
	case tea.MouseWheelMsg:
		l.clicked = false
		switch in.Button {
		case tea.MouseWheelUp:
			l.list.CursorUp()
		case tea.MouseWheelDown:
			l.list.CursorDown()
		}
	case tea.PasteMsg:
		l.clicked = false
		l.edit(in)
	case tea.KeyPressMsg:
		l.clicked = false
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
		l.list.CursorUp()
	case key.Matches(in, listKeys.down):
		l.list.CursorDown()
	case key.Matches(in, listKeys.pageUp):
		if l.list.Paginator.OnFirstPage() {
			l.list.GoToStart()
		}
		l.list.PrevPage()
	case key.Matches(in, listKeys.pageDown):
		if l.list.Paginator.OnLastPage() {
			l.list.GoToEnd()
		}
		l.list.NextPage()
	case key.Matches(in, listKeys.first):
		l.list.GoToStart()
	case key.Matches(in, listKeys.last):
		l.list.GoToEnd()
	default:
		l.edit(in)
	}
	return false, nil
}

// edit applies a key to the text.
func (l *List) edit(in tea.Msg) {
	before := l.text.Value()
	l.text, _ = l.text.Update(in)
	if text := l.text.Value(); text != before {
		l.list.SetFilterText(text)
	}
}

func (l *List) choose() (done bool, msg tea.Msg) {
	e, ok := l.list.SelectedItem().(Entry)
	if !ok || e.Off {
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
		w = min(max(w, left+e.width()+4), widest)
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
	visible := h - 2
	if l.Footer != "" {
		visible--
		in.Print(0, h-1, g.dim.Render(canvas.Truncate(l.Footer, w)))
	}
	l.drawRows(th, in.Sub(canvas.Rect{Y: 2, W: w, H: visible}))
	first := l.list.Index() - l.list.Cursor()
	canvas.Scrollbar(c, r.X+r.W-2, r.Y+4, visible, first, len(l.list.VisibleItems()), th.OnDialog(th.Dim),
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

// drawRows draws the page with the chosen row, and makes its rows clickable.
func (l *List) drawRows(th *theme.Theme, c *canvas.Canvas) {
	w, h := c.Size()
	left := l.groupWidth()
	g := onDialog(th, c)
	l.list.SetDelegate(rows{g, onSelected(th, c), left, w})
	l.list.SetHeight(h)
	all := l.list.VisibleItems()
	if len(all) == 0 {
		c.Print(0, 0, g.dim.Render("nothing matches"))
		return
	}
	start, end := l.list.Paginator.GetSliceBounds(len(all))
	for y, row := range strings.SplitN(l.list.View(), "\n", end-start+1)[:end-start] {
		c.Print(0, y, row)
		c.Zone(canvas.Rect{X: left, Y: y, W: w - left, H: 1}, RowMsg{start + y})
	}
}

// rows draws the rows of a list in w cells, left of them for their groups: a list.ItemDelegate.
type rows struct {
	usual, chosen glosses
	left, w       int
}

func (rows) Height() int                         { return 1 }
func (rows) Spacing() int                        { return 0 }
func (rows) Update(tea.Msg, *list.Model) tea.Cmd { return nil }

// Render writes a row. A group's name is beside its first row of the page.
func (r rows) Render(w io.Writer, m list.Model, index int, item list.Item) {
	e, group, look := item.(Entry), "", r.usual
	if index%m.Paginator.PerPage == 0 || m.VisibleItems()[index-1].(Entry).Group != e.Group {
		group = canvas.Truncate(e.Group, r.left-1)
	}
	if index == m.Index() {
		look = r.chosen
	}
	_, _ = io.WriteString(w, fill(r.usual.dim, group, r.left)+e.view(look, index == m.Index(), r.w-r.left))
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
