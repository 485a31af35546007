package canvas

import (
	"image/color"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
)

// FromGloss returns how a cell looks in a Lip Gloss style: its colours and attributes, without its layout.
func FromGloss(s lipgloss.Style) Style {
	return Style{
		FG: colorOf(s.GetForeground()), BG: colorOf(s.GetBackground()),
		Bold: s.GetBold(), Faint: s.GetFaint(), Italic: s.GetItalic(), Underline: s.GetUnderline(),
		Reverse: s.GetReverse(), Strike: s.GetStrikethrough(),
	}
}

func colorOf(c color.Color) color.Color {
	if _, none := c.(lipgloss.NoColor); none {
		return nil
	}
	return c
}

// Gloss returns a look as a Lip Gloss style, in colours that the terminal knows.
func (c *Canvas) Gloss(st Style) lipgloss.Style {
	s := lipgloss.NewStyle().Bold(st.Bold).Faint(st.Faint).Italic(st.Italic).Underline(st.Underline).
		Reverse(st.Reverse).Strikethrough(st.Strike)
	if fg := c.profile.reduce(st.FG); fg != nil {
		s = s.Foreground(fg)
	}
	if bg := c.profile.reduce(st.BG); bg != nil {
		s = s.Background(bg)
	}
	return s
}

// reduce returns the colour that a terminal shows for c: Lip Gloss knows nothing of a Tone's basic colour.
func (p Profile) reduce(c color.Color) color.Color {
	t, ok := c.(Tone)
	switch {
	case c == nil || p == NoColor:
		return nil
	case !ok:
		return c
	case p == ANSI16:
		return ansi.BasicColor(t.Basic)
	case p == ANSI256:
		return t.nearest()
	}
	if n := t.index(); n > 0 {
		return ansi.IndexedColor(n)
	}
	return color.RGBA{t.R, t.G, t.B, 0xff}
}

// Plain returns text as it may be given to Lip Gloss: each control character is a space, so that no sequence
// of a file's own is among those of the styles, and a cluster of runes on whose width terminals do not agree
// is its first rune.
func Plain(s string) string {
	if printable(s) {
		return s
	}
	var b strings.Builder
	for s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > 0; {
		if s[0] < ' ' || s[0] == 0x7f {
			b.WriteByte(' ')
			s = s[1:]
			continue
		}
		cluster, w := ansi.FirstGraphemeCluster(s, ansi.WcWidth)
		s = s[len(cluster):]
		if first, n := utf8.DecodeRuneInString(cluster); w != lipgloss.Width(cluster) {
			cluster = cluster[:n]
			if w = Width(cluster); w != lipgloss.Width(cluster) {
				cluster, w = string(unicode.ReplacementChar), 1
			}
		} else if unicode.IsControl(first) {
			continue
		}
		if w > 0 {
			b.WriteString(cluster)
		}
	}
	return b.String()
}

// printable reports whether s is printable ASCII only.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// Print writes a block of text that Lip Gloss rendered, its upper left corner at (x, y). Of the sequences in
// it only those of styles mean something.
func (c *Canvas) Print(x, y int, block string) {
	for i, line := range strings.Split(block, "\n") {
		printLine(c, x, y+i, line)
	}
}

func printLine(c *Canvas, x, y int, line string) {
	p := ansi.GetParser()
	defer ansi.PutParser(p)
	var pen uv.Style
	var st StyleID
	var state byte
	for len(line) > 0 {
		end := strings.IndexByte(line, '\x1b')
		if end < 0 {
			end = len(line)
		}
		x += write(c, x, y, st, line[:end])
		line = line[end:]
		if line == "" {
			return
		}
		seq, _, n, next := ansi.DecodeSequenceWc(line, state, p)
		if ansi.HasCsiPrefix(seq) && p.Command() == 'm' {
			uv.ReadStyle(p.Params(), &pen)
			st = c.Style(penLook(&pen))
		}
		line, state = line[n:], next
	}
}

// penLook returns what a terminal's pen writes.
func penLook(p *uv.Style) Style {
	has := func(attr uint8) bool { return p.Attrs&attr != 0 }
	return Style{
		FG: p.Fg, BG: p.Bg, Bold: has(uv.AttrBold), Faint: has(uv.AttrFaint), Italic: has(uv.AttrItalic),
		Underline: p.Underline != ansi.UnderlineNone,
		Reverse:   has(uv.AttrReverse), Strike: has(uv.AttrStrikethrough),
	}
}
