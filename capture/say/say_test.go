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
)

// gap matches one gap of a sentence.
var gap = regexp.MustCompile(`%[a-z]`)

// TestEverySentenceHasItsGapsFilled reads the program's own source.
func TestEverySentenceHasItsGapsFilled(t *testing.T) {
	names := constants(t)
	said := map[Sentence]bool{}
	for _, folder := range []string{"../../capture", "../../cmd", "../../replay"} {
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			checked := map[*ast.SelectorExpr]bool{}
			ast.Inspect(file, func(n ast.Node) bool {
				filled, of := 0, n // a sentence that is passed on as a value has its gaps filled nowhere
				if call, ok := n.(*ast.CallExpr); ok {
					function, ok := call.Fun.(*ast.SelectorExpr)
					switch {
					case !ok:
					case function.Sel.Name == "In": // any text fills the gaps
						return false
					case function.Sel.Name == "Text":
						filled, of = len(call.Args), function.X
					case function.Sel.Name == "Say" && len(call.Args) > 0:
						filled, of = len(call.Args)-1, call.Args[0]
					}
				}
				name, ok := of.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				s, ok := names[name.Sel.Name]
				if x, is := name.X.(*ast.Ident); !ok || !is || x.Name != "say" || checked[name] {
					return true
				}
				said[s], checked[name] = true, true
				if want := len(gap.FindAllString(catalogue[s].text, -1)); filled != want {
					t.Errorf("%s: %s has %d gaps, and %d are filled", path, name.Sel.Name, want, filled)
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

// TestRefusalsAreOfTheCatalogue reads the packages that refuse plans: their errors join sentences of the
// catalogue with punctuation and have no words of their own.
func TestRefusalsAreOfTheCatalogue(t *testing.T) {
	errorsSeen := 0
	words := regexp.MustCompile(`[A-Za-z]{2,}`)
	for _, folder := range []string{"../../replay/live", "../../replay/crew"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) == 0 {
					return true
				}
				function, _ := call.Fun.(*ast.SelectorExpr)
				if function == nil || function.Sel.Name != "New" && function.Sel.Name != "Errorf" {
					return true
				}
				if of, _ := function.X.(*ast.Ident); of == nil || of.Name != "errors" && of.Name != "fmt" {
					return true
				}
				errorsSeen++
				ast.Inspect(call.Args[0], func(n ast.Node) bool {
					if s, ok := n.(*ast.BasicLit); ok && words.MatchString(s.Value) {
						t.Errorf("%s: %s is not in the catalogue", path, s.Value)
					}
					return true
				})
				return true
			})
		}
	}
	if errorsSeen < 20 {
		t.Errorf("only %d errors were found", errorsSeen)
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

func TestASentenceIsFoundWhateverFillsItsGaps(t *testing.T) {
	said := "gmemtop: rank 1: " + PlanOn.Text("joint", "3 steps") + " (2.00 GiB)\n" +
		PlanFailed.Text("joint", "no room", GoesOnWithout.Text()) + "\n"
	for s, want := range map[Sentence]bool{PlanOn: true, PlanFailed: true, GoesOnWithout: true,
		PlanNeverOn: false} {
		if s.In(said) != want {
			t.Errorf("%q is there: %v", catalogue[s].text, !want)
		}
	}
	if PlanNeverOn.In("joint never ran:\nthe training ended after 2 steps, while gmemtop was planning") {
		t.Error("a sentence is found across two lines")
	}
}
