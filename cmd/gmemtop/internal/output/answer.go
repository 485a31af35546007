package output

import (
	"bytes"
	"io"
	"strings"
)

// Answer keeps only the first paragraph of a text report, which is its answer. Like [Clean], it strips
// terminal control sequences.
func Answer(body func(w io.Writer) error) func(w io.Writer) error {
	return func(w io.Writer) error {
		head, _, _, err := split(body)
		if err == nil {
			_, err = io.WriteString(w, strings.TrimSuffix(head, "\n")+"\n")
		}
		return err
	}
}

// Emphasised writes a text report with its answer, the first paragraph, in bold if bold is set. If the report
// is higher than a terminal with this height, 0 if unknown, the answer also stands at the end: it would have
// scrolled away. Like [Clean], it strips terminal control sequences.
func Emphasised(body func(w io.Writer) error, height int, bold bool) func(w io.Writer) error {
	return func(w io.Writer) error {
		head, rest, more, err := split(body)
		if err != nil {
			return err
		}
		answer := head + "\n"
		if bold {
			answer = inBold(head)
		}
		text := answer
		if more {
			text += "\n" + rest
			if height > 0 && strings.Count(text, "\n") >= height {
				text += "\n" + answer
			}
		}
		_, err = io.WriteString(w, text)
		return err
	}
}

// split returns the first paragraph of a report and the rest, if there is more.
func split(body func(w io.Writer) error) (head, rest string, more bool, err error) {
	var b bytes.Buffer
	if err := Clean(body)(&b); err != nil {
		return "", "", false, err
	}
	head, rest, more = strings.Cut(b.String(), "\n\n")
	return head, rest, more, nil
}

// inBold is a text in bold, line by line: pagers forget the style at the end of a line.
func inBold(text string) string {
	bold := ""
	for line := range strings.Lines(text) {
		bold += "\x1b[1m" + strings.TrimRight(line, "\n") + "\x1b[0m\n"
	}
	return bold
}
