package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	anyFence = regexp.MustCompile("(?ms)^```\\w*\\n(.*?)^```$")
	codeSpan = regexp.MustCompile("`([^`]+)`")
	// A comment beside a command: what follows a # or three spaces.
	beside = regexp.MustCompile(`\s+#\s.*$|\s{3,}.*$`)
	// The end of a line that goes on in the next one, with that one's indentation.
	goesOn = regexp.MustCompile(`\\\n\s*`)
)

// commandLines returns the command lines of gmemtop in a text, without what a shell does with their output.
func commandLines(text string) []string {
	var found []string
	for _, line := range strings.Split(goesOn.ReplaceAllString(text, ""), "\n") {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		line = strings.TrimPrefix(line, "sudo ")
		if strings.HasPrefix(line, "gmemtop ") {
			found = append(found, strings.TrimSpace(beside.ReplaceAllString(line, "")))
		}
	}
	return found
}

// lineWords splits a command line as a shell does, up to the first pipe, redirection or ampersand.
func lineWords(line string) []string {
	var list []string
	word, quote, begun := "", rune(0), false
	for _, c := range line + " " {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word += string(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == '|' || c == '&' || c == '<' || c == '>' || c == ';':
			return list
		case c == ' ':
			if begun {
				list = append(list, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(c), true
		}
	}
	return list
}

// parses returns why a command line is not one that gmemtop accepts: its command, flags or arguments. Nothing
// is run.
func parses(line string) error {
	root := newRootCommand(newApp(nil, nil, nil, nil))
	c, rest, err := root.Find(lineWords(line)[1:])
	if err != nil {
		return err
	}
	if i := slices.Index(rest, "--"); i < 0 && slices.ContainsFunc(rest, func(w string) bool {
		return w == "-h" || w == "--help" || w == "--help-all"
	}) {
		return nil
	}
	if err := c.ParseFlags(rest); err != nil && !errors.Is(err, pflag.ErrHelp) {
		return err
	}
	if first := c.Flags().Arg(0); c == root && filepath.Ext(first) != "" {
		return nil // a file to open, which need not be here
	}
	if c.Args != nil {
		return c.Args(c, c.Flags().Args())
	}
	return nil
}

// names reports whether code within a sentence only names a command, or one of its flags: "gmemtop record",
// "gmemtop estimate --allocator real".
func names(line string) bool {
	w := lineWords(line)
	return len(w) == 2 || (len(w) == 3 || len(w) == 4) && strings.HasPrefix(w[2], "--")
}

// TestEveryCommandLineOfThePagesIsAccepted reads all pages and helps for command lines, and has each of them
// parsed as it stands.
func TestEveryCommandLineOfThePagesIsAccepted(t *testing.T) {
	texts := map[string][]string{}
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/tutorials/*.md",
		"../../packaging/python/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatalf("no pages at %s, %v", pattern, err)
		}
		for _, page := range pages {
			if filepath.Base(page) == "CHANGELOG.md" { // it tells of flags that are no more
				continue
			}
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, block := range anyFence.FindAllStringSubmatch(string(text), -1) {
				texts[page] = append(texts[page], commandLines(block[1])...)
			}
			prose := strings.ReplaceAll(anyFence.ReplaceAllString(string(text), ""), "\n", " ")
			for _, span := range codeSpan.FindAllStringSubmatch(prose, -1) {
				for _, line := range commandLines(span[1]) {
					if !names(line) {
						texts[page] = append(texts[page], line)
					}
				}
			}
		}
	}
	root := newRootCommand(newApp(nil, nil, nil, nil))
	for _, c := range append(root.Commands(), root) {
		texts["help of "+c.Name()] = commandLines(c.Example)
	}
	found := 0
	for page, lines := range texts {
		for _, line := range lines {
			found++
			if err := parses(line); err != nil {
				t.Errorf("%s: %s\n\t%v", page, line, err)
			}
		}
	}
	if found < 120 {
		t.Errorf("only %d command lines were found", found)
	}
}

func TestACommandLineThatIsNoneIsRefused(t *testing.T) {
	for _, line := range []string{"gmemtop nothing", "gmemtop stats", "gmemtop stats a b",
		"gmemtop oom a --colour always", "gmemtop diff a", "gmemtop compare a --top many"} {
		if parses(line) == nil {
			t.Errorf("%s is accepted", line)
		}
	}
}

// TestTheExamplesOfReportsRun runs the examples in the help of the commands that only read files, in a folder
// with the files that they name.
func TestTheExamplesOfReportsRun(t *testing.T) {
	dir := t.TempDir()
	for name, of := range map[string][]string{
		"snapshot.pickle": nil, "oom_snapshot.pickle": {"oom"},
		"before.pickle": nil, "after.pickle": {"batch=16"},
		"old.pickle": nil, "new.pickle": {"batch=16"},
	} {
		recorded(t, dir, name, of...)
	}
	if err := os.Mkdir(filepath.Join(dir, "snapshots"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rank0.pickle", "rank1.pickle"} {
		recorded(t, filepath.Join(dir, "snapshots"), name)
	}
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, c := range newRootCommand(newApp(nil, nil, nil, nil)).Commands() {
		if !slices.Contains([]string{"stats", "oom", "diff", "export", "replay"}, c.Name()) {
			continue
		}
		for _, line := range exampleLines(c) {
			if strings.Contains(line, "flamegraph.pl") || strings.Contains(line, "train.py") ||
				strings.Contains(line, "--device 1") {
				continue // other programs, and a GPU that these files lack
			}
			ran++
			if out, _ := shell(t, dir, filepath.Dir(bin), line); out == "" &&
				!strings.Contains(line, " -o ") {
				t.Errorf("%s prints nothing", line)
			}
		}
	}
	if ran < 8 {
		t.Errorf("only %d examples were run", ran)
	}
}

// exampleLines are the lines of a command's examples, as one types them.
func exampleLines(c *cobra.Command) []string {
	var lines []string
	for _, line := range strings.Split(strings.ReplaceAll(c.Example, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(beside.ReplaceAllString(line, "")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
