package gmemtop_test

import (
	"bufio"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line may be. A tab counts as four columns.
const maxColumns = 110

// longLines lists the files that have longer lines, and how many: debts that may only shrink.
const longLines = "testdata/longlines.txt"

var updateLines = flag.Bool("update-lines", false, "rewrite "+longLines+" where lines have become shorter")

func TestNoLineGrowsTooLong(t *testing.T) {
	owed, now := readLongLines(t), map[string]int{}
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == ".":
		case d.IsDir():
			if strings.HasPrefix(path, ".") || path == "bin" || path == "dist" {
				return fs.SkipDir
			}
		case slices.Contains([]string{".go", ".py", ".sh"}, filepath.Ext(path)):
			if n := countLongLines(t, path); n > 0 {
				now[filepath.ToSlash(path)] = n
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if now[path] > owed[path] {
			t.Errorf("%s: %d lines above %d columns, %d are allowed", path, now[path], maxColumns, owed[path])
		}
	}
	for path, n := range owed {
		if now[path] < n && !*updateLines {
			t.Errorf("%s has %d long lines left of %d: go test . -update-lines", path, now[path], n)
		}
	}
	if !*updateLines || t.Failed() {
		return
	}
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%d %s\n", now[path], path)
	}
	if err := os.WriteFile(longLines, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readLongLines(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(longLines)
	if err != nil {
		t.Fatal(err)
	}
	owed := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var n int
		var path string
		if _, err := fmt.Sscan(line, &n, &path); err != nil {
			t.Fatalf("%s: %q: %v", longLines, line, err)
		}
		owed[path] = n
	}
	return owed
}

func countLongLines(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if utf8.RuneCount(lines.Bytes())+3*strings.Count(lines.Text(), "\t") > maxColumns {
			n++
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return n
}
