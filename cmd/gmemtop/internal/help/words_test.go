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

func TestAFlagThatIsSpelledAlikeIsNamed(t *testing.T) {
	cmd := &cobra.Command{Use: "compare"}
	cmd.Flags().String("budget", "", "")
	cmd.Flags().String("batch", "", "")
	cmd.SetFlagErrorFunc(FlagError)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.Run = func(*cobra.Command, []string) {}
	for typed, want := range map[string]string{
		"--bugdet": "unknown flag: --bugdet: did you mean --budget?",
		"--colour": "unknown flag: --colour",
		"-b":       "unknown shorthand flag: 'b' in -b",
	} {
		cmd.SetArgs([]string{typed})
		if err := cmd.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, not %q", typed, err, want)
		}
	}
}
