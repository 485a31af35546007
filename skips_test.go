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

// A skip says what is missing, "needs g++: a compiler of C++", and CONTRIBUTING.md lists it: what stands in
// front of the colon has a word there that is no common one.
func TestEverySkipNamesWhatIsMissingAndIsListed(t *testing.T) {
	text, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## What skips, and for want of what")
	if !ok {
		t.Fatal("CONTRIBUTING.md has no list of what skips")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	listed := map[string]bool{}
	for _, w := range words.FindAllString(table, -1) {
		listed[w] = true
	}
	count := 0
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
		for at, what := range found {
			count++
			needs, ok := strings.CutPrefix(what, "needs ")
			if !ok {
				t.Errorf("%s: a skip begins with \"needs\" and names what is missing: %q", at, what)
				continue
			}
			needs, _, _ = strings.Cut(needs, ":")
			known := strings.Contains(needs, "%") && len(words.FindAllString(needs, -1)) == 0 // the name comes at the time
			for _, w := range words.FindAllString(needs, -1) {
				known = known || listed[w] && !common[w]
			}
			if !known {
				t.Errorf("%s: %q is not among what CONTRIBUTING.md lists", at, what)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count < 90 {
		t.Errorf("%d skips were found: this test looks in the wrong place", count)
	}
}

var (
	words  = regexp.MustCompile(`[A-Za-z_/][A-Za-z0-9_+./-]*[A-Za-z0-9_+]`)
	common = map[string]bool{"an": true, "the": true, "of": true, "to": true, "that": true, "and": true, "in": true, "it": true, "is": true, "or": true, "with": true, "one": true,
		"one's": true, "what": true, "for": true, "on": true, "by": true, "than": true, "which": true, "its": true, "any": true, "other": true}
)

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
	found := map[string]string{}
	for i, m := range regexp.MustCompile(`(?m)^\[[^\]]*\] skip(?: '([^']*)')?`).FindAllStringSubmatch(string(text), -1) {
		found[path+" skip "+strconv.Itoa(i+1)] = m[1]
	}
	return found
}
