package main

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
)

// A command's help begins with how to call it and three examples, and fits on one screen. Flags that few
// people need are in gmemtop COMMAND --help-all. Long texts, and texts that several commands share, are
// topics of their own: gmemtop help managers.

// helpTexts adds the topics to the root command, and makes all commands print their help with package help.
func helpTexts(a *app, root *cobra.Command) {
	root.AddCommand(help.Topics()...)
	root.PersistentFlags().BoolVar(&a.flags.helpAll, "help-all", false,
		"print the help with every flag and example")
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		if words := help.WordsBeside(c, args); len(words) > 0 {
			switch {
			case c == root:
				a.notHelped = help.FileArgs(root, words)
			case c.Name() == "help": // gmemtop help formats -h means the formats
				if a.notHelped = help.TopicArgs(c, words); a.notHelped == nil {
					c, _, _ = root.Find(words)
				}
			}
			if a.notHelped != nil {
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

// helpWidth is the width of help texts: the terminal's, up to a width that reads well; the usual width of a
// terminal if the text goes into a pager.
func helpWidth(a *app) int {
	const usual, widest = 80, 100
	if w := a.width(); w > 0 {
		return min(w, widest)
	}
	return usual
}
