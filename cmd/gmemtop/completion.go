package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// newCompletionCommand prints completions. cobra's own command of that name has a much longer help text.
func newCompletionCommand(a *app, root *cobra.Command) *cobra.Command {
	root.CompletionOptions.DisableDefaultCmd = true
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", GroupID: groupMachine, ValidArgs: help.Shells,
		DisableFlagsInUseLine: true,
		Args: cobra.MatchAll(help.ExactArgs("a shell's name"), func(_ *cobra.Command, args []string) error {
			return help.OneOf("", args[0], help.Shells)
		}),
		Short: "Shell completion",
		Long:  "Prints a script that completes gmemtop's commands and flags in your shell.",
		Example: "  source <(gmemtop completion bash)\n  gmemtop completion fish > " +
			"~/.config/fish/completions/gmemtop.fish",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.write(func(w io.Writer) error { return help.WriteCompletion(w, root, args[0]) })
		},
	}
}
