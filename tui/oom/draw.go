package oom

import (
	"image/color"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/autopsy"
	"github.com/gmemtop/gmemtop/tui/block"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/table"
)

// Draw implements leaf.View.
func (v *view) Draw(s *leaf.State, c *canvas.Canvas) {
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
	_, body = body.CutTop(leaf.Sentence(s, c, v.sentence(s, a)))
	body = body.Inset(1, 0)
	rows, whole := v.causeRows(s, c, a, body), wholeCauseRows(a, s.Units, body.W)
	if bar := barRows(a, body); bar > 0 && !v.whole {
		part, below := body.CutTop(bar)
		with := v.causeRows(s, c, a, below)
		// In little room the causes, which have the bar's figures, come first.
		if body.H >= 20 || with >= whole-1 || rows < whole-1 {
			rows, body = with, below
			drawBar(s, c.Sub(part), a)
		}
	}
	v.cut = rows < whole-1 // the last of them is blank
	if v.whole {
		rows = min(whole, body.H)
	}
	part, body := body.CutTop(rows)
	drawCauses(s, c.Sub(part), a)
	v.drawTables(s, c, body, a)
}

func barRows(a *autopsy.Result, body canvas.Rect) int {
	switch {
	case a.State == nil || !a.State.Known || body.H < 10:
		return 0
	case body.H < 20:
		return 2
	case a.Asked.Or(0) > 0:
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
func segments(s *leaf.State, a *autopsy.Result) (parts []segment, whole int64) {
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
		{"fragmented", st.Stranded, fill(th.Warn.FG, 200, '░', '-')},
		{"cached", st.Cached, fill(th.Dim.FG, 210, '·', '~')},
	}
	// The state counts pending frees by their rounded size; what that takes beyond their share of the
	// requested bytes is subtracted from rounding.
	if st.PendingFree > 0 {
		sum := parts[0].bytes + parts[1].bytes + parts[2].bytes
		parts[2].bytes = max(parts[2].bytes-(sum-st.ActiveRequested-st.Internal), 0)
	}
	whole = st.Reserved
	if total := s.Device.Info.TotalBytes; total > 0 && total >= st.Reserved {
		whole = total
		free := total - st.Reserved
		if left, ok := a.Free.Value(); ok && left <= free {
			parts = append(parts, segment{"outside PyTorch", free - left, fill(th.Dim.FG, 120, '▨', 'x')})
			free = left
			parts = append(parts, segment{"free", free, canvas.Fill{Mono: '.', ASCII: '.'}})
		} else {
			parts = append(parts, segment{"not reserved", free, canvas.Fill{Mono: '.', ASCII: '.'}})
		}
	} else if free, ok := a.Free.Value(); ok {
		whole += free
		parts = append(parts, segment{"free", free, canvas.Fill{Mono: '.', ASCII: '.'}})
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
func drawBar(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	w, h := c.Size()
	parts, whole := segments(s, a)
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
	legend(s, c, slices.DeleteFunc(parts, func(p segment) bool { return p.bytes == 0 }), whole, x0)
	if asked := a.Asked.Or(0); h >= 4 && asked > 0 {
		text := "asked " + s.Units.Bytes(asked)
		c.Text(0, 2, s.Theme.Bad, text)
		n := max(int(float64(asked)/float64(scale)*float64(width)+0.5), 1)
		for i := range min(n, width) {
			c.Set(x0+i, 2, '━', c.Style(s.Theme.Bad))
		}
		if a.State.LargestFree > 0 && x0+n+2 < w {
			c.TextMax(x0+n+1, 2, w-x0-n-1, s.Theme.Dim, "the largest hole is "+
				s.Units.Bytes(a.State.LargestFree))
		}
	}
}

// legend names the parts of the bar that begins at x0, from there on or, where that has too little room, from
// the margin on. Parts that have no room there either are left out, the last first.
func legend(s *leaf.State, c *canvas.Canvas, parts []segment, whole int64, x0 int) {
	const gap = 2 // between two parts, and between a part's pattern and its name
	w, _ := c.Size()
	unit, f := s.Units.Column(whole)
	figure := func(i int) string {
		if i == len(parts)-1 {
			return strings.TrimSpace(f(parts[i].bytes)) + " " + unit
		}
		return strings.TrimSpace(f(parts[i].bytes))
	}
	width := func(i int) int { return gap + canvas.Width(parts[i].name) + 1 + len(figure(i)) }
	all := -gap
	for i := range parts {
		all += width(i) + gap
	}
	x := x0
	if x+all > w {
		x = max(w-all, 0)
	}
	for i, p := range parts {
		if x+width(i) > w && i > 0 {
			break
		}
		cell(c, x, 1, p.fill)
		x += gap
		x += c.Text(x, 1, s.Theme.Dim, p.name+" ")
		x += c.Text(x, 1, s.Theme.Text, figure(i)) + gap
	}
}

// causeRows returns the rows that the causes take: as much of their texts as both tables leave room for, or
// as the levers alone do where the holders have no room anyway, and a row each, the first of them, where that
// is none.
func (v *view) causeRows(s *leaf.State, c *canvas.Canvas, a *autopsy.Result, body canvas.Rect) int {
	n := len(a.Causes)
	if n == 0 || body.H < 8 {
		return 0
	}
	whole := wholeCauseRows(a, s.Units, body.W)
	least := min(n, 4) + 1
	switch {
	case body.H >= 26:
		return min(whole, body.H/3+1)
	case body.H < 16:
		least = min(n, 2)
	}
	levers := 0
	if len(v.levers.all) > 0 {
		levers = min(len(v.levers.all), leastLevers) + 1 + highest(v.levers.pages(s, c, body.W))
	}
	least = max(min(least, body.H-levers), min(n, 2))
	rows := max(min(whole, body.H-levers-holderRows(a)), least)
	if rows < whole && levers > 0 && body.H-rows-levers < holderRows(a) {
		rows = max(rows, min(whole, body.H-levers-1))
	}
	return rows
}

// wholeCauseRows is what the causes take in full in w cells, with a blank row below them; 0 without causes.
func wholeCauseRows(a *autopsy.Result, u timeline.Units, w int) int {
	rows := 0
	for _, lines := range causeLines(a, u, w) {
		rows += len(lines)
	}
	if rows > 0 {
		rows++
	}
	return rows
}

// holderRows is what the table of holders needs at least, with its head.
func holderRows(a *autopsy.Result) int { return min(len(a.Holders)+1, leastHolders) }

// causeName is the cells for the mark and the name of a cause, with the space after them.
const causeName = 19

// causeNames are the names that are not the causes' own with spaces.
var causeNames = map[string]string{
	"stranded_pool": "other pools", "outside_pytorch": "outside PyTorch", "collected_outputs": "kept outputs",
	"one_backward_for_many": "one backward", "double_backward": "create_graph",
	"attention_scores": "attention", "growing_parameters": "growing model",
	"optimizer_pending": "optimizer state", "dense_embedding_gradients": "table gradients",
	"context_keeps": "kept by ctx",
}

// causeLines are the texts of the causes as they are drawn in w cells, each in one line at least.
func causeLines(a *autopsy.Result, u timeline.Units, w int) [][]string {
	texts := make([][]string, len(a.Causes))
	for i, cause := range a.Causes {
		texts[i] = leaf.Wrap(canvas.Plain(cause.Said(u)), max(w-causeName, 1))
	}
	return texts
}

// drawCauses lists the causes, each a mark, a name, bytes and its text beside them. Each has a row at least,
// and the last row of c stays blank where their texts need no more than those before it.
func drawCauses(s *leaf.State, c *canvas.Canvas, a *autopsy.Result) {
	w, h := c.Size()
	var rows []string
	texts, whole := causeLines(a, s.Units, w), 0
	for _, lines := range texts {
		whole += len(lines)
	}
	last := h - 1
	if whole >= h {
		last = h
	}
	for i, cause := range a.Causes {
		left := len(a.Causes) - 1 - i
		if len(rows) >= h {
			break
		}
		lines := texts[i]
		if room := max(last-len(rows)-left, 1); len(lines) > room {
			lines = append(lines[:room-1:room-1], strings.Join(lines[room-1:], " "))
		}
		for i := range lines {
			lines[i] = canvas.Truncate(lines[i], w-causeName)
		}
		text := c.Gloss(s.Theme.Dim).Render(strings.Join(lines, "\n"))
		row := lipgloss.JoinHorizontal(lipgloss.Top, causeHead(s, c, &cause), text)
		rows = append(rows, strings.Split(row, "\n")...)
	}
	c.Print(0, 0, strings.Join(rows[:min(len(rows), h)], "\n"))
}

// causeHead is what stands before the text of a cause.
func causeHead(s *leaf.State, c *canvas.Canvas, cause *autopsy.Cause) string {
	mark, st, name := "·", s.Theme.Dim, s.Theme.Text
	if cause.Main {
		mark, st, name = "●", s.Theme.Bad, s.Theme.Strong
	}
	label, ok := causeNames[cause.Kind]
	if !ok {
		label = strings.ReplaceAll(cause.Kind, "_", " ")
	}
	return lipgloss.JoinHorizontal(lipgloss.Top, c.Gloss(st).Render(mark), " ",
		c.Gloss(name).Width(15).Render(canvas.Truncate(canvas.Plain(label), 15)), "  ")
}

func (v *view) drawTables(s *leaf.State, c *canvas.Canvas, body canvas.Rect, a *autopsy.Result) {
	switch {
	case body.H < 2:
		return
	case body.W >= wide:
		v.drawWide(s, c, body, a)
		return
	case len(v.levers.all) == 0:
		v.drawHolders(s, c, body, a)
		return
	}
	pages := v.levers.pages(s, c, body.W)
	least, room := len(v.levers.all)+1+highest(pages), holderRows(a)
	if body.H >= 18 {
		room = max(room, body.H/4)
	}
	switch {
	case body.H-least >= room:
		top, bottom := body.CutTop(len(v.levers.all) + 1 + mostRows(pages, body.H-room-len(v.levers.all)-1))
		v.levers.draw(s, c, top, canvas.Rect{})
		v.drawHolders(s, c, bottom, a)
	case v.levers.Blurred:
		v.drawHolders(s, c, body, a)
	default:
		v.levers.draw(s, c, body, canvas.Rect{})
	}
}

// drawWide draws the levers at the left and the holders at the right, and what happened up to the moment
// where both leave rows, or the holders alone do. Levers that do not all fit in full at the left continue
// there instead.
func (v *view) drawWide(s *leaf.State, c *canvas.Canvas, body canvas.Rect, a *autopsy.Result) {
	left, right := columns(body)
	pages := v.levers.pages(s, c, left.W)
	levers := len(v.levers.all) + 1 + allRows(pages)
	if len(v.levers.all) == 0 {
		levers, right = 0, body
	}
	holders := len(a.Holders) + 1 + v.stackRows(s, a, body.H)
	more := canvas.Rect{}
	if rows := max(levers, holders) + 1; body.H-rows >= leastRest {
		body.Y, body.H = body.Y+rows, min(body.H-rows, mostRest)
		left.H, right.H = rows-1, rows-1
		v.rest.draw(s, c, body, a)
	} else if levers > left.H {
		rows := min(levers-left.H+highest(pages), right.H-min(len(a.Holders)+1, right.H/2))
		right, more = right.CutBottom(max(rows, 0))
	} else if levers > 0 && body.H-holders-1 >= leastRest {
		var below canvas.Rect
		right, below = right.CutTop(holders)
		_, below = below.CutTop(1)
		v.rest.drawOne(s, c, below, a)
	}
	if levers > 0 {
		v.levers.draw(s, c, left, more)
	}
	v.drawHolders(s, c, right, a)
}

// stackRows is how many of some rows the stack of the selected holder takes below the table of holders, with
// its title and the blank row above that.
func (v *view) stackRows(s *leaf.State, a *autopsy.Result, rows int) int {
	i := v.holders.Selected()
	// what is not in the recording has no blocks, and no stack that could have been recorded
	if rows < 16 || i < 0 || i >= len(a.Holders) || a.Holders[i].Blocks == 0 {
		return 0
	}
	return min(block.StackRows(s, a.Holders[i].Stack)+2, max(rows/3, 7))
}

func (v *view) drawHolders(s *leaf.State, c *canvas.Canvas, at canvas.Rect, a *autopsy.Result) {
	whole := int64(0)
	for _, g := range a.Holders {
		whole += g.Bytes
	}
	if len(a.Holders) == 0 {
		leaf.Rule(s, c, at.X, at.Y, at.W, "who held it")
		c.TextMax(at.X, at.Y+1, at.W, s.Theme.Dim, "nothing was allocated at that moment")
		return
	}
	if rows := v.stackRows(s, a, at.H); rows > 0 {
		i := v.holders.Selected()
		var below canvas.Rect
		at, below = at.CutTop(min(len(a.Holders)+1, at.H-rows))
		_, below = below.CutTop(1)
		leaf.Rule(s, c, below.X, below.Y, below.W, a.Holders[i].Name)
		block.Stack(s, c.Sub(canvas.Rect{X: below.X, Y: below.Y + 1, W: below.W, H: below.H - 1}),
			a.Holders[i].Stack)
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
		name := g.Name
		if row < len(v.logits) && v.logits[row] {
			name = leaf.LogitsMark + name
		}
		return table.Cell{Text: name, Style: leaf.Linked(s, s.Device, g.Stack, canvas.Style{})}
	})
}
