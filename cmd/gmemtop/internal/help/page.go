package help

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// pageWidth is the width of tables on a page: man(1) indents them by seven of eighty columns, and does not
// wrap them.
const pageWidth = 72

// pageIndent is by how much man(1) indents the text of a page.
const pageIndent = 7

// WritePage writes a command's manual page in the man macros (man(7)). It has no date: two builds of one
// version write the same page.
func WritePage(w io.Writer, c *cobra.Command, version string) error {
	out := bufio.NewWriter(w)
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(out, ".TH %s 1 \"\" \"gmemtop %s\" \"gmemtop\"\n", roff(strings.ToUpper(name)), roff(version))
	// Ragged on the right. No word is broken, which groff's macros would otherwise turn on again with each
	// paragraph. One space between sentences, also where a line of the source ends with one.
	out.WriteString(".ad l\n.nr HY 0\n")
	out.WriteString(".nh\n.ss 12 0\n")
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(out, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	out.WriteString(".SH DESCRIPTION\n")
	writeText(out, cmp.Or(c.Long, c.Short))
	if c.Example != "" {
		out.WriteString(".SH EXAMPLES\n")
		writeExamples(out, c.Example)
	}
	if !c.HasParent() {
		out.WriteString(".SH COMMANDS\n")
		for _, x := range c.Commands() {
			if x.IsAvailableCommand() && x.Name() != "help" {
				fmt.Fprintf(out, ".TP\n.B %s\n%s\n", roff(x.Name()), roff(x.Short))
			}
		}
	}
	out.WriteString(".SH OPTIONS\n")
	for _, f := range ShownFlags(c, true) {
		short := ""
		if f.Shorthand != "" {
			short = "-" + f.Shorthand + ", "
		}
		fmt.Fprintf(out, ".TP\n.B %s\n%s\n", roff(short+"--"+f.Name+valueOf(f)), roff(flagUsage(f)))
	}
	if c.HasParent() {
		out.WriteString(".PP\n" + roff("gmemtop(1) has the options and exit codes that all commands share.") +
			"\n")
	} else {
		for _, x := range c.Commands() {
			if x.IsAdditionalHelpTopicCommand() {
				heading := strings.ToUpper(strings.ReplaceAll(x.Name(), "-", " "))
				fmt.Fprintf(out, ".SH \"%s\"\n", roff(heading))
				writeText(out, reflow(x.Long, pageWidth))
			}
		}
	}
	out.WriteString(".SH SEE ALSO\n")
	var pages []string
	for _, x := range append(c.Root().Commands(), c.Root()) {
		related := c.GroupID != "" && x.GroupID == c.GroupID || !x.HasParent() || !c.HasParent()
		if x != c && x.Runnable() && !x.Hidden && x.Name() != "help" && related {
			pages = append(pages, `\%`+roff(strings.ReplaceAll(x.CommandPath(), " ", "-"))+"(1)")
		}
	}
	fmt.Fprintln(out, strings.Join(pages, ", "))
	return out.Flush()
}

// writeExamples writes commands without the indent that they have in the help, and moves them to the left by
// as much as the widest of them needs to fit into the page.
func writeExamples(out *bufio.Writer, text string) {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	widest := 0
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
		widest = max(widest, len(lines[i]))
	}
	out.WriteString(".PP\n")
	if over := min(widest-pageWidth, pageIndent); over > 0 {
		fmt.Fprintf(out, ".in -%dn\n", over)
	}
	out.WriteString(".EX\n")
	for _, line := range lines {
		fmt.Fprintln(out, roff(line))
	}
	out.WriteString(".EE\n")
}

// writeText writes paragraphs, and indented lines as they are.
func writeText(out *bufio.Writer, text string) {
	example := false
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		switch indented := strings.HasPrefix(line, " "); {
		case indented != example && indented:
			out.WriteString(".PP\n.EX\n")
			example = true
		case indented != example && line != "":
			out.WriteString(".EE\n.PP\n")
			example = false
		case line == "" && !example:
			out.WriteString(".PP\n")
			continue
		}
		fmt.Fprintln(out, roff(line))
	}
	if example {
		out.WriteString(".EE\n")
	}
}

// roff escapes a line of text. A hyphen is a minus, so that options can be copied from the page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
