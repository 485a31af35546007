package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// newCompletionCommand prints completions. cobra's own command of that name has a much longer help text.
func newCompletionCommand(a *app, root *cobra.Command) *cobra.Command {
	root.CompletionOptions.DisableDefaultCmd = true
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", GroupID: groupMachine, ValidArgs: shells,
		DisableFlagsInUseLine: true,
		Args: cobra.MatchAll(help.ExactArgs("a shell's name"), func(_ *cobra.Command, args []string) error {
			if !slices.Contains(shells, args[0]) {
				return fmt.Errorf("%q is not one of %s", args[0], strings.Join(shells, ", "))
			}
			return nil
		}),
		Short: "Shell completion",
		Long:  "Prints a script that completes gmemtop's commands and flags in your shell.",
		Example: "  source <(gmemtop completion bash)\n  gmemtop completion fish > " +
			"~/.config/fish/completions/gmemtop.fish",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.write(func(w io.Writer) error {
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
