// Package help prints the help and the manual page of a command from its cobra.Command, has the topics that
// only explain, and explains words that are no command.
package help

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/timeline/report"
)

// reflow wraps paragraphs at w cells. An indented line stays a line of its own.
func reflow(text string, w int) string {
	var out []string
	var paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			out, paragraph = append(out, report.Wrap(strings.Join(paragraph, " "), w)), nil
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		end()
		out = append(out, report.Hang(line, w))
	}
	end()
	return strings.Join(out, "\n")
}

// shortExamples is how many examples -h prints.
const shortExamples = 3

// examples returns the examples of a command, all or the first ones. An example that takes several lines ends
// all but the last with a backslash.
func examples(text string, all bool) string {
	lines := strings.Split(text, "\n")
	n := 0
	for i, line := range lines {
		if strings.HasSuffix(line, "\\") {
			continue
		}
		if n++; n == shortExamples && !all {
			lines = lines[:i+1]
			break
		}
	}
	return strings.Join(lines, "\n")
}

// Write writes a command's help, wide cells wide. all adds the flags that few people need and the rest of the
// examples.
func Write(out io.Writer, c *cobra.Command, wide int, all bool) error {
	var b strings.Builder
	root := !c.HasParent()
	all = all || root
	text := reflow(cmp.Or(c.Long, c.Short+"."), wide) + "\n"
	if root || !c.Runnable() {
		fmt.Fprintf(&b, "%s", text)
	}
	if !c.Runnable() {
		_, err := io.WriteString(out, b.String())
		return err
	}
	if root {
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "Usage\n  %s\n", c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples\n%s\n", examples(c.Example, all))
	}
	if !root {
		fmt.Fprintf(&b, "\n%s", text)
	}
	for _, g := range c.Groups() {
		fmt.Fprintf(&b, "\n%s\n", g.Title)
		for _, x := range c.Commands() {
			if x.GroupID == g.ID && x.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-11s %s\n", x.Name(), x.Short)
			}
		}
	}
	if root {
		b.WriteString("\nMore help\n")
		for _, x := range c.Commands() {
			if x.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(&b, "  gmemtop help %-11s %s\n", x.Name(), x.Short)
			}
		}
	}
	list := ShownFlags(c, all)
	fmt.Fprintf(&b, "\nFlags\n%s\n", flagTable(list, wide))
	if len(list) < len(ShownFlags(c, true)) {
		fmt.Fprintf(&b, "%s --help-all prints every flag.\n", c.CommandPath())
	}
	if root {
		b.WriteString("Each flag can be set in the environment: GMEMTOP_UNITS=si for --units si.\n")
	} else {
		b.WriteString(report.Wrap("All commands have --ascii, --color, --quiet, --units and --verbose: "+
			"see gmemtop --help.", wide) + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
