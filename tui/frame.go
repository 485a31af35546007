package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/steps"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/dialog"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// View implements tea.Model.
func (m *model) View() tea.View {
	defer logPanic(m)
	m.draw()
	v := tea.NewView(m.screen.canvas.String())
	v.AltScreen = true
	v.WindowTitle, v.MouseMode = title(&m.follow, m.state.Timeline), m.display.mouseMode()
	return v
}

// shot takes the view in front without the dialogs over it.
func (m *model) shot() shot {
	dialogs := m.dialogs
	m.dialogs = dialog.Stack{}
	m.draw()
	fore, back := m.state.Theme.Ground()
	x := shot{m.tabs.view().Name(), m.screen.canvas.String(), canvas.SVG(m.screen.canvas, fore, back)}
	m.dialogs = dialogs
	return x
}

// title is the terminal's title.
func title(f *follow, t *timeline.Timeline) string {
	if f.live != nil {
		l := f.live.Look()
		text := strings.TrimSpace("gmemtop " + l.Title)
		if l.Detached {
			text += " (detached)"
		}
		return text
	}
	if t != nil && t.Trace.Source.Path != "" {
		return "gmemtop " + leaf.Base(t.Trace.Source.Path)
	}
	return "gmemtop"
}

// draw draws the whole frame into the canvas.
func (m *model) draw() {
	c, s, at := m.screen.canvas, &m.state, &m.screen.layout
	c.Clear()
	if at.tooSmall {
		drawTooSmall(s.Theme, c)
		return
	}
	idle := m.loader.idle()
	own := m.tabs.bindings(s, idle)
	status := c.Sub(at.status)
	switch {
	case !idle:
		m.loader.draw(s.Theme, c)
		m.toast.draw(s.Theme, status)
	default:
		below := at.source
		_, below = below.CutLeft(drawSearch(s, c.Sub(at.source), m.tabs.view(), &m.filter))
		drawTabs(s, c.Sub(at.tabs), c.Sub(below), &m.tabs, &m.follow)
		drawBanner(s.Theme, c.Sub(at.banner), m.warning())
		drawView(s, c.Sub(at.body), m.tabs.view(), &m.follow)
		own = m.tabs.bindings(s, idle) // after the view is drawn: some keys depend on what had room
		if !m.toast.draw(s.Theme, status) {
			searched := 0
			if at.source.H == 0 {
				searched = drawSearch(s, status, m.tabs.view(), &m.filter)
			}
			_, rest := at.status.CutLeft(searched)
			drawStatus(s, c.Sub(rest), m.tabs.view(), own != nil, &m.follow)
		}
	}
	m.dialogs.Draw(s.Theme, c)
	hints := c.Sub(at.hints)
	if top := m.dialogs.Top(); top != nil {
		drawDialogHints(s.Theme, hints, top.Hints())
		return
	}
	drawHints(s.Theme, hints, m.actions.hints(s, m.tabs.view(), own, idle, hints.Width()-hintsEnd))
}

func drawTooSmall(th *theme.Theme, c *canvas.Canvas) {
	w, h := c.Size()
	y := max(h/2-1, 0)
	what := "gmemtop needs more room"
	sizes := fmt.Sprintf("%d×%d here, %d×%d at least", w, h, minWidth, minHeight)
	if w < len(what) {
		what, sizes = "needs more room", fmt.Sprintf("at least %d×%d", minWidth, minHeight)
	}
	for _, line := range []string{c.Gloss(th.Strong).Render(what), c.Gloss(th.Dim).Render(sizes)} {
		c.Print(0, y, lipgloss.PlaceHorizontal(w, lipgloss.Center, line))
		y++
	}
}

// drawView draws the view in front, or why it has nothing to show.
func drawView(s *leaf.State, c *canvas.Canvas, v leaf.View, watched *follow) {
	if v == nil {
		return
	}
	ok, why := v.Available(s)
	if ok {
		v.Draw(s, c)
		return
	}
	if s.Timeline == nil && s.Run == nil { // the view is empty because nothing is open
		why = watched.nothingOpen(why)
	}
	leaf.Nothing(s, c, v.Name(), why)
}

// drawTabs draws the top line: the name, the views, and what is open at the right, or in the row below if it
// only fits there.
func drawTabs(s *leaf.State, c, below *canvas.Canvas, t *tabs, f *follow) {
	th := s.Theme
	w := c.Width()
	x := 0
	if w >= 106 || w < 79 {
		x = 2 + c.Text(1, 0, th.Accent.Strong(), "gmemtop")
	}
	x = t.draw(s, c, x)
	parts, room := source(f, s), w-x-2
	switch {
	case room >= canvas.Width(strings.Join(parts, partBy)) || below.Height() == 0 && room > 8:
		c.TextRight(w-1, 0, th.Dim, sourceText(parts, room))
	case below.Height() > 0:
		below.TextRight(below.Width()-1, 0, th.Dim, sourceText(parts, below.Width()-2))
	}
}

// partBy separates the parts of what is open.
const partBy = " · "

// sourceText joins the parts of what is open in w cells. The first part, a name, is shortened in the middle
// down to twelve cells to make room for the others; then the others are dropped, the last one first.
func sourceText(parts []string, w int) string {
	const least = 12
	for ; len(parts) > 0; parts = parts[:len(parts)-1] {
		over := canvas.Width(strings.Join(parts, partBy)) - w
		if over <= 0 {
			break
		}
		if left := canvas.Width(parts[0]) - over; left >= least || len(parts) == 1 {
			return strings.Join(append([]string{middleCut(parts[0], max(left, 0))}, parts[1:]...), partBy)
		}
	}
	return strings.Join(parts, partBy)
}

// source is what is open: file, rank, device, iterations, exactness.
func source(f *follow, s *leaf.State) []string {
	parts := f.source()
	switch {
	case f.live != nil: // the job's name says more than its window's
	case s.Timeline != nil:
		if p := s.Timeline.Trace.Source.Path; p != "" {
			parts = append(parts, leaf.Base(p))
		}
		if r, known := s.Timeline.Trace.Process.Rank.Value(); known {
			parts = append(parts, fmt.Sprintf("rank %d", r))
		}
	case s.Run != nil:
		parts = append(parts, fmt.Sprintf("%d ranks", len(s.Run.Ranks)))
	}
	if d := s.Device; d != nil {
		parts = append(parts, deviceName(d.Info))
		if s.Analysed {
			if n := len(steps.Of(d).List); n > 0 {
				parts = append(parts, timeline.Counted(n, "iteration"))
			}
		}
		parts = append(parts, exactnessWord(d.Totals.Exactness))
	}
	return parts
}

// middleCut shortens a file's name in the middle: its end tells files apart as often as its beginning.
func middleCut(name string, w int) string {
	if canvas.Width(name) <= w {
		return name
	}
	head := canvas.Truncate(name, w/2)
	return head + strings.TrimPrefix(canvas.TruncateLeft(name, w-canvas.Width(head)+1), "…")
}

func exactnessWord(e timeline.Exactness) string {
	return [...]string{"exact", "≥ lower bound", "~ inferred"}[min(e, timeline.Inferred)]
}

// drawBanner draws the line of warning.
func drawBanner(th *theme.Theme, c *canvas.Canvas, text string) {
	if c.Height() == 0 {
		return
	}
	w := c.Width()
	x := 1 + c.Text(1, 0, th.Warn, "! ")
	more := "0 for details"
	c.TextMax(x, 0, w-x-canvas.Width(more)-3, th.Warn, text)
	n := c.TextRight(w-1, 0, th.Dim, more)
	c.Zone(canvas.Rect{X: w - 1 - n, W: n, H: 1}, runMsg{"view 0"})
}

// drawStatus draws the status line: what is under the cursor of the view in front, whether or not the view
// has something to show.
func drawStatus(s *leaf.State, c *canvas.Canvas, v leaf.View, shows bool, watched *follow) {
	th := s.Theme
	w := c.Width()
	if v == nil || v.ID() != leaf.Live {
		w -= watched.drawAlert(th, s.Units, c)
	}
	if shows {
		c.TextMax(1, 0, w-3, th.Text, v.Status(s))
	}
}

// drawSearch says at the left of a row what is searched for, and how to end that; it returns the cells that
// it took. A search holds in all views, so that each says it.
func drawSearch(s *leaf.State, c *canvas.Canvas, v leaf.View, found *filter) int {
	w, h := c.Size()
	if s.QueryText == "" || h == 0 || s.Device == nil {
		return 0
	}
	text := "search "
	if filters(v) {
		text = "filter "
	}
	text += leaf.FilterName(s)
	count, end := "", "esc clears it"
	if n, ok := found.count(s.QueryText); ok {
		count = " (" + n + ")"
	}
	room := max(w*2/3-canvas.Width(end)-4, 1)
	text = canvas.Truncate(text, max(room-canvas.Width(count), 1)) + count
	n := c.TextMax(1, 0, room, s.Theme.Accent, text)
	c.Zone(canvas.Rect{X: 1, W: n, H: 1}, runMsg{"filter"})
	x := n + 3
	m := c.TextMax(x, 0, max(w-x, 0), s.Theme.Dim, end)
	c.Zone(canvas.Rect{X: x, W: m, H: 1}, runMsg{"back"})
	return min(x+m, w)
}

// hint is a key in the bottom line and what a click on it does.
type hint struct {
	key.Binding
	msg any
}

func (h hint) width() int { return canvas.Width(h.Help().Key) + 1 + canvas.Width(h.Help().Desc) }

// betweenHints separates hints.
const betweenHints = "  "

// helpHint is at the right end of the bottom line; hintsEnd are the cells that the other hints leave for it.
var (
	helpHint = hint{bind("?", "help", "?"), runMsg{"help"}}
	hintsEnd = helpHint.width() + len(betweenHints) + 3
)

// drawHints draws the keys that do something now, with help at the right end.
func drawHints(th *theme.Theme, c *canvas.Canvas, list []hint) {
	printHints(th, c, c.Width()+2-hintsEnd, []hint{helpHint})
	printHints(th, c, 1, list)
}

// drawDialogHints draws the keys of a dialog.
func drawDialogHints(th *theme.Theme, c *canvas.Canvas, own []key.Binding) {
	c.Fill(c.Bounds(), ' ', th.Text)
	list := hintList{room: c.Width() - 3}
	for _, b := range own {
		list.add(b, nil)
	}
	printHints(th, c, 1, list.hints)
}

// hintList is the hints that fit in a number of cells, each key once.
type hintList struct {
	room  int
	hints []hint
}

// add adds a binding if it does something and has room; msg is what a click on it does, nil for its key.
func (l *hintList) add(b key.Binding, msg any) {
	h, keys := hint{b, msg}, b.Keys()
	need := h.width() + len(betweenHints)
	if need > l.room || !b.Enabled() || len(keys) == 0 || b.Help().Key == "" {
		return
	}
	for _, other := range l.hints {
		if other.Keys()[0] == keys[0] {
			return
		}
	}
	if msg == nil {
		h.msg = leaf.KeyMsg{Key: keys[0]}
	}
	l.hints = append(l.hints, h)
	l.room -= need
}

// hints returns the hints that fit in w cells: the view's own, then the root's most useful ones. Whatever the
// view has, there is room for those that always stay.
func (k keymap) hints(s *leaf.State, v leaf.View, own []key.Binding, idle bool, w int) []hint {
	add := func(list *hintList, names []string) {
		for _, name := range names {
			if a := k.named(name); a != nil && a.enabled() && !shadowed(v, s, a, own) {
				list.add(shortHint(a, v), runMsg{name})
			}
		}
	}
	last := hintList{room: w}
	add(&last, stayingHints)
	list := hintList{room: last.room}
	first := min(len(own), 5)
	for _, b := range own[:first] {
		list.add(b, nil)
	}
	add(&list, hintNames)
	for _, b := range own[first:] {
		list.add(b, nil)
	}
	list.hints = append(list.hints, last.hints...)
	if !idle {
		list.add(bind("q", "quit", "q"), runMsg{"quit"})
	}
	return list.hints
}

func printHints(th *theme.Theme, c *canvas.Canvas, x int, list []hint) {
	line := help.New()
	line.ShortSeparator = betweenHints
	line.Styles = help.Styles{ShortKey: c.Gloss(th.Accent), ShortDesc: c.Gloss(th.Dim)}
	bindings := make([]key.Binding, len(list))
	at := x
	for i, h := range list {
		bindings[i] = h.Binding
		c.Zone(canvas.Rect{X: at, W: h.width(), H: 1}, h.msg)
		at += h.width() + len(betweenHints)
	}
	c.Print(x, 0, line.ShortHelpView(bindings))
}

// shadowed reports whether an action of the root needs no hint here: the view in front uses its key for
// something else, or shows nothing that it changes.
func shadowed(v leaf.View, s *leaf.State, a *action, own []key.Binding) bool {
	if timeless(v, s) && (a.group == groupMove || a.group == groupLook || a.group == groupCompare ||
		a.group == groupFind) {
		return true
	}
	for _, b := range own {
		for _, k := range b.Keys() {
			if slices.Contains(a.binding.Keys(), k) {
				return true
			}
		}
	}
	return false
}

// timeless reports whether a view shows nothing that has a place in time.
func timeless(v leaf.View, s *leaf.State) bool {
	if t, ok := v.(leaf.Timeless); ok && t.Timeless() {
		return true
	}
	if v == nil {
		return true
	}
	ok, _ := v.Available(s)
	return !ok // the view explains why it is empty
}

// filters reports whether a view shows only the blocks that match, instead of being searched for them.
func filters(v leaf.View) bool { return v != nil && v.ID() == leaf.Allocations }

// shortHints are the keys and words of actions that fit the bottom line.
var shortHints = map[string][2]string{
	"peak":           {"p", "peak"},
	"zoom in":        {"+−", "zoom"},
	"next iteration": {"[ ]", "iteration"},
	"filter":         {"/", "search"},
	"mark":           {"c", "compare"},
	"compare":        {"d", "with the mark"},
	"back":           {"esc", "back"},
	"next match":     {"n N", "match"},
	"follow":         {"o", "source"},
	"follow job":     {"F", "follow on/off"},
	"rank":           {"w", "rank"},
	"export":         {"e", "export"},
	"device":         {"D", "device"},
	"file":           {"w", "file"},
	"palette":        {":", "more"},
}

// shortHint is an action's binding with the words that fit the bottom line.
func shortHint(a *action, v leaf.View) key.Binding {
	b := a.binding
	if w, ok := shortHints[a.name]; ok {
		b.SetHelp(w[0], w[1])
	}
	if a.name == "filter" && filters(v) {
		b.SetHelp("/", "filter")
	}
	return b
}
