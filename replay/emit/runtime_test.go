package emit_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/replay/emit"
)

func TestTheFileBesideAPlanIsRecognised(t *testing.T) {
	dir := t.TempDir()
	want := emit.RuntimeFile{Path: filepath.Join(dir, emit.Runtime)}
	look := func(when string) {
		t.Helper()
		if got := emit.RuntimeBeside(filepath.Join(dir, "less_memory.py")); got != want {
			t.Errorf("%s: %+v, not %+v", when, got, want)
		}
	}
	look("without it")
	for _, c := range []struct {
		text string
		want emit.RuntimeFile
	}{
		{emit.RuntimeSource(), emit.RuntimeFile{Path: want.Path, Current: true}},
		{emit.RuntimeSource() + "\n", emit.RuntimeFile{Path: want.Path, Changed: true}},
	} {
		if err := os.WriteFile(want.Path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		want = c.want
		look("with it")
	}
	if err := os.Remove(want.Path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(want.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	want = emit.RuntimeFile{Path: want.Path}
	look("with a folder of its name")
}
