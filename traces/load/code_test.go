package load_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces/load"
)

func TestOnlyCodeThatIsOlderThanTheRecordingIsRead(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	write := func(name string, size int, age time.Duration) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, bytes.Repeat([]byte("#"), size), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	recording := filepath.Join(dir, "problem.csv")
	if err := os.WriteFile(recording, []byte(problem), 0o600); err != nil {
		t.Fatal(err)
	}
	tr, err := load.Open(context.Background(), recording, load.Options{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		want bool
	}{
		{write("train.py", 10, time.Hour), true},
		{write("changed.py", 10, -time.Hour), false},
		{write("large.py", 2<<20, time.Hour), false},
		{write("secret.txt", 10, time.Hour), false},
		{dir, false},
		{filepath.Join(dir, "absent.py"), false},
	} {
		if text, ok := tr.Code.File(c.path); ok != c.want || ok != (text != "") {
			t.Errorf("%s: read %v, want %v", filepath.Base(c.path), ok, c.want)
		}
	}
}
