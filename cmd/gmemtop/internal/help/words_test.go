package help

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestTheNumberOfArgumentsIsExplained(t *testing.T) {
	cmd := &cobra.Command{Use: "diff A B"}
	for want, args := range map[string][]string{
		"":                                     {"a", "b"},
		"diff needs A and B":                   nil,
		`diff needs A and B, but got only "a"`: {"a"},
		`diff takes only A and B: "c" is one too many`: {"a", "b", "c"},
	} {
		got := ""
		if err := ExactArgs("A", "B")(cmd, args); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, not %q", args, got, want)
		}
	}
}
