package oom

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
	"github.com/gmemtop/gmemtop/tui/theme"
)

// The list of levers by their names and, under it, as many of them in full as have room.

const (
	leastLevers  = 3 // rows of the list of levers that stay while one of them is read
	leastHolders = 4 // rows of the table of holders that are worth a table
)

// leverList is the table of levers, and each of them in full below it.
type leverList struct {
	*table.Table
	all     []lever // its rows
	laidOut []page  // the levers in full, nil if they must be laid out again
	laid    layout
}

// set changes the levers. The chosen one stays chosen.
func (t *leverList) set(all []lever) {
	chosen := ""
	if i := t.Selected(); i > 0 && i < len(t.all) {
		chosen = t.all[i].name
	}
	t.all, t.laidOut = all, nil
	t.Columns[len(t.Columns)-1].Title = t.heading()
	t.SetRows(len(all))
	if chosen != "" {
		t.Select(max(slices.IndexFunc(all, func(l lever) bool { return l.name == chosen }), 0))
	}
}

// draw draws the list of levers by their names and, under it, as many of them in full as fit, the
// selected one first. The rest continue in more, which may be empty. Rows of the list give way to the
// selected lever, which is what the reader wants to see.
func (t *leverList) draw(s *leaf.State, c *canvas.Canvas, at, more canvas.Rect) {
	pages := t.pages(s, c, at.W)
	rows := len(t.all) + 1
	if chosen := t.Selected(); chosen >= 0 && len(pages) > 0 {
		if room := at.H - pages[chosen].height(); room > rows {
			rows++ // a blank one below the list
		} else {
			rows = min(rows, max(room, min(len(t.all), leastLevers)+1))
		}
	}
	list, below := at.CutTop(min(rows, at.H))
	t.Draw(c, list, s.Theme, func(row, col int) table.Cell {
		return leverCell(s, &t.all[row], col)
	})
	if len(pages) == 0 {
		return
	}
	shown := inFull(pages, t.Selected(), []int{below.H, more.H})
	for k, area := range []canvas.Rect{below, more} {
		for _, i := range shown[k] {
			t.drawPage(s, c, &area, i, pages[i])
			_, area = area.CutTop(1)
		}
	}
}

// inFull returns which pages are drawn in columns of given heights, a blank row between two: from the first
// on, or from the first with which the selected one still has room. A page that has no room in a column goes
// to the next one; the selected one is drawn in any case.
func inFull(pages []page, selected int, heights []int) [][]int {
	for from := range pages {
		shown, left, k := make([][]int, len(heights)), slices.Clone(heights), 0
		found := false
		for i := from; i < len(pages); i++ {
			for k < len(left) && pages[i].height() > left[k] {
				k++
			}
			if k == len(left) {
				break
			}
			shown[k] = append(shown[k], i)
			left[k] -= pages[i].height() + 1
			found = found || i == selected
		}
		if found {
			return shown
		}
	}
	shown := make([][]int, len(heights))
	if selected >= 0 && selected < len(pages) {
		shown[0] = []int{selected}
	}
	return shown
}

// page is a lever in full: what to do, the outcome of trying it, and the code to change, each in its style.
type page struct{ text, code []string }

func (b *page) height() int { return 1 + len(b.text) + len(b.code) }

func highest(blocks []page) (rows int) {
	for i := range blocks {
		rows = max(rows, blocks[i].height())
	}
	return rows
}

// allRows is the rows that all pages take, each with a blank one after it.
func allRows(pages []page) (rows int) {
	for i := range pages {
		rows += pages[i].height() + 1
	}
	return rows
}

// mostRows is how many of some rows pages take, with a blank one before each, whichever is selected.
func mostRows(pages []page, rows int) (most int) {
	for selected := range pages {
		taken := 0
		for _, i := range inFull(pages, selected, []int{rows - 1})[0] {
			taken += pages[i].height() + 1
		}
		most = max(most, taken)
	}
	return min(most, rows)
}

// heading is the title of the levers' names. It explains the mark of those that the answer on top names.
func (t *leverList) heading() string {
	if slices.ContainsFunc(t.all, func(l lever) bool { return l.named }) {
		return "  what would help, ● named above"
	}
	return "  what would help"
}

// layout is what the pages depend on beside the levers themselves.
type layout struct {
	width   int
	theme   *theme.Theme
	profile canvas.Profile
}

// pages lays out all levers in w cells; nil if that is too narrow to read. It is done once: frames only
// print them.
func (t *leverList) pages(s *leaf.State, c *canvas.Canvas, w int) []page {
	if w < 40 {
		return nil
	}
	if k := (layout{w, s.Theme, c.Profile()}); t.laid != k || t.laidOut == nil {
		t.laid, t.laidOut = k, t.layOut(s, c, w)
	}
	return t.laidOut
}

func (t *leverList) layOut(s *leaf.State, c *canvas.Canvas, w int) []page {
	blocks := make([]page, len(t.all))
	for i := range t.all {
		l, b := &t.all[i], &blocks[i]
		_, st := l.look(s.Theme)
		text := leaf.Paragraph(c, s.Theme.Text, l.text, w)
		if l.came != "" {
			text += "\n" + leaf.Paragraph(c, st, l.came, w)
		}
		b.text = strings.Split(text, "\n")
		if l.command != "" {
			b.code = leaf.Wrap(canvas.Plain(l.command), w-2)
		}
	}
	return blocks
}

// drawPage draws a lever below its name, cuts at, and leaves the rest of it. Where not all has room, the code
// to change stays, and the text before it ends with an ellipsis.
func (t *leverList) drawPage(s *leaf.State, c *canvas.Canvas, at *canvas.Rect, row int, b page) {
	l, th := &t.all[row], s.Theme
	selected := row == t.Selected() && !t.Blurred
	c.Print(at.X, at.Y, leaf.Ruled(th, c, at.W, leaf.Title(l.title)))
	if selected {
		c.TextMax(at.X, at.Y, at.W, th.Accent, leaf.Title(l.title))
	}
	_, *at = at.CutTop(1)
	room := at.H - len(b.code)
	if len(b.text) > room && len(b.code) > 1 { // one line of code at least
		b.code, room = b.code[:1], at.H-1
	}
	if room = max(room, 0); len(b.text) > room {
		b.text = slices.Clone(b.text[:room])
		if room > 0 {
			b.text[room-1] = ansi.TruncateWc(b.text[room-1], at.W-2, "") + c.Gloss(th.Text).Render(" …")
		}
	}
	c.Sub(*at).Print(0, 0, strings.Join(b.text, "\n"))
	_, *at = at.CutTop(len(b.text))
	for i, line := range b.code[:min(len(b.code), at.H)] {
		y := at.Y + i
		if i == 0 {
			c.Text(at.X, y, th.Faint, "$ ")
		}
		n := 2 + c.TextMax(at.X+2, y, at.W-2, th.Accent, line)
		c.Zone(canvas.Rect{X: at.X, Y: y, W: n, H: 1}, leaf.CopyMsg{Text: l.command, What: "the command"})
		if last := i == len(b.code)-1; last && selected && n+12 <= at.W {
			c.Text(at.X+n+2, y, th.Faint, "y copies")
		}
	}
	_, *at = at.CutTop(len(b.code))
}

// leverCell is a cell of the list of levers. Those that the answer on top names have its mark.
func leverCell(s *leaf.State, l *lever, col int) table.Cell {
	switch {
	case col == 0 && l.saves == "":
		return table.Cell{Text: "?", Style: s.Theme.Dim}
	case col == 0:
		return table.Cell{Text: l.saves, Style: s.Theme.Good}
	case col == 1:
		text, st := l.look(s.Theme)
		return table.Cell{Text: text, Style: st}
	case l.named:
		return table.Cell{Text: l.title, Style: s.Theme.Strong, Lead: "●", LeadStyle: s.Theme.Good}
	}
	return table.Cell{Text: l.title, Lead: " "}
}
