package assistant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAnAnswerIsCutAtTheEndOfALine(t *testing.T) {
	const line = "a line of a report, größer als zuvor\n"
	short := strings.Repeat(line, 10)
	if got := bounded(short); got != short {
		t.Errorf("a short answer became %q", got)
	}
	got := bounded(strings.Repeat(line, 1000))
	head, cut, ok := strings.Cut(got, "(cut here")
	if !ok || !strings.HasSuffix(cut, "\n") || len(got) > mostBytes+100 ||
		strings.ReplaceAll(head, line, "") != "" {
		t.Errorf("%d bytes, ending %q", len(got), got[max(len(got)-120, 0):])
	}
	got = bounded(strings.Repeat("ö", mostBytes))
	if len(got) > mostBytes+100 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("without lines: %d bytes", len(got))
	}
}

func TestANameOfTwoRecordingsNeedsItsPath(t *testing.T) {
	var paths []string
	for range 2 {
		path := filepath.Join(t.TempDir(), "a.gmt")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	f, err := NewFiles(paths)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.path("a.gmt"); err == nil || !strings.Contains(err.Error(), "2 recordings") {
		t.Errorf("by its name: %v", err)
	}
	if got, err := f.path(paths[1]); err != nil || got != paths[1] {
		t.Errorf("by its path: %q, %v", got, err)
	}
}
