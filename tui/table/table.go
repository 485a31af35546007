// Package table draws the visible part of a list of any length.
//
// Problem: a million allocations in a table of forty lines, on every key press, within a few milliseconds.
// Approach: the table knows only the number of rows and asks for the text of the cells on the screen.
// Widths come from the columns, not from the contents, so that nothing that is not drawn is measured, and
// scrolling never makes columns jump. A frame costs O(visible rows x visible columns), whatever the number of
// rows. Way rejected: rows as slices of strings, as ready-made tables want them; a million rows of nine
// strings cost seconds and a gigabyte before the first frame. Even with only the visible rows, a table of Lip
// Gloss takes 31 to 36 ms for 55 rows of five columns at 200x56, and these cells 1.1 to 1.2 ms
// (BenchmarkLipGlossTable, BenchmarkDrawMillionRows, on two busy cores).
//
// If there is too little room, columns are dropped in the order that the view chose (Column.Drop); leftover
// room goes to the columns that can use it (Column.Max).
package table

import (
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
)

// Column is one column of a table.
type Column struct {
	Title string
	// Unit follows the title in the head, for columns whose unit depends on their contents.
	Unit string
	// Width is the smallest useful width of the cells. A wider head widens the column: it is never cut.
	Width int
	// Max is the width up to which it grows if there is room; below Width it does not grow.
	Max int
	// Drop is the order in which columns leave a narrow table, highest first. A column of 0 stays.
	Drop int
	// Hidden columns are never drawn: all their cells are empty.
	Hidden bool
	// Right aligns numbers at their end.
	Right bool
	// Sortable columns answer a click on their title.
	Sortable bool
}

// head returns the column's heading.
func (c Column) head() string {
	if c.Unit == "" {
		return c.Title
	}
	return c.Title + " " + c.Unit
}

// least is the smallest width that the column is drawn with.
func (c Column) least() int { return max(c.Width, canvas.Width(c.head())) }

// Cell is the content of one cell of a table.
type Cell struct {
	Text  string
	Style canvas.Style
	// Lead is written before Text in a style of its own: the glyph of a category.
	Lead      string
	LeadStyle canvas.Style
	// Part of Whole is the length of a bar drawn with Fill if Text is empty.
	Part, Whole int64
	Fill        canvas.Fill
	// KeepEnd cuts a long text at its beginning, as paths need.
	KeepEnd bool
	// Span lets Text run over the following columns, which are left out in that row.
	Span bool
}

// Kind says what a message did to a table.
type Kind uint8

// The kinds of Action.
const (
	// Ignored messages are not for the table.
	Ignored Kind = iota
	// Scrolled moved the visible part, or was handled without an effect.
	Scrolled
	// Moved selected another row.
	Moved
	// Opened is enter, or a click on the selected row.
	Opened
	// Sorted asks to sort by Action.Column, which the table already marks.
	Sorted
)

// Action is what a message did to a table.
type Action struct {
	Kind   Kind
	Row    int // the selected row, -1 for none
	Column int // of Sorted
}

// keyMap holds the keys that a table answers.
type keyMap struct {
	Up, Down, PageUp, PageDown, Home, End, Open, Sort, Reverse key.Binding
}

// defaultKeyMap returns the keys that all tables of gmemtop answer.
func defaultKeyMap() keyMap {
	bind := func(help, desc string, keys ...string) key.Binding {
		return key.NewBinding(key.WithKeys(keys...), key.WithHelp(help, desc))
	}
	return keyMap{
		Up:       bind("↑", "row up", "up", "k"),
		Down:     bind("↓", "row down", "down", "j"),
		PageUp:   bind("pgup", "page up", "pgup", "ctrl+u", "ctrl+b"),
		PageDown: bind("pgdn", "page down", "pgdown", "ctrl+d", "ctrl+f"),
		Home:     bind("g", "first row", "home", "g"),
		End:      bind("G", "last row", "end", "G"),
		Open:     bind("enter", "open", "enter"),
		Sort:     bind("s", "sort by next column", "s"),
		Reverse:  bind("S", "reverse order", "S"),
	}
}

// Bindings returns the keys that work now, most useful first; open says what enter does, "" for nothing.
func (t *Table) Bindings(open string) []key.Binding {
	if t.rows == 0 || t.Blurred {
		return nil
	}
	join := func(help, desc string, a, b key.Binding) key.Binding {
		return key.NewBinding(key.WithKeys(append(a.Keys(), b.Keys()...)...), key.WithHelp(help, desc))
	}
	list := []key.Binding{join("↑↓", "row", t.keys.Up, t.keys.Down)}
	if open != "" {
		k := t.keys.Open
		k.SetHelp("enter", open)
		list = append(list, k)
	}
	if next := t.nextSortable(); next >= 0 {
		k := t.keys.Sort
		k.SetHelp("s", "by "+t.Columns[next].Title)
		list = append(list, k)
		if t.SortBy >= 0 {
			list = append(list, t.keys.Reverse)
		}
	}
	return append(list, join("pgup/pgdn", "page", t.keys.PageUp, t.keys.PageDown),
		join("g/G", "first, last row", t.keys.Home, t.keys.End))
}

const (
	gap       = 2 // blank cells between columns
	wheelRows = 3
)

// Table is a list with a selected row. The zero value has no columns; see New.
type Table struct {
	Columns []Column
	keys    keyMap
	// SortBy is the column that carries the sort marker, -1 for none; Descending is its direction.
	SortBy     int
	Descending bool
	// Blurred tables draw their selected row dimmed and ignore keys.
	Blurred bool

	rows, sel, top int
	at             canvas.Rect // where it was drawn last, in cells of the view
	cols           []placed
	fitted         []Column // Columns, as wide as the numbers in the visible rows
	cells          []Cell   // of the visible rows, one after the other
	drag           bool
}

// placed is a visible column with its cells [x, x+w) of the table.
type placed struct{ column, x, w int }

// New returns an empty table.
func New(columns ...Column) *Table {
	return &Table{Columns: columns, keys: defaultKeyMap(), SortBy: -1}
}

// SetRows sets the number of rows. The selection stays if it can.
func (t *Table) SetRows(n int) {
	t.rows = max(n, 0)
	t.sel = min(max(t.sel, 0), t.rows-1)
	t.scrollTo(t.top)
}

// Rows returns the number of rows.
func (t *Table) Rows() int { return t.rows }

// Selected returns the selected row, -1 if there are no rows.
func (t *Table) Selected() int {
	if t.rows == 0 {
		return -1
	}
	return t.sel
}

// ColumnAt returns where column i was drawn last, in cells of the view; ok is false if it was left out.
func (t *Table) ColumnAt(i int) (x, w int, ok bool) {
	for _, p := range t.cols {
		if p.column == i {
			return t.at.X + p.x, p.w, true
		}
	}
	return 0, 0, false
}

// RowAt returns the row drawn at line y of the view, -1 for none.
func (t *Table) RowAt(y int) int {
	if row := t.top + y - t.at.Y - 1; y > t.at.Y && y < t.at.Y+t.at.H && row < t.rows {
		return row
	}
	return -1
}

// Line returns the line of the view in which a row was drawn last; ok is false if it is not visible.
func (t *Table) Line(row int) (y int, ok bool) {
	if row < t.top || row >= min(t.top+t.visible(), t.rows) || t.at.H < 2 {
		return 0, false
	}
	return t.at.Y + 1 + row - t.top, true
}

// Top returns the first visible row.
func (t *Table) Top() int { return t.top }

// Select selects a row and scrolls it into view.
func (t *Table) Select(row int) {
	t.sel = min(max(row, 0), max(t.rows-1, 0))
	t.reveal()
}

// visible returns the number of rows that fit in the last drawn area; 1 before the first Draw.
func (t *Table) visible() int { return max(t.at.H-1, 1) }

func (t *Table) scrollTo(top int) { t.top = max(min(top, t.rows-t.visible()), 0) }

func (t *Table) reveal() {
	switch n := t.visible(); {
	case t.sel < t.top:
		t.top = t.sel
	case t.sel >= t.top+n:
		t.top = t.sel - n + 1
	}
	t.scrollTo(t.top)
}

// Update handles keys, and mouse messages within the table; coordinates are those of the canvas given to
// Draw.
func (t *Table) Update(msg tea.Msg) Action {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		if t.Blurred {
			return Action{Kind: Ignored, Row: t.Selected()}
		}
		return t.key(msg)
	case tea.MouseClickMsg:
		return t.click(msg.Mouse())
	case tea.MouseMotionMsg:
		if t.drag && msg.Button == tea.MouseLeft {
			t.dragTo(msg.Y)
			return t.did(Scrolled)
		}
		t.drag = false
	case tea.MouseReleaseMsg:
		if t.drag {
			t.drag = false
			return t.did(Scrolled)
		}
	case tea.MouseWheelMsg:
		if t.at.Contains(msg.X, msg.Y) {
			switch msg.Button {
			case tea.MouseWheelUp:
				t.scrollTo(t.top - wheelRows)
			case tea.MouseWheelDown:
				t.scrollTo(t.top + wheelRows)
			default:
				return t.did(Ignored)
			}
			return t.did(Scrolled)
		}
	}
	return t.did(Ignored)
}

func (t *Table) did(k Kind) Action { return Action{Kind: k, Row: t.Selected()} }

func (t *Table) key(msg tea.KeyPressMsg) Action {
	page := max(t.visible()-1, 1)
	switch {
	case key.Matches(msg, t.keys.Up):
		return t.moveTo(t.sel - 1)
	case key.Matches(msg, t.keys.Down):
		return t.moveTo(t.sel + 1)
	case key.Matches(msg, t.keys.PageUp):
		return t.moveTo(t.sel - page)
	case key.Matches(msg, t.keys.PageDown):
		return t.moveTo(t.sel + page)
	case key.Matches(msg, t.keys.Home):
		return t.moveTo(0)
	case key.Matches(msg, t.keys.End):
		return t.moveTo(t.rows - 1)
	case key.Matches(msg, t.keys.Open):
		if t.rows > 0 {
			return t.did(Opened)
		}
	case key.Matches(msg, t.keys.Sort):
		if next := t.nextSortable(); next >= 0 {
			return t.sortBy(next)
		}
	case key.Matches(msg, t.keys.Reverse):
		if t.SortBy >= 0 {
			return t.sortBy(t.SortBy)
		}
	}
	return t.did(Ignored)
}

func (t *Table) moveTo(row int) Action {
	before := t.sel
	t.Select(row)
	if t.rows == 0 || t.sel == before {
		return t.did(Scrolled)
	}
	return t.did(Moved)
}

// nextSortable returns the sortable column after the current one among those on the screen, -1 for none.
func (t *Table) nextSortable() int {
	first, pick := -1, -1
	for _, p := range t.cols {
		if !t.Columns[p.column].Sortable {
			continue
		}
		if first < 0 {
			first = p.column
		}
		if p.column > t.SortBy && pick < 0 {
			pick = p.column
		}
	}
	if pick < 0 {
		return first
	}
	return pick
}

// sortBy marks column i: numbers start with the largest, text with the first; sorting again reverses the
// order.
func (t *Table) sortBy(i int) Action {
	if t.SortBy == i {
		t.Descending = !t.Descending
	} else {
		t.SortBy, t.Descending = i, t.Columns[i].Right
	}
	return Action{Kind: Sorted, Row: t.Selected(), Column: i}
}

func (t *Table) click(m tea.Mouse) Action {
	t.drag = false // the release may have gone to another view
	if m.Button != tea.MouseLeft || !t.at.Contains(m.X, m.Y) {
		return t.did(Ignored)
	}
	x, y := m.X-t.at.X, m.Y-t.at.Y
	switch {
	case y == 0:
		for _, p := range t.cols {
			if x >= p.x && x < p.x+p.w+gap && t.Columns[p.column].Sortable {
				return t.sortBy(p.column)
			}
		}
		return t.did(Scrolled)
	case t.scrolls() && x == t.at.W-1:
		t.drag = true
		t.dragTo(m.Y)
		return t.did(Scrolled)
	}
	row := t.top + y - 1
	switch {
	case row >= t.rows:
		return t.did(Scrolled)
	case row == t.sel && !t.Blurred:
		return t.did(Opened)
	}
	t.sel = row
	return t.did(Moved)
}

func (t *Table) scrolls() bool { return t.rows > t.visible() }

func (t *Table) dragTo(y int) {
	n := t.visible()
	if n <= 1 {
		return
	}
	pos := min(max(y-t.at.Y-1, 0), n-1)
	t.scrollTo(int(int64(pos) * int64(t.rows-n) / int64(n-1)))
}
