package help

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gmemtop/gmemtop/traces/load"
	"github.com/gmemtop/gmemtop/traces/near"
)

// FileArgs takes files, and explains a first word that is neither a command nor a file.
func FileArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if _, err := os.Stat(args[0]); err == nil || args[0] == "-" ||
		strings.HasPrefix(args[0], load.SamplePrefix) {
		return nil
	}
	if _, err := strconv.ParseUint(args[0], 10, 32); err == nil {
		return fmt.Errorf("%q is a number, not a command: gmemtop attach %s watches that "+
			"process", args[0], args[0])
	}
	if strings.ContainsAny(args[0], "./") {
		return load.Missing(args[0])
	}
	err := unknown(cmd, args[0])
	if meant[strings.ToLower(args[0])] == "" && len(cmd.SuggestionsFor(args[0])) == 0 {
		err = fmt.Errorf("%w, and there is no file of that name", err)
		if name := load.Near(args[0]); name != "" {
			err = fmt.Errorf("%w: did you mean %s?", err, name)
		}
	}
	return err
}

// ExactArgs takes one argument for each name. The error for another number of them has the names.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			err := fmt.Errorf("%s needs %s", cmd.Name(), strings.Join(names, " and "))
			if len(args) > 0 {
				err = fmt.Errorf("%w, but got only %q", err, args[0])
			}
			return err
		case len(args) > len(names):
			return fmt.Errorf("%s takes only %s: %q is one too many", cmd.Name(),
				strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

// SomeArgs takes one argument or more of a kind.
func SomeArgs(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs %s", cmd.Name(), name)
		}
		return nil
	}
}

// FlagError adds the flag that is spelled alike to the error for one that there is not.
func FlagError(cmd *cobra.Command, err error) error {
	var none *pflag.NotExistError
	if !errors.As(err, &none) || len(none.GetSpecifiedName()) < 2 {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if name := near.Word(none.GetSpecifiedName(), names); name != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, name)
	}
	return err
}

// meant maps words that people try, from other tools or from what they want to know, to our commands.
var meant = map[string]string{
	"peak": "stats", "summary": "stats", "report": "stats", "analyze": "stats", "analyse": "stats",
	"show": "replay", "open": "replay", "load": "replay", "ui": "replay",
	"start": "run", "exec": "run", "launch": "run", "train": "run", "profile": "run",
	"watch": "attach", "monitor": "attach", "top": "attach", "ps": "attach",
	"why": "oom", "explain": "oom", "fit": "estimate", "fits": "estimate", "predict": "estimate",
	"optimize": "compare", "optimise": "compare", "convert": "export", "check": "doctor", "info": "doctor",
}

// unknown returns the error for a word that is no command. It names the commands that mean the same or are
// spelled alike.
func unknown(root *cobra.Command, word string) error {
	if name := meant[strings.ToLower(word)]; name != "" {
		return fmt.Errorf("unknown command %q: did you mean %s?", word, name)
	}
	root.SuggestionsMinimumDistance = min(2, len(word)/3) // wrong letters allowed
	if alike := root.SuggestionsFor(word); len(alike) > 0 {
		return fmt.Errorf("unknown command %q: did you mean %s?", word, strings.Join(alike, " or "))
	}
	return fmt.Errorf("unknown command %q", word)
}

// Commands returns the names of the commands that help lists.
func Commands(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// topics are the words that only help knows.
var topics = []string{"managers", "hardware", "formats", "exit-codes"}

// TopicArgs explains a word that has no help; cobra would print the help of gmemtop itself.
func TopicArgs(cmd *cobra.Command, args []string) error {
	root := cmd.Root()
	if c, _, err := root.Find(args); len(args) > 0 && (err != nil || c == root) {
		if topic := near.Hint(args[0], topics); topic != "" {
			return fmt.Errorf("unknown topic %q%s", args[0], topic)
		}
		err := unknown(root, args[0])
		if strings.HasSuffix(err.Error(), "?") {
			return err
		}
		return fmt.Errorf("%w; gmemtop --help lists the commands and topics", err)
	}
	return nil
}

// WordsBeside returns the words before -h, or the one after it.
func WordsBeside(c *cobra.Command, args []string) []string {
	if words := c.Flags().Args(); len(words) > 0 {
		return words
	}
	at := slices.IndexFunc(args, func(s string) bool { return s == "-h" || s == "--help" })
	if at >= 0 && at+1 < len(args) && !strings.HasPrefix(args[at+1], "-") {
		return args[at+1 : at+2]
	}
	return nil
}
