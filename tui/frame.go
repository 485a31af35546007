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
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// View implements tea.Model.
func (m *Model) View() tea.View {
	defer m.logPanic()
	m.draw()
	v := tea.NewView(m.screen.canvas.String())
	v.AltScreen = true
	v.WindowTitle = title(&m.follow, m.state.Timeline)
	if m.mouse {
		v.MouseMode = tea.MouseModeCellMotion
	}
	return v
}

// title is the terminal's title.
func title(f *follow, t *timeline.Timeline) string {
	if f.live != nil {
		return strings.TrimSpace("gmemtop " + f.live.Look().Title)
	}
	if t != nil && t.Trace.Source.Path != "" {
		return "gmemtop " + leaf.Base(t.Trace.Source.Path)
	}
	return "gmemtop"
}

// draw draws the whole frame into the canvas.
func (m *Model) draw() {
	c := m.screen.canvas
	c.Clear()
	if m.screen.layout.tooSmall {
		drawTooSmall(m.state.Theme, c)
		return
	}
	switch {
	case !m.loader.idle():
		m.loader.draw(m.state.Theme, c)
		m.toast.draw(m.state.Theme, c.Sub(m.screen.layout.status))
	default:
		at := &m.screen.layout
		drawTabs(&m.state, c.Sub(at.tabs), c.Sub(at.source), &m.tabs, &m.follow)
		drawBanner(m.state.Theme, c.Sub(m.screen.layout.banner), m.banner())
		m.drawView(c.Sub(m.screen.layout.body))
		m.drawStatus(c.Sub(m.screen.layout.status))
	}
	m.dialogs.Draw(m.state.Theme, c)
	m.drawHints(c.Sub(m.screen.layout.hints))
}

func drawTooSmall(th *theme.Theme, c *canvas.Canvas) {
	w, h := c.Size()
	y := max(h/2-1, 0)
	for _, line := range []string{
		c.Gloss(th.Strong).Render("gmemtop needs more room"),
		c.Gloss(th.Dim).Render(fmt.Sprintf("%d×%d here, %d×%d at least", w, h, minWidth, minHeight)),
	} {
		c.Print(0, y, lipgloss.PlaceHorizontal(w, lipgloss.Center, line))
		y++
	}
}

// drawView draws the view in front, or why it has nothing to show.
func (m *Model) drawView(c *canvas.Canvas) {
	v := m.tabs.view()
	if v == nil {
		return
	}
	ok, why := v.Available(&m.state)
	if ok {
		v.Draw(&m.state, c)
		return
	}
	if m.state.Timeline == nil && m.state.Run == nil { // what is wanted is not in what is open: nothing is
		why = m.follow.nothingOpen(why)
	}
	title, why, command := unavailable(v.Name(), why)
	leaf.Empty(&m.state, c, title, why, command)
}

// unavailable splits a view's reason into its sentence and the command in backquotes that would make it, if
// there is one.
func unavailable(name, why string) (title, sentence, command string) {
	if i := strings.IndexByte(why, '`'); i >= 0 {
		if j := strings.IndexByte(why[i+1:], '`'); j >= 0 {
			command = why[i+1 : i+1+j]
			sentence = strings.TrimSpace(why[:i] + why[i+j+2:])
			return name + " has nothing to show", sentence, command
		}
	}
	return name + " has nothing to show", why, ""
}

// drawTabs draws the top line: the name, the views, and what is open at the right, or in the row below where
// only that has room.
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
		below.TextRight(w-1, 0, th.Dim, sourceText(parts, w-2))
	}
}

// partBy stands between the parts of what is open.
const partBy = " · "

// sourceText joins the parts of what is open in w cells: the first, a name, loses its middle for the others
// as long as twelve cells of it are left, then the others go, the last one first.
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
		if r := s.Timeline.Trace.Process.Rank; r >= 0 {
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

// middleCut cuts the middle out of a file's name: its end tells it from its neighbours as often as its
// beginning.
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

// banner is the one line of warning over the view: what is partial or lost. It is "" where nothing is.
func (m *Model) banner() string {
	if m.loader.partial != nil {
		return "partial: " + m.loader.partial.Error()
	}
	if m.state.Timeline == nil {
		return ""
	}
	var worst *traces.Loss
	more := 0
	losses := m.state.Timeline.Trace.Losses
	for i := range losses {
		l := &losses[i]
		if l.Severity == traces.Info {
			continue
		}
		if worst == nil || l.Severity > worst.Severity {
			worst = l
		}
		more++
	}
	if worst == nil {
		return ""
	}
	text := fmt.Sprintf("%s %s", leaf.Count(worst.Count), strings.ReplaceAll(worst.Name, "_", " "))
	if worst.Detail != "" {
		text += ": " + worst.Detail
	}
	if more > 1 {
		text += fmt.Sprintf(" (and %d more)", more-1)
	}
	return text
}

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

// drawStatus says what is under the cursor, or a toast.
func (m *Model) drawStatus(c *canvas.Canvas) {
	if m.toast.draw(m.state.Theme, c) {
		return
	}
	th := m.state.Theme
	w := c.Width()
	if m.tabs.front != leaf.Live {
		w -= m.follow.drawAlert(th, m.state.Units, c)
	}
	if m.bindings() == nil {
		return
	}
	right := ""
	if m.state.QueryText != "" {
		right = "filter " + m.state.QueryText
		if n, ok := m.filter.count(m.state.QueryText); ok {
			right += " (" + n + ")"
		}
		right = canvas.Truncate(right, w/3)
		n := c.TextRight(w-1, 0, th.Accent, right)
		c.Zone(canvas.Rect{X: w - 1 - n, W: n, H: 1}, runMsg{"filter"})
	}
	c.TextMax(1, 0, w-canvas.Width(right)-3, th.Text, m.tabs.view().Status(&m.state))
}

// hint is a key of the bottom line and what a click on it does.
type hint struct {
	key.Binding
	msg any
}

func (h hint) width() int { return canvas.Width(h.Help().Key) + 1 + canvas.Width(h.Help().Desc) }

// betweenHints stands between two of them.
const betweenHints = "  "

// drawHints draws the keys that do something now, and help at the right end where no dialog is open.
func (m *Model) drawHints(c *canvas.Canvas) {
	th, w := m.state.Theme, c.Width()
	if m.dialogs.Len() > 0 {
		c.Fill(c.Bounds(), ' ', th.Text)
		printHints(th, c, 1, m.hints(w-3))
		return
	}
	help := hint{bind("?", "help", "?"), runMsg{"help"}}
	at := w - 1 - help.width() - len(betweenHints)
	printHints(th, c, at, []hint{help})
	printHints(th, c, 1, m.hints(at-2))
}

// hints are those that fit in w cells: the dialog's, or the view's and then the root's most useful ones.
func (m *Model) hints(w int) (list []hint) {
	seen := map[string]bool{}
	add := func(b key.Binding, msg any) {
		h, keys := hint{b, msg}, b.Keys()
		fits := h.width()+len(betweenHints) <= w
		if !fits || !b.Enabled() || len(keys) == 0 || b.Help().Key == "" || seen[keys[0]] {
			return
		}
		seen[keys[0]] = true
		if msg == nil {
			h.msg = leaf.KeyMsg{Key: keys[0]}
		}
		list = append(list, h)
		w -= h.width() + len(betweenHints)
	}
	if top := m.dialogs.Top(); top != nil {
		for _, b := range top.Hints() {
			add(b, nil)
		}
		return list
	}
	own := m.bindings()
	first := min(len(own), 5)
	for _, b := range own[:first] {
		add(b, nil)
	}
	for _, name := range hintNames {
		if a := m.actions.named(name); a != nil && a.enabled() && !shadowed(m.tabs.view(), &m.state, a, own) {
			add(shortHint(a), runMsg{name})
		}
	}
	for _, b := range own[first:] {
		add(b, nil)
	}
	if !m.loader.idle() {
		add(bind("q", "quit", "q"), runMsg{"quit"})
	}
	return list
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

// shadowed reports whether a root's action is not worth a hint here: the view in front uses its key for
// something else, or shows nothing of what it changes.
func shadowed(v leaf.View, s *leaf.State, a *action, own []key.Binding) bool {
	timeless := false
	if t, ok := v.(leaf.Timeless); ok {
		timeless = t.Timeless()
	}
	if ok, _ := v.Available(s); !ok {
		timeless = true // it says why it has nothing to show
	}
	if timeless && (a.group == groupMove || a.group == groupLook && a.name != "device" && a.name != "file" ||
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

// shortHint is an action's binding with the words that fit the bottom line.
func shortHint(a *action) key.Binding {
	words := map[string][2]string{
		"peak": {"p", "peak"}, "zoom in": {"+−", "zoom"}, "next iteration": {"[ ]", "iteration"},
		"filter": {"/", "filter"},
		"mark":   {"c", "mark"}, "compare": {"d", "compare"}, "back": {"esc", "back"}, "next match": {"n N", "match"},
		"follow": {"o", "source"}, "follow job": {"F", "follow, hold"}, "rank": {"w", "rank"},
		"export": {"e", "export"}, "device": {"D", "device"}, "file": {"w", "file"}, "palette": {":", "more"},
	}
	b := a.binding
	if w, ok := words[a.name]; ok {
		b.SetHelp(w[0], w[1])
	}
	return b
}
