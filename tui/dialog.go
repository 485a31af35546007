package tui

import (
	"strings"
	"unicode"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// dialog is what lies above the view and has all keys: the list of help, palette and pickers, and the line of the filter.
type dialog interface {
	update(m *Model, msg tea.Msg) tea.Cmd
	draw(m *Model, c *canvas.Canvas)
	hints() []key.Binding
}

func (m *Model) top() dialog { return m.dialogs[len(m.dialogs)-1] }

func (m *Model) open(d dialog) tea.Cmd {
	m.dialogs = append(m.dialogs, d)
	m.state.Focused = false
	return nil
}

func (m *Model) close() tea.Cmd {
	if n := len(m.dialogs); n > 0 {
		m.dialogs = m.dialogs[:n-1]
	}
	m.state.Focused = len(m.dialogs) == 0
	return nil
}

// entry is one row of a list.
type entry struct {
	group, title, key, detail string
	enabled                   bool
	run                       func() tea.Cmd
}

// list is a dialog of rows that are searched by typing and run by enter or a click.
type list struct {
	title   string
	hint    string // what typing does
	entries []entry
	shown   []int // indices into entries that match the text
	at, top int
	rows    int // rows visible at the last draw
	text    input
	footer  string
}

func newList(title, hint string, entries []entry) *list {
	l := &list{title: title, hint: hint, entries: entries}
	l.filter()
	return l
}

var listKeys = struct{ up, down, pageUp, pageDown, first, last, run, leave key.Binding }{
	up: bind("↑", "up", "up", "ctrl+k"), down: bind("↓", "down", "down", "ctrl+j", "ctrl+n"),
	pageUp: bind("pgup", "page up", "pgup"), pageDown: bind("pgdn", "page down", "pgdown"),
	first: bind("home", "first", "home"), last: bind("end", "last", "end"),
	run: bind("enter", "do it", "enter"), leave: bind("esc", "close", "esc"),
}

func (l *list) hints() []key.Binding {
	return []key.Binding{listKeys.run, listKeys.up, listKeys.down, listKeys.leave}
}

// filter finds the entries that contain every word of the text. Entries that begin with it come in their own order like the
// others: a list that reorders under the hand cannot be learnt.
func (l *list) filter() {
	l.shown = l.shown[:0]
	words := strings.Fields(strings.ToLower(l.text.String()))
	for i, e := range l.entries {
		text := strings.ToLower(e.key + " " + e.title + " " + e.detail + " " + e.group)
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all {
			l.shown = append(l.shown, i)
		}
	}
	l.at, l.top = 0, 0
}

func (l *list) update(m *Model, msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case rowMsg:
		l.at = msg.row
		return l.run(m)
	case closeMsg:
		return m.close()
	case tea.MouseWheelMsg:
		if msg.Button == tea.MouseWheelUp {
			l.move(-3)
		} else if msg.Button == tea.MouseWheelDown {
			l.move(3)
		}
	case tea.PasteMsg:
		l.text.insert(msg.Content)
		l.filter()
	case tea.KeyPressMsg:
		return l.onKey(m, msg)
	}
	return nil
}

func (l *list) onKey(m *Model, msg tea.KeyPressMsg) tea.Cmd {
	switch {
	case key.Matches(msg, listKeys.leave):
		return m.close()
	case key.Matches(msg, listKeys.run):
		return l.run(m)
	case key.Matches(msg, listKeys.up):
		l.move(-1)
	case key.Matches(msg, listKeys.down):
		l.move(1)
	case key.Matches(msg, listKeys.pageUp):
		l.move(-max(l.rows-1, 1))
	case key.Matches(msg, listKeys.pageDown):
		l.move(max(l.rows-1, 1))
	case key.Matches(msg, listKeys.first):
		l.move(-len(l.shown))
	case key.Matches(msg, listKeys.last):
		l.move(len(l.shown))
	default:
		if l.text.update(msg) {
			l.filter()
		}
	}
	return nil
}

func (l *list) move(by int) { l.at = max(min(l.at+by, len(l.shown)-1), 0) }

func (l *list) run(m *Model) tea.Cmd {
	if l.at >= len(l.shown) {
		return nil
	}
	e := l.entries[l.shown[l.at]]
	if !e.enabled || e.run == nil {
		return nil
	}
	return tea.Batch(m.close(), e.run(), m.changed())
}

// leastBeside is the width from which on something is read beside a dialog.
const leastBeside = 12

func (l *list) draw(m *Model, c *canvas.Canvas) {
	th := m.state.Theme
	w, h := 72, len(l.entries)+6
	for i, e := range l.entries {
		if i > 0 && e.group != l.entries[i-1].group {
			h++
		}
	}
	around := c.Bounds().Inset(2, 1)
	if c.Width()-w < 2*leastBeside { // a strip of what lies behind would hold halves of words
		around, w = c.Bounds().Inset(0, 1), c.Width()
	}
	frame := middle(around, w, min(h, 36))
	box := panel(m, c, frame, l.title)
	w, h = box.Size()
	x := box.Text(0, 0, th.OnDialog(th.Accent), "› ")
	if l.text.String() == "" {
		box.TextMax(x, 0, w-x, th.OnDialog(th.Dim), l.hint)
	} else {
		x += box.Text(x, 0, th.OnDialog(th.Strong), l.text.String())
	}
	box.Set(min(x, w-1), 0, box.At(min(x, w-1), 0).Rune, box.Style(canvas.Style{Reverse: true}))
	l.rows = h - 2
	if l.footer != "" {
		box.TextMax(0, h-1, w, th.OnDialog(th.Dim), l.footer)
		l.rows--
	}
	l.drawRows(m, box.Sub(canvas.Rect{Y: 2, W: w, H: l.rows}))
}

// drawRows draws the rows around the one that is chosen; a group's name stands to the left of its first row that is visible.
func (l *list) drawRows(m *Model, c *canvas.Canvas) {
	th := m.state.Theme
	w, h := c.Size()
	if len(l.shown) == 0 {
		c.Text(0, 0, th.OnDialog(th.Dim), "nothing matches")
		return
	}
	l.top = max(min(l.top, l.at), l.at-h+1, 0)
	groups := 0
	for _, e := range l.entries {
		groups = max(groups, canvas.Width(e.group))
	}
	if groups > 0 {
		groups += 2
	}
	for y := 0; y < h && l.top+y < len(l.shown); y++ {
		e := l.entries[l.shown[l.top+y]]
		if y == 0 || e.group != l.entries[l.shown[l.top+y-1]].group {
			c.TextMax(0, y, groups-1, th.OnDialog(th.Dim), e.group)
		}
		text, keys := th.OnDialog(th.Text), th.OnDialog(th.Accent)
		if !e.enabled {
			text, keys = th.OnDialog(th.Faint), th.OnDialog(th.Faint)
		}
		row := canvas.Rect{X: groups, Y: y, W: w - groups, H: 1}
		if l.top+y == l.at {
			text, keys = th.OnSelected(th.Strong), th.OnSelected(th.Accent)
			c.Fill(row, ' ', text)
		}
		x := groups + 1
		if e.key != "" {
			c.Text(x, y, keys, e.key)
			x += max(8, canvas.Width(e.key)+1)
		}
		x += c.TextMax(x, y, w-x, text, e.title)
		if e.detail != "" {
			dim := th.OnDialog(th.Dim)
			if l.top+y == l.at {
				dim = th.OnSelected(th.Dim)
			}
			room := w - x - 3
			if room > 4 {
				detail := canvas.Truncate(e.detail, room)
				c.TextRight(w-1, y, dim, detail)
			}
		}
		c.Zone(row, rowMsg{l.top + y})
	}
}

// panel draws the empty frame of a dialog and returns its inside. What lies beneath can no longer be clicked.
func panel(m *Model, c *canvas.Canvas, r canvas.Rect, title string) *canvas.Canvas {
	th := m.state.Theme
	c.DropZones()
	c.Fill(r, ' ', th.Dialog)
	if th.Mono {
		edge(c, r)
	}
	c.Zone(r, leaf.ChangedMsg{}) // a click beside the rows is not a click outside
	c.TextMax(r.X+2, r.Y, r.W-10, th.OnDialog(th.Strong), title)
	c.TextRight(r.X+r.W-2, r.Y, th.OnDialog(th.Dim), "esc")
	c.Zone(canvas.Rect{X: r.X + r.W - 6, Y: r.Y, W: 6, H: 1}, closeMsg{})
	return c.Sub(canvas.Rect{X: r.X + 2, Y: r.Y + 2, W: r.W - 4, H: r.H - 3})
}

// edge draws a thin line around a dialog where no background tells it from what lies beneath.
func edge(c *canvas.Canvas, r canvas.Rect) {
	var st canvas.Style
	c.HLine(r.X, r.Y, r.W, st)
	c.HLine(r.X, r.Y+r.H-1, r.W, st)
	c.VLine(r.X, r.Y, r.H, st)
	c.VLine(r.X+r.W-1, r.Y, r.H, st)
	for _, p := range []struct {
		x, y int
		r    rune
	}{{r.X, r.Y, '┌'}, {r.X + r.W - 1, r.Y, '┐'}, {r.X, r.Y + r.H - 1, '└'}, {r.X + r.W - 1, r.Y + r.H - 1, '┘'}} {
		c.Set(p.x, p.y, p.r, 0)
	}
}

// input is one line of text being edited.
type input struct {
	runes []rune
	at    int
}

func newInput(text string) input { return input{[]rune(text), len([]rune(text))} }

func (i *input) String() string { return string(i.runes) }

func (i *input) insert(text string) {
	for _, r := range text {
		if unicode.IsPrint(r) {
			i.runes = append(i.runes[:i.at], append([]rune{r}, i.runes[i.at:]...)...)
			i.at++
		}
	}
}

// update handles an editing key and reports whether the text changed.
func (i *input) update(msg tea.KeyPressMsg) bool {
	switch msg.String() {
	case "left":
		i.at = max(i.at-1, 0)
	case "right":
		i.at = min(i.at+1, len(i.runes))
	case "home", "ctrl+a":
		i.at = 0
	case "end", "ctrl+e":
		i.at = len(i.runes)
	case "backspace", "ctrl+h":
		if i.at > 0 {
			i.runes = append(i.runes[:i.at-1], i.runes[i.at:]...)
			i.at--
			return true
		}
	case "delete":
		if i.at < len(i.runes) {
			i.runes = append(i.runes[:i.at], i.runes[i.at+1:]...)
			return true
		}
	case "ctrl+u":
		i.runes, i.at = i.runes[i.at:], 0
		return true
	case "ctrl+w":
		from := i.at
		for from > 0 && i.runes[from-1] == ' ' {
			from--
		}
		for from > 0 && i.runes[from-1] != ' ' {
			from--
		}
		i.runes = append(i.runes[:from], i.runes[i.at:]...)
		i.at = from
		return true
	default:
		text := msg.Key().Text
		if text == "" && msg.String() == "space" {
			text = " "
		}
		if text == "" {
			return false
		}
		i.insert(text)
		return true
	}
	return false
}
