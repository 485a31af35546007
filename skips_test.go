package gmemtop_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A skip says what it needs, "needs g++: the stand-in GPU is compiled by the test": one row of the table in
// CONTRIBUTING.md, word for word up to the colon. Each row says how to provide the thing, and some test skips
// without it.
func TestEverySkipNamesOneThingOfTheTable(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	provided, used := needsTable(t, string(text)), map[string]int{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		var found map[string]string
		switch {
		case strings.HasSuffix(path, ".go"):
			found = skipsOfGo(t, path)
		case strings.HasSuffix(path, ".txtar"):
			found = skipsOfScript(t, path)
		}
		for at, message := range found {
			thing, ok := thingOf(message)
			used[thing]++
			switch {
			case !ok:
				t.Errorf("%s: a skip must begin with \"needs\" and name what is missing: %q", at, message)
			case provided[thing] == "":
				t.Errorf("%s: %q is not a row of the table in CONTRIBUTING.md: %q", at, thing, message)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for thing := range provided {
		if used[thing] == 0 {
			t.Errorf("CONTRIBUTING.md: no test skips without %q", thing)
		}
	}
}

// needsTable returns how each thing of the table is provided.
func needsTable(t *testing.T, text string) map[string]string {
	t.Helper()
	_, table, _ := strings.Cut(text, "## Skipped tests")
	table, _, _ = strings.Cut(table, "\n## ")
	provided := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(.*?)` \\|(.*?)\\|(.*?)\\|$").FindAllStringSubmatch(
		table, -1) {
		thing, how, what := row[1], strings.TrimSpace(row[2]), strings.TrimSpace(row[3])
		switch {
		case provided[thing] != "":
			t.Errorf("CONTRIBUTING.md lists %q twice", thing)
		case how == "" || what == "":
			t.Errorf("CONTRIBUTING.md does not say how %q is provided, or what needs it", thing)
		}
		provided[thing] = how
	}
	if len(provided) == 0 {
		t.Fatal("CONTRIBUTING.md has no table of skipped tests")
	}
	return provided
}

var (
	verb    = strings.NewReplacer("%d", "0", "%s", "NAME")
	version = regexp.MustCompile(`(^| )[0-9][0-9.]*`)
)

// thingOf returns what a skip says is missing, up to a colon or a parenthesis, with VERSION for a number that
// stands by itself and NAME for a text that is put in.
func thingOf(message string) (string, bool) {
	thing, ok := strings.CutPrefix(message, "needs ")
	thing, _, _ = strings.Cut(thing, ":")
	thing, _, _ = strings.Cut(thing, " (")
	return version.ReplaceAllString(verb.Replace(thing), "${1}VERSION"), ok
}

func TestASkipNamesExactlyOneThing(t *testing.T) {
	for message, want := range map[string]string{
		"needs g++: it compiles":           "g++",
		"needs probes (root, or CAP_BPF)":  "probes",
		"needs torch 2.10: older ones lie": "torch VERSION",
		"needs CPython 3.%d: none here":    "CPython VERSION",
		"needs the program %s: a tool":     "the program NAME",
		"needs python3.8: it compiles":     "python3.8",
		"needs g++ and root":               "g++ and root",
		"needs a fast g++: it compiles":    "a fast g++",
		"wants g++":                        "",
	} {
		if thing, ok := thingOf(message); ok != (want != "") || ok && thing != want {
			t.Errorf("%q names %q (%v), not %q", message, thing, ok, want)
		}
	}
}

// skipsOfGo returns the words of the calls of Skip and Skipf in a file, by where they stand.
func skipsOfGo(t *testing.T, path string) map[string]string {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || sel.Sel.Name != "Skip" && sel.Sel.Name != "Skipf" && sel.Sel.Name != "SkipNow" {
			return true
		}
		what := ""
		if len(call.Args) > 0 {
			what = beginning(call.Args[0])
		}
		found[files.Position(call.Pos()).String()] = what
		return true
	})
	return found
}

// beginning returns the text with which an expression begins, "" where that is no literal.
func beginning(e ast.Expr) string {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return beginning(sum.X)
	}
	literal, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	text, _ := strconv.Unquote(literal.Value)
	return text
}

// skipsOfScript returns the words of the skips in a script.
func skipsOfScript(t *testing.T, path string) map[string]string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	script, _, _ := strings.Cut(string(text), "\n-- ") // files follow
	found := map[string]string{}
	for i, m := range skipLine.FindAllStringSubmatch(script, -1) {
		found[path+" skip "+strconv.Itoa(i+1)] = m[1]
	}
	return found
}

var skipLine = regexp.MustCompile(`(?m)^(?:\[[^\]]*\] ?)*skip\b(?: '([^']*)')?`)
