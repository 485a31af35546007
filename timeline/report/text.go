package report

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/timeline"
)

// printer collects the lines of a text report; flush passes them to the writer in one call.
type printer struct {
	buf   bytes.Buffer
	ascii bool
	width int // lines are wrapped at it, 0 for not at all
}

// newPrinter returns a printer of text; Markdown has no width.
func newPrinter(o Options) *printer { return &printer{ascii: o.ASCII, width: o.Width} }

// line prints one line without trailing spaces, wrapped. After a blank line it prints no other: what stood
// between them had nothing to say.
func (p *printer) line(format string, args ...any) {
	s := p.clean(fmt.Sprintf(format, args...))
	if s == "" && bytes.HasSuffix(p.buf.Bytes(), []byte("\n\n")) {
		return
	}
	if p.width > 0 {
		s = Hang(s, p.width)
	}
	p.buf.WriteString(s)
	p.buf.WriteByte('\n')
}

// command prints a line that the reader copies. It is not wrapped: what a terminal breaks itself, it copies
// as one line.
func (p *printer) command(indent, text string) {
	p.buf.WriteString(p.clean(indent + text))
	p.buf.WriteByte('\n')
}

func (p *printer) clean(s string) string {
	s = strings.TrimRight(Printable(s), " ")
	if p.ascii {
		s = toASCII(s)
	}
	return s
}

// flush writes the collected lines.
func (p *printer) flush(w io.Writer) error {
	_, err := w.Write(p.buf.Bytes())
	return err
}

// row is a line of a table: cells beginning with rightAlign are set flush right.
type row []string

// right marks a cell as flush right.
func right(s string) string { return rightAlign + s }

const rightAlign = "\x00"

// table prints rows with columns as wide as their widest cell, two spaces apart, after an indent. The last
// column is not padded.
func (p *printer) table(indent string, rows []row) {
	var widths []int
	for _, r := range rows {
		for i, cell := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(strings.TrimPrefix(cell, rightAlign)))
		}
	}
	for _, r := range rows {
		var b strings.Builder
		b.WriteString(indent)
		for i, cell := range r {
			text, flushRight := strings.CutPrefix(cell, rightAlign)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text))
			if flushRight {
				b.WriteString(pad + text)
			} else {
				b.WriteString(text + pad)
			}
			if i < len(r)-1 {
				b.WriteString("  ")
			}
		}
		p.line("%s", b.String())
	}
}

var asciiOf = strings.NewReplacer("·", "-", "≥", ">=", "≤", "<=", "█", "#", "▏", "|", "–", "-", "→", "->",
	"±", "+-", "…",
	"...", "×", "x",
	"←", "<-", "µ", "u", "Δ", "d", "‘", "'", "’", "'", "“", "\"", "”", "\"")

// toASCII replaces the special characters of reports by their nearest ASCII ones, and any other by a question
// mark.
func toASCII(s string) string {
	s = asciiOf.Replace(s)
	return strings.Map(func(r rune) rune {
		if r > 126 {
			return '?'
		}
		return r
	}, s)
}

// Grouped returns n with commas between groups of three digits.
func Grouped[T int | int64](n T) string { return timeline.Count(int64(n)) }

// blocksText counts blocks; bytes that only the source's total shows belong to no known block.
func blocksText(n int) string {
	if n == 0 {
		return ""
	}
	return timeline.Counted(n, "block")
}

// Percent returns part of whole in per cent with three digits, "" if whole is 0.
func Percent(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	v := 100 * float64(part) / float64(whole)
	switch {
	case v > 0 && v < 0.1:
		return "<0.1 %"
	case v >= 9.95, v == 0:
		return fmt.Sprintf("%.0f %%", v)
	}
	return fmt.Sprintf("%.1f %%", v)
}

// bar returns a bar of part in whole, at most width characters and at least a sliver if part is above 0.
func bar(part, whole int64, width int) string {
	if whole <= 0 || part <= 0 {
		return ""
	}
	n := int(math.Round(float64(width) * float64(part) / float64(whole)))
	if n == 0 {
		return "▏"
	}
	return strings.Repeat("█", min(n, width))
}

func finite(values ...float64) bool {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// shorten cuts s to n characters and keeps its end, where frames differ.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return "…" + string(r[len(r)-n+1:])
}

// Printable makes text from a file, or a file's name, safe to show on one line: characters that control a
// terminal, end a line or change the direction of writing (Unicode's Bidi_Control) become spaces.
func Printable(s string) string {
	if !strings.ContainsFunc(s, notASCII) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if drives(r) {
			return ' '
		}
		return r
	}, s)
}

// Cell makes text from a file safe as a CSV cell: as Printable, and with an apostrophe in front if a
// spreadsheet would take it for a formula (https://owasp.org/www-community/attacks/CSV_Injection).
func Cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		s = "'" + s
	}
	return Printable(s)
}

// notASCII reports whether r is anything but a printable ASCII character.
func notASCII(r rune) bool { return r < ' ' || r >= 0x7f }

// drives reports whether a terminal or text viewer obeys r instead of showing it.
func drives(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0, r == '\u061c', r == '\u200e', r == '\u200f', r >= '\u2028' &&
		r <= '\u202e',
		r >= '\u2066' && r <= '\u2069':
		return true
	}
	return false
}
