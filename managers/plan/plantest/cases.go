package plantest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/gmemtop/gmemtop/managers/plan"
)

// Cases runs each file of testdata/*.txtar as a subtest. A file's first part is a problem, which parse reads.
// The names of the other parts are questions about it, and answer's result must equal the part's text. With
// update the texts are rewritten instead.
func Cases(t *testing.T, update bool, parse func(t *testing.T, text string) *plan.Problem,
	answer func(t *testing.T, p *plan.Problem, question string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases in testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Files) < 2 {
				t.Fatalf("%s asks nothing: it needs a problem and a question", file)
			}
			p := parse(t, string(a.Files[0].Data))
			for i := 1; i < len(a.Files); i++ {
				f := &a.Files[i]
				got := answer(t, p, f.Name)
				if update {
					f.Data = []byte(got)
				} else if got != string(f.Data) {
					t.Errorf("%s gives\n%sinstead of\n%s", f.Name, got, f.Data)
				}
			}
			if update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
