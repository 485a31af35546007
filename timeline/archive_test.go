package timeline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// eachArchive runs f on each txtar archive in testdata that matches a pattern. With -update the answers of f
// are written into the archive; otherwise they are compared with its contents. f gets the archive's section
// "trace" and the name of each other section, and returns the expected contents of that section.
func eachArchive(t *testing.T, pattern string, f func(t *testing.T, trace, section string) string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archive testdata/%s: %v", pattern, err)
	}
	for _, p := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(p), ".txtar"), func(t *testing.T) {
			ar, err := txtar.ParseFile(p)
			if err != nil {
				t.Fatal(err)
			}
			trace := ""
			for i := range ar.Files {
				file := &ar.Files[i]
				if file.Name == "trace" {
					trace = string(file.Data)
					continue
				}
				got := f(t, trace, file.Name)
				if *update {
					file.Data = []byte(got)
				} else if want := string(file.Data); got != want {
					t.Errorf("%s of %s:\n%s\nwant\n%s", file.Name, p, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(p, txtar.Format(ar), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
