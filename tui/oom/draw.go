package oom

import (
	"image/color"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *View) Draw(s *leaf.State, c *canvas.Canvas) {
	a := v.known(s)
	if a == nil {
		if err := v.autopsy.Err(); err != nil && !v.autopsy.Pending() {
			leaf.Empty(s, c, "The autopsy failed", err.Error(), "")
			return
		}
		leaf.Working(s, c, "looking for what held the memory")
		return
	}
	body := c.Bounds()
	_, body = body.CutTop(leaf.Sentence(s, c, a.Sentence))
	body = body.Inset(1, 0)
	var part canvas.Rect
	if rows := v.barRows(a, body); rows > 0 {
		part, body = body.CutTop(rows)
		v.drawBar(s, c.Sub(part), a)
	}
	part, body = body.CutTop(v.causeRows(a, body))
	drawCauses(s, c.Sub(part), a)
	v.drawTables(s, c, body, a)
}

func (v *View) barRows(a *autopsy.Result, body canvas.Rect) int {
	switch {
	case a.State == nil || !a.State.Known || body.H < 10:
		return 0
	case body.H < 20:
		return 2
	case a.Asked > 0:
		return 4
	}
	return 3
}

// segment is a part of the device's bar.
type segment struct {
	name  string
	bytes int64
	fill  canvas.Fill
}

// segments divides the device's memory; whole is its capacity, or what is reserved where the capacity is
// unknown.
func (v *View) segments(s *leaf.State, a *autopsy.Result) (parts []segment, whole int64) {
	st, th := a.State, s.Theme
	fill := func(c color.Color, strength int, pattern, mono rune) canvas.Fill {
		return canvas.Fill{Color: th.Fade(c, strength), Shade: c, Pattern: pattern, Mono: mono, ASCII: mono}
	}
	tensors := th.Plain()
	tensors.Pattern = 0
	parts = []segment{
		{"tensors", st.ActiveRequested - min(st.PendingFree, st.ActiveRequested), tensors},
		{"pending free", st.PendingFree, fill(th.Bad.FG, 170, '╱', '/')},
		{"rounding", st.Internal, fill(th.Accent.FG, 150, '▒', '+')},
		{"stranded", st.Stranded, fill(th.Warn.FG, 200, '░', '-')},
		{"cached", st.Cached, fill(th.Dim.FG, 210, '·', '~')},
	}
	// The state counts pending frees by their rounded size; what that takes beyond their share of the
	// requested bytes comes off rounding.
	if st.PendingFree > 0 {
		sum := parts[0].bytes + parts[1].bytes + parts[2].bytes
		parts[2].bytes = max(parts[2].bytes-(sum-st.ActiveRequested-st.Internal), 0)
	}
	whole = st.Reserved
	if total := s.Device.Info.TotalBytes; total > 0 && total >= st.Reserved {
		whole = total
		free := total - st.Reserved
		if a.Free >= 0 && a.Free <= free {
			parts = append(parts, segment{"outside PyTorch", free - a.Free, fill(th.Dim.FG, 120, '▨', 'x')})
			free = a.Free
			parts = append(parts, segment{"free", free, canvas.Fill{Mono: '.', ASCII: '.'}})
		} else {
			parts = append(parts, segment{"not reserved", free, canvas.Fill{Mono: '.', ASCII: '.'}})
		}
	} else if a.Free >= 0 {
		whole += a.Free
		parts = append(parts, segment{"free", a.Free, canvas.Fill{Mono: '.', ASCII: '.'}})
	}
	return parts, whole
}

func cell(c *canvas.Canvas, x, y int, f canvas.Fill) {
	switch {
	case c.ASCII():
		c.Set(x, y, f.ASCII, 0)
	case f.Color == nil:
		c.Set(x, y, f.Mono, c.Style(canvas.Style{Faint: true}))
	default:
		p := f.Pattern
		if p == 0 {
			p = ' '
		}
		c.Set(x, y, p, c.Style(canvas.Style{FG: f.Shade, BG: f.Color}))
	}
}

// drawBar draws the device's memory as a bar with its parts named under it, and what was asked for on the
// same scale.
func (v *View) drawBar(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	w, h := c.Size()
	parts, whole := v.segments(s, a)
	scale := max(whole, 1)
	label := "reserved"
	if s.Device.Info.TotalBytes >= a.State.Reserved && s.Device.Info.TotalBytes > 0 {
		label = "device"
	}
	label += " " + s.Units.Bytes(whole)
	x0 := max(len(label)+1, 17)
	c.Text(0, 0, s.Theme.Dim, label)
	width := w - x0
	x, done := 0, int64(0)
	for _, p := range parts {
		done += p.bytes
		end := int(float64(done)/float64(scale)*float64(width) + 0.5)
		if p.bytes > 0 && end <= x {
			end = x + 1
		}
		for ; x < min(end, width); x++ {
			cell(c, x0+x, 0, p.fill)
		}
	}
	x = x0
	unit, f := s.Units.Column(whole)
	parts = slices.DeleteFunc(parts, func(p segment) bool { return p.bytes == 0 })
	for i, p := range parts {
		figure := strings.TrimSpace(f(p.bytes))
		if i == len(parts)-1 {
			figure += " " + unit
		}
		if need := 2 + canvas.Width(p.name) + 1 + len(figure) + 2; x+need > w && x > x0 {
			break
		}
		cell(c, x, 1, p.fill)
		x += 2
		x += c.Text(x, 1, s.Theme.Dim, p.name+" ")
		x += c.Text(x, 1, s.Theme.Text, figure) + 2
	}
	if h >= 4 && a.Asked > 0 {
		text := "asked " + s.Units.Bytes(a.Asked)
		c.Text(0, 2, s.Theme.Bad, text)
		n := max(int(float64(a.Asked)/float64(scale)*float64(width)+0.5), 1)
		for i := range min(n, width) {
			c.Set(x0+i, 2, '━', c.Style(s.Theme.Bad))
		}
		if a.State.LargestFree > 0 && x0+n+2 < w {
			c.TextMax(x0+n+1, 2, w-x0-n-1, s.Theme.Dim, "the largest hole is "+s.Units.Bytes(a.State.LargestFree))
		}
	}
}

// causeRows returns the rows that the causes take: with their whole texts where both tables have room below
// them, else a row each, the first of them.
func (v *View) causeRows(a *autopsy.Result, body canvas.Rect) int {
	n := len(a.Causes)
	if n == 0 || body.H < 8 {
		return 0
	}
	whole := 1
	for _, cause := range a.Causes {
		whole += max(len(leaf.Wrap(cause.Text, body.W-causeText)), 1)
	}
	switch {
	case body.H >= 26:
		return min(whole, body.H/3+1)
	case body.H-whole >= len(a.Levers)+leverDetail+leastHolders:
		return whole
	case body.H < 16:
		return min(n, 2)
	}
	return min(n, 4) + 1
}

// causeText is the column in which the text of a cause begins.
const causeText = 29

// causeNames are the names that are not the causes' own with spaces.
var causeNames = map[string]string{
	"stranded_pool": "other pools", "outside_pytorch": "outside PyTorch", "collected_outputs": "kept outputs",
	"one_backward_for_many": "one backward", "double_backward": "create_graph", "attention_scores": "attention",
	"optimizer_pending": "optimizer state",
}

func drawCauses(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	w, h := c.Size()
	y := 0
	for i, cause := range a.Causes {
		if y >= h {
			return
		}
		mark, st := "·", s.Theme.Dim
		name := s.Theme.Text
		if cause.Main {
			mark, st, name = "●", s.Theme.Bad, s.Theme.Strong
		}
		c.Text(0, y, st, mark)
		label, ok := causeNames[cause.Kind]
		if !ok {
			label = strings.ReplaceAll(cause.Kind, "_", " ")
		}
		c.TextMax(2, y, 15, name, label)
		if cause.Bytes >= 0 {
			c.TextRight(27, y, name, s.Units.Bytes(cause.Bytes))
		} else {
			c.TextRight(27, y, s.Theme.Dim, "?")
		}
		lines := leaf.Wrap(cause.Text, w-causeText)
		if room := max(h-1-y-(len(a.Causes)-1-i), 1); len(lines) > room { // each cause has a row, the last one of c stays blank
			lines = append(lines[:room-1:room-1], strings.Join(lines[room-1:], " "))
		}
		for _, line := range lines {
			c.TextMax(causeText, y, w-causeText, s.Theme.Dim, line)
			y++
		}
	}
}

func (v *View) drawTables(s *leaf.State, c *canvas.Canvas, body canvas.Rect, a *autopsy.Result) {
	if body.H < 2 {
		return
	}
	switch {
	case len(a.Levers) == 0:
		v.drawHolders(s, c, body, a)
	case body.W >= 140:
		left, right := body.CutLeft(body.W/2 - 1)
		_, right = right.CutLeft(2)
		v.drawLevers(s, c, left, a)
		v.drawHolders(s, c, right, a)
	case body.H >= 18, body.H-len(a.Levers)-leverDetail >= leastHolders: // half for each at most, or what the levers leave
		rows := len(a.Levers) + leverDetail
		if body.H >= 18 {
			rows = min(rows, body.H/2+1)
		}
		top, bottom := body.CutTop(rows)
		v.drawLevers(s, c, top, a)
		v.drawHolders(s, c, bottom, a)
	case v.levers.Blurred:
		v.drawHolders(s, c, body, a)
	default:
		v.drawLevers(s, c, body, a)
	}
}

// What the levers take beside a row each, with their head and what the selected one means; and the least of
// the holders that is worth a table.
const (
	leverDetail  = 6
	leastHolders = 4
)

// drawLevers draws the table of levers and, under it, what the selected one means and its command.
func (v *View) drawLevers(s *leaf.State, c *canvas.Canvas, at canvas.Rect, a *autopsy.Result) {
	rows := 0
	if at.H >= 6 {
		rows = 4
	}
	if at.H >= 14 {
		rows = 5
	}
	at, detail := at.CutBottom(rows)
	v.levers.Draw(c, at, s.Theme, func(row, col int) table.Cell { return leverCell(s, a.Levers[row], col) })
	i := v.levers.Selected()
	if rows == 0 || i < 0 {
		return
	}
	l := a.Levers[i]
	c.Print(detail.X, detail.Y, leaf.Ruled(s.Theme, c, detail.W, strings.ReplaceAll(l.Name, "_", " ")))
	y, last := detail.Y+1, detail.Y+detail.H
	room := 1
	if l.Command == "" {
		room = 0
	}
	lines := leaf.Wrap(canvas.Plain(l.Text), detail.W)
	if most := last - room - y; len(lines) > most { // the last one ends with an ellipsis
		lines = append(lines[:most-1:most-1], strings.Join(lines[most-1:], " "))
	}
	for i, line := range lines {
		lines[i] = canvas.Truncate(line, detail.W)
	}
	c.Print(detail.X, y, c.Gloss(s.Theme.Text).Render(strings.Join(lines, "\n")))
	y += len(lines)
	if l.Command != "" && y < last {
		c.Text(detail.X, y, s.Theme.Faint, "$ ")
		n := c.TextMax(detail.X+2, y, detail.W-12, s.Theme.Accent, l.Command)
		c.Zone(canvas.Rect{X: detail.X, Y: y, W: n + 2, H: 1}, leaf.CopyMsg{Text: l.Command, What: "the command"})
		c.Text(detail.X+n+4, y, s.Theme.Faint, "y copies")
	}
}

func leverCell(s *leaf.State, l autopsy.Lever, col int) table.Cell {
	switch col {
	case 0:
		if l.Saves < 0 {
			return table.Cell{Text: "?", Style: s.Theme.Dim}
		}
		text := s.Units.Bytes(l.Saves)
		switch l.Exactness {
		case timeline.Inferred:
			text = "~" + text
		case timeline.LowerBound:
			text = "≥" + text
		}
		return table.Cell{Text: text, Style: s.Theme.Good}
	case 1:
		switch l.Fits {
		case 1:
			return table.Cell{Text: "✓ yes", Style: s.Theme.Good}
		case 0:
			return table.Cell{Text: "✗ no", Style: s.Theme.Dim}
		}
		return table.Cell{Text: "–", Style: s.Theme.Faint}
	}
	return table.Cell{Text: l.Text}
}

func (v *View) drawHolders(s *leaf.State, c *canvas.Canvas, at canvas.Rect, a *autopsy.Result) {
	whole := int64(0)
	for _, g := range a.Holders {
		whole += g.Bytes
	}
	if len(a.Holders) == 0 {
		leaf.Rule(s, c, at.X, at.Y, at.W, "who held it")
		c.TextMax(at.X, at.Y+1, at.W, s.Theme.Dim, "nothing was allocated at that moment")
		return
	}
	if i := v.holders.Selected(); at.H >= 16 && i >= 0 {
		var below canvas.Rect
		at, below = at.CutBottom(min(max(at.H/3, 7), 18))
		leaf.Rule(s, c, below.X, below.Y, below.W, a.Holders[i].Name)
		block.Stack(s, c.Sub(canvas.Rect{X: below.X, Y: below.Y + 1, W: below.W, H: below.H - 1}), a.Holders[i].Stack)
	}
	bar := s.Theme.Plain()
	bar.Pattern = 0
	v.holders.Draw(c, at, s.Theme, func(row, col int) table.Cell {
		g := a.Holders[row]
		switch col {
		case 0:
			return table.Cell{Text: s.Units.Bytes(g.Bytes)}
		case 1:
			return table.Cell{Text: leaf.Percent(g.Bytes, whole), Style: s.Theme.Dim}
		case 2:
			return table.Cell{Part: g.Bytes, Whole: a.Holders[0].Bytes, Fill: bar}
		case 3:
			return table.Cell{Text: leaf.Count(int64(g.Blocks)), Style: s.Theme.Dim}
		}
		if g.Name == "" {
			return table.Cell{Text: "recorded without a stack", Style: s.Theme.Dim}
		}
		return table.Cell{Text: g.Name}
	})
}
