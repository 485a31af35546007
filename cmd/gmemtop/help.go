package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/fit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/managers"
)

// A command's help begins with how to call it and three examples, and fits on one screen. Flags that few
// people need are in gmemtop COMMAND --help-all. Long texts, and texts that several commands share, are
// topics of their own: gmemtop help managers.

// helpTexts adds the topics to the root command, and makes all commands print their help with package help.
func helpTexts(a *app, root *cobra.Command) {
	root.AddCommand(topics()...)
	root.PersistentFlags().BoolVar(&a.flags.helpAll, "help-all", false,
		"print the help with every flag and example")
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if words := wordsBeside(c, args); c == root && len(words) > 0 {
			if a.notHelped = rootArgs(root, words); a.notHelped != nil {
				return
			}
		}
		_ = output.Stream(a.Out, func(w io.Writer) error {
			return help.Write(w, c, helpWidth(a), a.flags.helpAll)
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

// wordsBeside returns the words before -h, or the one after it.
func wordsBeside(c *cobra.Command, args []string) []string {
	if words := c.Flags().Args(); len(words) > 0 {
		return words
	}
	at := slices.IndexFunc(args, func(s string) bool { return s == "-h" || s == "--help" })
	if at >= 0 && at+1 < len(args) && !strings.HasPrefix(args[at+1], "-") {
		return args[at+1 : at+2]
	}
	return nil
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
		"\n\ngmemtop estimate also takes cards whose memory is known and whose speed is not,\n" +
		"with or without words such as NVIDIA and RTX (l4, 4090):\n\n  " +
		strings.Join(fit.OtherCards(), "\n  ") +
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

// helpWidth is the width of help texts: the terminal's, up to a width that reads well; the usual width of a
// terminal if the text goes into a pager.
func helpWidth(a *app) int {
	const usual, widest = 80, 100
	if w := a.width(); w > 0 {
		return min(w, widest)
	}
	return usual
}
