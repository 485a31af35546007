package main

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// page is the Markdown written so far.
type page struct{ text bytes.Buffer }

// width is where paragraphs are wrapped.
const width = 110

func (p *page) heading(level int, format string, args ...any) {
	if p.text.Len() > 0 {
		p.text.WriteByte('\n')
	}
	p.text.WriteString(strings.Repeat("#", level) + " " + sprintf(format, args) + "\n")
}

// para writes a paragraph, wrapped. Without arguments the format is the text.
func (p *page) para(format string, args ...any) {
	p.text.WriteByte('\n')
	p.wrap("", "", sprintf(format, args))
}

// item writes a line of a list; the first of a list follows a blank line.
func (p *page) item(format string, args ...any) {
	lines := bytes.Split(bytes.TrimRight(p.text.Bytes(), "\n"), []byte("\n"))
	if last := string(lines[len(lines)-1]); !strings.HasPrefix(last, "- ") && !strings.HasPrefix(last, "  ") {
		p.text.WriteByte('\n')
	}
	p.wrap("- ", "  ", sprintf(format, args))
}

func (p *page) code(line string) { fmt.Fprintf(&p.text, "\n    %s\n", line) }

func (p *page) wrap(first, rest, text string) {
	line := first
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			p.text.WriteString(line + "\n")
			line, empty = rest, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	p.text.WriteString(line + "\n")
}

// table writes rows under a header; cells of the first column are left-aligned, all others right.
func (p *page) table(header []string, rows [][]string) {
	p.text.WriteByte('\n')
	line := func(cells []string) {
		for i := range header {
			cell := ""
			if i < len(cells) {
				cell = strings.ReplaceAll(cells[i], "|", `\|`)
			}
			p.text.WriteString("| " + cell + " ")
		}
		p.text.WriteString("|\n")
	}
	line(header)
	p.text.WriteString("|---" + strings.Repeat("|---:", len(header)-1) + "|\n")
	for _, r := range rows {
		line(r)
	}
}

func sprintf(format string, args []any) string {
	if len(args) == 0 {
		return format
	}
	return fmt.Sprintf(format, args...)
}

const (
	mebi = 1 << 20
	gibi = 1 << 30
)

func mib(n int64) string { return fmt.Sprintf("%.2f MiB", float64(n)/mebi) }
func gib(n int64) string { return fmt.Sprintf("%.2f GiB", float64(n)/gibi) }
func ms(ns int64) string { return fmt.Sprintf("%.1f ms", float64(ns)/1e6) }

// percent writes a share with a decimal.
func percent(v float64) string {
	s := fmt.Sprintf("%.1f %%", v*100)
	return strings.Replace(s, "-0.0", "0.0", 1)
}

// signed is percent with its sign.
func signed(v float64) string {
	if s := percent(v); strings.HasPrefix(s, "-") || s == "0.0 %" {
		return s
	}
	return "+" + percent(v)
}

// reached says in words whether a claim holds.
func reached(yes bool) string {
	if yes {
		return "reached"
	}
	return "not reached"
}

// some joins words into a list.
func some(words []string) string {
	switch len(words) {
	case 0:
		return "none"
	case 1:
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
