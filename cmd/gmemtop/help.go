package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/managers"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// A command's help begins with how to call it and three examples, and fits on one screen. Flags that few
// people need are in gmemtop COMMAND --help-all. Long texts, and texts that several commands share, are
// topics of their own: gmemtop help managers.

// helpTexts adds the topics to the root command, and has all commands print their help by writeHelp.
func helpTexts(a *app, root *cobra.Command) {
	root.AddCommand(topics()...)
	root.PersistentFlags().BoolVar(&a.flags.helpAll, "help-all", false,
		"print the help with every flag and example")
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		_ = output.Stream(a.out, func(w io.Writer) error {
			return writeHelp(w, c, helpWidth(a), a.flags.helpAll)
		})
	})
	for _, c := range append(root.Commands(), root) {
		check := c.Args
		c.Args = func(c *cobra.Command, args []string) error {
			switch {
			case a.flags.helpAll:
				return pflag.ErrHelp // cobra prints the help instead of running the command
			case check != nil:
				return check(c, args)
			}
			return cobra.ArbitraryArgs(c, args)
		}
	}
}

// topics returns commands that only explain; cobra lists them below the others.
func topics() []*cobra.Command {
	return []*cobra.Command{
		{Use: "managers", Short: "The memory managers, by family", Long: managersTopic()},
		{Use: "hardware", Short: "The GPUs and networks that have names", Long: hardwareTopic()},
		{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesTopic},
	}
}

const exitCodesTopic = `Exit codes of every command but run, whose exit code is that of its command:

  0    done
  1    failure
  2    mistake in the command line
  3    found what was asked about: an out-of-memory, a condition of --fail-if, nothing that fits
  4    damaged input
  5    not supported here
  130  interrupted`

// hardwareTopic lists the GPUs and networks that have names.
func hardwareTopic() string {
	return "--hardware takes a name, the beginning of one (h100), or a file saved by calibration:\n\n  " +
		strings.Join(hardwareNames(), "\n  ") +
		"\n\n--network takes:\n\n  " + strings.Join(networkNames(), "\n  ")
}

// managersTopic lists the managers, each with what it does and where its method comes from.
func managersTopic() string {
	var b strings.Builder
	b.WriteString("--managers takes names separated by commas, beginnings with *, or all.\n")
	family := ""
	for _, m := range managers.All() {
		i := m.Info()
		if f := i.Family.String(); f != family {
			family = f
			fmt.Fprintf(&b, "\n  %s\n", f)
		}
		fmt.Fprintf(&b, "    %-17s %s\n", i.Name, i.Summary)
	}
	return b.String()
}

// helpWidth is the width of help texts: the terminal's, up to a width that reads well.
func helpWidth(a *app) int {
	const widest = 100
	if w := a.width(); w > 0 {
		return min(w, widest)
	}
	return widest
}

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

// writeHelp writes a command's help. all adds the flags that few people need and the rest of the examples.
func writeHelp(out io.Writer, c *cobra.Command, wide int, all bool) error {
	var b strings.Builder
	root := !c.HasParent()
	all = all || root
	text := reflow(cmp.Or(c.Long, c.Short), wide) + "\n"
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
	examples := strings.Split(c.Example, "\n")
	if !all {
		examples = examples[:min(len(examples), shortExamples)]
	}
	if c.Example != "" {
		fmt.Fprintf(&b, "\nExamples\n%s\n", strings.Join(examples, "\n"))
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
	list := shownFlags(c, all)
	fmt.Fprintf(&b, "\nFlags\n%s\n", flagTable(list, wide))
	if len(list) < len(shownFlags(c, true)) {
		fmt.Fprintf(&b, "%s --help-all prints every flag.\n", c.CommandPath())
	}
	if root {
		b.WriteString("Each flag can be set in the environment: GMEMTOP_UNITS=si for --units si.\n")
	} else {
		b.WriteString("All commands have --ascii, --color, --quiet, --units and --verbose: " +
			"see gmemtop --help.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
