package live

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/tui/canvas"
	"github.com/gmemtop/gmemtop/tui/leaf"
)

// shown is the window that the other views show, -1 for none, and whether they stay on it.
type shown struct {
	window int64
	held   bool
}

// drawSide draws the panel beside the steps: what is captured, what the memory consists of, which job is
// watched.
func drawSide(s *leaf.State, c *canvas.Canvas, l *Look, at shown) {
	w := c.Width()
	what := lipgloss.JoinVertical(lipgloss.Left,
		leaf.Ruled(s.Theme, c, w, "Captured whole"),
		leaf.Paragraph(c, s.Theme.Text, strings.Join(captured(l, at), "\n"), w))
	c.Print(0, 0, what)
	y := lipgloss.Height(what)
	if len(l.Parts) > 0 {
		y = drawParts(s, c, l, y+1)
	}
	y = drawNotices(s, c, l.Notices, y+1)
	if y+2+len(l.Facts) <= c.Height() {
		who := leaf.Ruled(s.Theme, c, w, "Who")
		c.Print(0, y, lipgloss.JoinVertical(lipgloss.Left, who, facts(s, c, l.Facts)))
	}
}

// captured lists what is captured, and what it costs.
func captured(l *Look, at shown) []string {
	var what string
	switch n := len(l.Windows); {
	case l.Capture.No != "":
		what = "nothing: " + l.Capture.No
	case l.Capture.Pending:
		what = "a step is being captured"
	case l.Capture.All && n == 0:
		what = "all of it, as it comes"
	case n == 0 && l.takesOrders():
		what = "nothing yet: r captures a step"
	case n == 0:
		what = "nothing"
	default:
		what = strings.Join(newest(l), ", ")
	}
	lines := []string{what}
	switch {
	case at.window >= 0 && at.held:
		lines = append(lines, "the other views stay with one: F shows the newest")
	case at.window >= 0:
		lines = append(lines, "the other views show the newest")
	}
	if l.Capture.Every > 0 {
		lines = append(lines, fmt.Sprintf("one step in %s is captured", leaf.Count(int64(l.Capture.Every))))
	}
	if l.Capture.Measured {
		lines = append(lines, "watching takes "+share(l.Capture.Share)+" of the step time")
	}
	return lines
}

func share(part float64) string {
	switch {
	case part < 0.00005:
		return "less than 0.01 %"
	case part < 0.01:
		return fmt.Sprintf("%.2f %%", part*100)
	}
	return fmt.Sprintf("%.1f %%", part*100)
}

// newest describes the window captured last, its cost, and how many there were before it.
func newest(l *Look) []string {
	w := l.Windows[len(l.Windows)-1]
	words := []string{l.WindowName(&w)}
	if w.Cost > 0 {
		words = append(words, "which took "+timeline.Duration(int64(w.Cost))+" longer")
	}
	if n := len(l.Windows) - 1; n > 0 {
		words = append(words, "after "+timeline.Counted(n, "earlier capture"))
	}
	return words
}

// said is a line with its style.
type said struct {
	text  string
	style canvas.Style
}

// brief draws below the steps, in few lines, what drawSide draws in many: as much as there is room for, most
// important first. Refusals and notices are shown in full, in as many lines as the rows allow.
func brief(s *leaf.State, l *Look, at shown, w, rows int) []said {
	th := s.Theme
	var lines []said
	whole := func(text string, st canvas.Style, most int) {
		list := leaf.Wrap(text, w)
		if len(list) > most {
			list = append(list[:most-1:most-1], strings.Join(list[most-1:], " "))
		}
		for _, line := range list {
			lines = append(lines, said{line, st})
		}
	}
	switch {
	case l.Capture.No != "":
		whole("nothing is captured: "+l.Capture.No, th.Dim, rows-1)
	case l.Capture.Pending:
		lines = append(lines, said{captured(l, at)[0], th.Dim})
	case len(l.Windows) == 0:
		lines = append(lines, said{"captured " + captured(l, at)[0], th.Dim})
	default:
		words := newest(l)
		words[0] = "captured " + words[0]
		switch {
		case at.window >= 0 && at.held:
			words = append(words, "F: to the newest")
		case at.window >= 0:
			words = append(words, "shown in the other views")
		}
		if l.Capture.Measured {
			words = append(words, "watching takes "+share(l.Capture.Share))
		}
		if l.Capture.Every > 0 {
			words = append(words, "one step in "+leaf.Count(int64(l.Capture.Every)))
		}
		lines = append(lines, said{fitting(words, ", ", w), th.Dim})
	}
	if n := len(l.Notices); n > 0 {
		whole(l.Notices[n-1], th.Warn, rows-len(lines))
	} else {
		lines = append(lines, said{partsLine(s.Units, l, w), th.Dim})
	}
	return lines
}

// fitting joins as many words as fit in w cells, at least one.
func fitting(words []string, by string, w int) string {
	text := ""
	for i, word := range words {
		switch {
		case i == 0:
			text = word
		case canvas.Width(text)+canvas.Width(by)+canvas.Width(word) <= w:
			text += by + word
		}
	}
	return text
}

// partsLine lists in one line what the memory consists of: the whole and the largest parts, including what is
// unexplained.
func partsLine(u timeline.Units, l *Look, w int) string {
	if len(l.Parts) == 0 {
		return ""
	}
	parts := slices.Clone(l.Parts)
	size := func(p Entry) int64 { return max(p.Bytes, -p.Bytes) }
	slices.SortStableFunc(parts, func(a, b Entry) int { return cmp.Compare(size(b), size(a)) })
	_, inUnit := u.Column(l.Whole.Bytes)
	figure := func(n int64) string { return strings.TrimSpace(inUnit(n)) }
	text := strings.TrimSuffix(partName(l.Whole), " after a step") + " " + u.Bytes(l.Whole.Bytes) + " ="
	rest, shown, left := int64(0), 0, "model state"
	if slices.ContainsFunc(parts[1:], func(p Entry) bool { return !p.Tensors }) {
		left = "others"
	}
	remainder := len(" + " + left + " 1023")
	for i, p := range parts {
		name := partName(p)
		if shown == 0 && len(parts) > 1 { // always show the largest
			name = canvas.Truncate(name, max(w-canvas.Width(text)-len(" 1023")-remainder, 8))
		}
		word := " " + name + " " + figure(p.Bytes)
		if shown > 0 {
			word = " +" + word
		}
		more := 0 // room for the remainder
		if shown < i || i < len(parts)-1 {
			more = remainder
		}
		if shown > 0 && canvas.Width(text)+canvas.Width(word)+more > w {
			rest += p.Bytes
			continue
		}
		text, shown = text+word, shown+1
	}
	if shown < len(parts) {
		text += " + " + left + " " + figure(rest)
	}
	return text
}

// partName marks a part that was not read but follows from others.
func partName(p Entry) string {
	if p.Derived {
		return "~" + p.Name
	}
	return p.Name
}

// drawParts draws what the memory consists of: a sum whose remainder is unexplained.
func drawParts(s *leaf.State, c *canvas.Canvas, l *Look, y int) int {
	th, w := s.Theme, c.Width()
	whole := l.Whole
	unit, text := s.Units.Column(whole.Bytes)
	leaf.Rule(s, c, 0, y, w, whole.Name+", in "+unit)
	y++
	parts := l.Parts
	if room := c.Height() - y - 1; len(parts) > room && room > 1 { // merge the smallest into one line
		parts = fewer(parts, room)
	}
	wide := 0
	for _, p := range parts {
		wide = max(wide, canvas.Width(partName(p)))
	}
	wide = min(wide, max(w-15, 12))
	for _, p := range parts {
		st, fill := th.Text, th.Plain()
		if p.Unexplained {
			st, fill = th.Warn, th.Other()
		}
		c.TextMax(0, y, wide, st, partName(p))
		c.TextRight(wide+9, y, st, strings.TrimSpace(text(p.Bytes)))
		c.Bar(wide+10, y, w-wide-11, max(p.Bytes, 0), whole.Bytes, fill)
		y++
	}
	c.TextMax(0, y, wide, th.Strong, "together")
	c.TextRight(wide+9, y, th.Strong, strings.TrimSpace(text(whole.Bytes)))
	return y + 1
}

// fewer reduces parts to n: the smallest explained ones are merged, in place of the first of them.
func fewer(parts []Entry, n int) []Entry {
	var small []int
	for i, p := range parts {
		if !p.Unexplained {
			small = append(small, i)
		}
	}
	slices.SortStableFunc(small, func(a, b int) int { return cmp.Compare(parts[a].Bytes, parts[b].Bytes) })
	small = small[:min(len(parts)-n+1, len(small))]
	var out []Entry
	others := -1
	for i, p := range parts {
		switch {
		case !slices.Contains(small, i):
			out = append(out, p)
		case others < 0:
			others = len(out)
			out = append(out, Entry{Name: fmt.Sprintf("%d others", len(small)), Bytes: p.Bytes})
		default:
			out[others].Bytes += p.Bytes
		}
	}
	return out
}

// drawNotices draws the newest notices under a rule, and returns the row after them.
func drawNotices(s *leaf.State, c *canvas.Canvas, list []string, y int) int {
	if len(list) == 0 || y >= c.Height() {
		return y
	}
	said := strings.Join(list[max(len(list)-4, 0):], "\n")
	block := lipgloss.JoinVertical(lipgloss.Left,
		leaf.Ruled(s.Theme, c, c.Width(), "Notices"), leaf.Paragraph(c, s.Theme.Warn, said, c.Width()))
	c.Print(0, y, block)
	return y + lipgloss.Height(block) + 1
}

const (
	factName   = 11 // cells of a fact's name
	mostOfFact = 3  // rows that a fact may take: a command can be long
)

// facts lists what is known of the job, each fact with its name.
func facts(s *leaf.State, c *canvas.Canvas, list []Fact) string {
	room := max(c.Width()-factName, 0)
	var rows []string
	for _, f := range list {
		text := f.Value
		if n, ok := f.Bytes.Value(); ok {
			text = s.Units.Bytes(n)
		}
		lines := leaf.Wrap(canvas.Plain(text), room)
		if len(lines) > mostOfFact {
			last := strings.Join(lines[mostOfFact-1:], " ")
			lines = append(lines[:mostOfFact-1:mostOfFact-1], canvas.Truncate(last, room))
		}
		value := c.Gloss(s.Theme.Text).Render(strings.Join(lines, "\n"))
		rows = append(rows, leaf.Labelled(c, s.Theme.Dim, f.Name, factName, value))
	}
	return lipgloss.JoinVertical(lipgloss.Left, rows...)
}
