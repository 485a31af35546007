package help

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Again returns the command line of a command as it was typed, with the flags in change set to other values,
// and without some flags.
func Again(cmd *cobra.Command, args []string, change map[string]string, without ...string) string {
	words := append(strings.Fields(cmd.CommandPath()), args...)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(without, f.Name) {
			return
		}
		value, changed := change[f.Name]
		if !changed {
			value = strings.Trim(f.Value.String(), "[]") // lists of numbers print like this
		}
		words = append(words, "--"+f.Name)
		switch {
		case f.Value.Type() != "bool":
			words = append(words, value)
		case value == "false":
			words[len(words)-1] += "=false"
		}
	})
	for i, w := range words {
		words[i] = console.ShellWord(w)
	}
	return report.Printable(strings.Join(words, " "))
}
