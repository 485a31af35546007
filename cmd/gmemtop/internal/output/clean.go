package output

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gmemtop/gmemtop/timeline/report"
)

// Clean returns body with a writer that removes terminal control sequences, as report.Printable does; line
// ends and tabs stay. Names from files, processes and devices get into reports in many places; all reports
// pass through here.
func Clean(body func(w io.Writer) error) func(w io.Writer) error {
	return func(w io.Writer) error {
		c := cleaner{w: w}
		if err := body(&c); err != nil {
			return err
		}
		_, err := io.WriteString(w, clean(string(c.rest)))
		return err
	}
}

type cleaner struct {
	w    io.Writer
	rest []byte // the first bytes of a character that the next Write completes
}

func (c *cleaner) Write(b []byte) (int, error) {
	text := b
	if len(c.rest) > 0 {
		text = append(c.rest, b...)
	}
	whole := len(text) - partial(text)
	var err error
	if plain(text[:whole]) {
		_, err = c.w.Write(text[:whole])
	} else {
		_, err = io.WriteString(c.w, clean(string(text[:whole])))
	}
	c.rest = append([]byte(nil), text[whole:]...)
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// partial returns how many bytes at the end of b belong to an incomplete character.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return n
			}
			return 0
		}
	}
	return 0
}

// plain reports whether b is ASCII without control characters.
func plain(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' || c >= 0x7f {
			return false
		}
	}
	return true
}

func clean(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		i := strings.IndexAny(s, "\n\t")
		if i < 0 {
			i = len(s)
		}
		out.WriteString(report.Printable(s[:i]))
		end := min(i+1, len(s))
		out.WriteString(s[i:end])
		s = s[end:]
	}
	return out.String()
}
