package main

import (
	"cmp"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
	"github.com/gmemtop/gmemtop/traces/near"
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
			return exit.Mistakef("--dir writes the pages of all commands: leave COMMAND out")
		}
		return c.writeAll()
	}
	page, rest, err := c.root.Find(args)
	if err != nil || len(rest) > 0 {
		what := cmp.Or(near.Hint(args[0], help.Commands(c.root)), ": gmemtop --help lists the commands")
		return exit.Mistakef("no manual page for %q%s", args[0], what)
	}
	return c.write(func(w io.Writer) error { return help.WritePage(w, page, build.This().Version) })
}

func (c *manCommand) writeAll() error {
	for _, page := range append(c.root.Commands(), c.root) {
		if !page.Runnable() || page.Hidden || page.Name() == "help" {
			continue
		}
		name := strings.ReplaceAll(page.CommandPath(), " ", "-") + ".1"
		body := func(w io.Writer) error { return help.WritePage(w, page, build.This().Version) }
		if err := c.writeTo(filepath.Join(c.dir, name), body); err != nil {
			return err
		}
	}
	return nil
}
