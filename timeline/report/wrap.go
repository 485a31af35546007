package report

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Wrap breaks a text at blanks into lines of at most w cells, or of 20 where w is less. It breaks no word,
// and no flag at its hyphens.
func Wrap(text string, w int) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := ansi.StringWidth(word)
		switch {
		case i == 0:
		case at+1+n > max(w, leastColumn):
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// leastColumn is how narrow a column of text may be.
const leastColumn = 20

// Hang wraps a line at w cells. Continuation lines align with its last column, which follows two or more
// spaces, or with its indent if it has none. A line whose last column begins too far right stays as it is.
func Hang(line string, w int) string {
	at := len(line) - len(strings.TrimLeft(line, " "))
	if i := strings.LastIndex(line, "  "); i >= at {
		at = i + 2
	}
	left := ansi.StringWidth(line[:at])
	if room := w - left; room >= leastColumn && ansi.StringWidth(line) > w {
		return line[:at] + strings.ReplaceAll(Wrap(line[at:], room), "\n", "\n"+strings.Repeat(" ", left))
	}
	return line
}
