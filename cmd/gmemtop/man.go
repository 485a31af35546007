package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
)

// manCommand prints the manual page of gmemtop or of one command.
type manCommand struct {
	*app
	root *cobra.Command
	dir  string
}

func newManCommand(a *app, root *cobra.Command) *cobra.Command {
	c := manCommand{app: a, root: root}
	cmd := &cobra.Command{
		Use: "man [COMMAND]", GroupID: groupMachine, Args: cobra.MaximumNArgs(1), Short: "Manual pages",
		Long: "Prints a manual page in roff: gmemtop's own, or that of a command. --dir writes all of them.",
		Example: "  gmemtop man | man -l -\n  gmemtop man attach | man -l -\n" +
			"  gmemtop man --dir /usr/local/share/man/man1",
		RunE: func(_ *cobra.Command, args []string) error { return c.run(args) },
	}
	cmd.Flags().StringVar(&c.dir, "dir", "", "write a page for each command into this `folder`")
	cmd.Flags().BoolVarP(&c.flags.force, "force", "f", false, "overwrite existing pages")
	return cmd
}

func (c *manCommand) run(args []string) error {
	if c.dir != "" {
		if len(args) > 0 {
			return usageError{errors.New("--dir writes the pages of all commands: leave COMMAND out")}
		}
		return c.writeAll()
	}
	page, rest, err := c.root.Find(args)
	if err != nil || len(rest) > 0 {
		return usageError{fmt.Errorf("no manual page for %q: gmemtop --help lists the commands", args[0])}
	}
	return c.write(false, func(w io.Writer) error { return writePage(page, w) })
}

func (c *manCommand) writeAll() error {
	for _, page := range append(c.root.Commands(), c.root) {
		if !page.Runnable() || page.Hidden || page.Name() == "help" {
			continue
		}
		name := strings.ReplaceAll(page.CommandPath(), " ", "-") + ".1"
		body := func(w io.Writer) error { return writePage(page, w) }
		if err := c.writeTo(filepath.Join(c.dir, name), false, body); err != nil {
			return err
		}
	}
	return nil
}

// writePage writes a command's page in the man macros (man(7)). It has no date: two builds of one version
// write the same page.
func writePage(c *cobra.Command, w io.Writer) error {
	out := bufio.NewWriter(w)
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	fmt.Fprintf(out, ".TH %s 1 \"\" \"gmemtop %s\" \"gmemtop\"\n", roff(strings.ToUpper(name)),
		roff(build.This().Version))
	fmt.Fprintf(out, ".SH NAME\n%s \\- %s\n", roff(name), roff(c.Short))
	fmt.Fprintf(out, ".SH SYNOPSIS\n.B %s\n", roff(c.UseLine()))
	out.WriteString(".SH DESCRIPTION\n")
	writeText(out, cmp.Or(c.Long, c.Short))
	if c.Example != "" {
		out.WriteString(".SH EXAMPLES\n")
		writeText(out, c.Example)
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
	for _, f := range shownFlags(c, true) {
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
				fmt.Fprintf(out, ".SH %s\n", roff(strings.ToUpper(x.Name())))
				writeText(out, x.Long)
			}
		}
	}
	out.WriteString(".SH SEE ALSO\n")
	var pages []string
	for _, x := range append(c.Root().Commands(), c.Root()) {
		related := c.GroupID != "" && x.GroupID == c.GroupID || !x.HasParent() || !c.HasParent()
		if x != c && x.Runnable() && x.Name() != "help" && related {
			pages = append(pages, roff(strings.ReplaceAll(x.CommandPath(), " ", "-"))+"(1)")
		}
	}
	fmt.Fprintln(out, strings.Join(pages, ", "))
	return out.Flush()
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
