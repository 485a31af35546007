package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/help"
)

// Every line of help fits a usual terminal.
func TestHelpFitsATerminal(t *testing.T) {
	const wide = 80
	root := newRootCommand(newApp(os.Stdin, os.Stdout, os.Stderr, nil))
	for _, c := range append(root.Commands(), root) {
		for _, all := range []bool{false, true} {
			var b bytes.Buffer
			if err := help.Write(&b, c, wide, all); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				if utf8.RuneCountInString(line) > wide {
					t.Errorf("gmemtop %s --help (all: %v): %q", c.Name(), all, line)
				}
			}
		}
	}
}

// A short help has three whole examples: none ends within a command that takes several lines.
func TestShortHelpCutsNoExample(t *testing.T) {
	c := &cobra.Command{Use: "x", Run: func(*cobra.Command, []string) {},
		Example: "  one\n  two \\\n      more\n  three \\\n      more\n  four"}
	parent := &cobra.Command{Use: "gmemtop"}
	parent.AddCommand(c)
	for all, want := range map[bool]string{false: "three \\\n      more\n\n", true: "  four\n\n"} {
		var b bytes.Buffer
		if err := help.Write(&b, c, 80, all); err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(b.String(), "  two \\\n      more\n  "); !strings.Contains(rest, want) ||
			strings.Contains(rest, "four") != all {
			t.Errorf("all: %v:\n%s", all, b.String())
		}
	}
}
