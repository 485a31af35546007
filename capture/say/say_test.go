package say

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

func TestAnEndIsExplained(t *testing.T) {
	for _, c := range []struct {
		end  capture.End
		want string
	}{
		{capture.End{Reason: capture.Exited, Code: maybe.Known(0)}, "exit code 0"},
		{capture.End{Reason: capture.Exited}, "it has exited"},
		{capture.End{Reason: capture.Exited, Detail: "ValueError: x"}, "ValueError: x"},
		{capture.End{Reason: capture.Exited, Code: maybe.Known(1), Detail: "x", OutOfMemory: true},
			"exit code 1, out of memory: x"},
		{capture.End{Reason: capture.Exited, Detail: "x", OutOfMemory: true}, "out of memory: x"},
		{capture.End{Reason: capture.Detached}, "detached; the job is still running"},
		{capture.End{Reason: capture.Refused, Detail: "torch is too old"},
			"watching did not begin: torch is too old"},
		{capture.End{Reason: "later", Detail: "x"}, "later: x"},
	} {
		if got := End(c.end); got != c.want {
			t.Errorf("%+v: %q, not %q", c.end, got, c.want)
		}
	}
}

// gap matches one gap of a sentence.
var gap = regexp.MustCompile(`%[a-z]`)

// TestEverySentenceHasItsGapsFilled reads the program's own source.
func TestEverySentenceHasItsGapsFilled(t *testing.T) {
	names := constants(t)
	said := map[Sentence]bool{}
	for _, folder := range []string{"../../capture", "../../cmd"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				method, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				of, ok := method.X.(*ast.SelectorExpr)
				if !ok || method.Sel.Name != "Text" && method.Sel.Name != "Notice" {
					return true
				}
				s, ok := names[of.Sel.Name]
				if x, is := of.X.(*ast.Ident); !ok || !is || x.Name != "say" {
					return true
				}
				said[s] = true
				if want := len(gap.FindAllString(catalogue[s].text, -1)); len(call.Args) != want {
					t.Errorf("%s: %s has %d gaps, and %d are filled", path, of.Sel.Name, want, len(call.Args))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, s := range names {
		if !said[s] {
			t.Errorf("%s is never used", name)
		}
	}
}

// constants returns the sentences by name. Their values follow the order of declaration.
func constants(t *testing.T) map[string]Sentence {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "say.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]Sentence{}
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST || len(block.Specs) <= int(sentences) {
			continue
		}
		for i, spec := range block.Specs[:sentences] {
			names[spec.(*ast.ValueSpec).Names[0].Name] = Sentence(i)
		}
	}
	for s := range catalogue {
		if catalogue[s].text == "" {
			t.Errorf("sentence %d has no words", s)
		}
	}
	return names
}
