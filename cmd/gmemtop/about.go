package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/build"
	"github.com/gmemtop/gmemtop/timeline/report"
)

func newVersionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", GroupID: groupMachine, Args: cobra.NoArgs, Short: "Print the version of this build",
		RunE: func(*cobra.Command, []string) error {
			return a.write(false, func(w io.Writer) error {
				if a.flags.json {
					return report.WriteJSON(w, build.This())
				}
				_, err := fmt.Fprintln(w, build.This())
				return err
			})
		},
	}
	c.Flags().BoolVar(&a.flags.json, "json", false, "print JSON")
	return c
}

// newCompletionCommand prints completions. cobra's own command of that name has a much longer help text.
func newCompletionCommand(a *app, root *cobra.Command) *cobra.Command {
	root.CompletionOptions.DisableDefaultCmd = true
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", GroupID: groupMachine, ValidArgs: shells,
		DisableFlagsInUseLine: true,
		Args:                  cobra.MatchAll(exactArgs("a shell's name"), cobra.OnlyValidArgs),
		Short:                 "Shell completion",
		Long:                  "Prints a script that completes gmemtop's commands and flags in your shell.",
		Example: "  source <(gmemtop completion bash)\n  gmemtop completion fish > " +
			"~/.config/fish/completions/gmemtop.fish",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.write(false, func(w io.Writer) error {
				switch args[0] {
				case "bash":
					return root.GenBashCompletionV2(w, true)
				case "zsh":
					return root.GenZshCompletion(w)
				case "fish":
					return root.GenFishCompletion(w, true)
				}
				return root.GenPowerShellCompletionWithDesc(w)
			})
		},
	}
}

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
		if !page.Runnable() || page.Hidden {
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

// writePage writes a command's page. It starts from Markdown, where a table is indented by four spaces.
func writePage(c *cobra.Command, w io.Writer) error {
	c.DisableAutoGenTag = true // pages of two builds of one version are the same
	c.Long = strings.ReplaceAll(c.Long, "\n  ", "\n      ")
	return doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "gmemtop", Manual: "gmemtop"}, w)
}
