package assistant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/timeline"
	"github.com/gmemtop/gmemtop/timeline/timelinetest"
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

// watchedCode fails a test in which a file of the recorded program is read.
type watchedCode struct{ t *testing.T }

func (w watchedCode) File(path string) (string, bool) {
	w.t.Errorf("%s was read, which the user did not name", path)
	return "", false
}

func TestFilesOfTheRecordedProgramAreNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.gmt")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := NewFiles([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	open := func(context.Context, string) (*timeline.Timeline, error) {
		recorded := timelinetest.Script(t, firstCallFails)
		recorded.Trace.Code = watchedCode{t}
		return recorded, nil
	}
	x := &server{Options: Options{Files: files, Open: open}}
	answer, err := x.oom(t.Context(), recording{Recording: "a.gmt"})
	if err != nil || !strings.Contains(answer, "600 MiB") {
		t.Errorf("%q, %v", answer, err)
	}
}

// firstCallFails is a run of which the program's code would say what it is for.
const firstCallFails = `gpu 0
stack init convert /lib/torch/nn/modules/module.py:5 < _apply /lib/torch/nn/modules/module.py:4 < run a.py:1
stack in main train.py:4
stack fwd forward model.py:10 < _call_impl /lib/torch/nn/modules/module.py:1 < main train.py:9
seg 0x7f0000000000 1g
+ w 64m init
+ x 4m in
+ a 100m fwd
+ b 100m fwd
oom 600m 16m fwd
`
