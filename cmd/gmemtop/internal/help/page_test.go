package help

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// A terminal of 80 columns leaves a page 73 for examples, which man(1) neither wraps nor shortens.
func TestExamplesFitIntoAPage(t *testing.T) {
	narrow, wide := "gmemtop x", "gmemtop x "+strings.Repeat("y", 65)
	for example, want := range map[string]string{
		"  " + narrow:                 ".PP\n.EX\n" + narrow + "\n.EE\n",
		"  " + narrow + "\n  " + wide: ".PP\n.in -3n\n.EX\n" + narrow + "\n" + wide + "\n.EE\n",
	} {
		root := &cobra.Command{Use: "gmemtop"}
		cmd := &cobra.Command{Use: "x", Short: "Does it", Example: example}
		cmd.Run = func(*cobra.Command, []string) {}
		root.AddCommand(cmd)
		var page strings.Builder
		if err := WritePage(&page, cmd, "1"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(page.String(), ".SH EXAMPLES\n"+want+".SH OPTIONS") {
			t.Errorf("%q: the page has not %q:\n%s", example, want, page.String())
		}
	}
}
