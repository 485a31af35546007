package help

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/traces/near"
)

// Shells are those whose completion scripts can be written.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

// WriteCompletion writes a script that completes the command line in a shell.
func WriteCompletion(w io.Writer, root *cobra.Command, shell string) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return root.GenPowerShellCompletionWithDesc(w)
}

// Offer offers the values of flags to the shell. A command's own values are under its name and the flag's,
// such as "export format".
func Offer(root *cobra.Command, words map[string][]string) error {
	for _, c := range append(root.Commands(), root) {
		for name, values := range words {
			if own, ok := words[c.Name()+" "+name]; ok {
				values = own
			}
			if c.LocalFlags().Lookup(name) == nil {
				continue
			}
			offer := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
			if err := c.RegisterFlagCompletionFunc(name, offer); err != nil {
				return err
			}
		}
	}
	return nil
}

// OneOf returns an error if a flag's value, or a word that no flag has, is not one of some words.
func OneOf(flag, value string, words []string) error {
	if slices.Contains(words, value) {
		return nil
	}
	what := strings.TrimSpace(flag + " " + strconv.Quote(value))
	return fmt.Errorf("%s is not one of %s%s", what, strings.Join(words, ", "), near.Hint(value, words))
}
