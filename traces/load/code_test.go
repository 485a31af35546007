package load_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

func TestOnlyFilesOfTheRecordedProgramAreRead(t *testing.T) {
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
	open := func() *traces.Trace {
		tr, err := load.Open(context.Background(), recording, load.Options{NoCache: true})
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	tr := open()
	if tr.Code != nil {
		t.Error("a trace reads the program's files though nobody attached them")
	}
	load.AttachCode(tr)
	pipe := filepath.Join(dir, "pipe.py")
	if err := exec.Command("mkfifo", pipe).Run(); err != nil {
		t.Logf("no named pipe: %v", err)
	}
	train := write("train.py", 10, time.Hour)
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "other.py"), []byte("#"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(elsewhere, "other.py"), now, now.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(elsewhere)
	for _, c := range []struct {
		path string
		want bool
	}{
		{train, true},
		{write("changed.py", 10, -time.Hour), false},
		{write("large.py", 2<<20, time.Hour), false},
		{write("secret.txt", 10, time.Hour), false},
		{write("empty.py", 0, time.Hour), false},
		{"train.py", true},  // beside the recording
		{"other.py", false}, // where gmemtop runs, which may be another program's
		{pipe, false},
		{dir, false},
		{filepath.Join(dir, "absent.py"), false},
	} {
		if text, ok := tr.Code.File(c.path); ok != c.want || ok != (text != "") {
			t.Errorf("%s: read %v, want %v", filepath.Base(c.path), ok, c.want)
		}
	}
	// A copy is newer than what it is a copy of.
	copied := open()
	copied.Clock.Epoch = now.Add(-2 * time.Hour).UnixNano()
	load.AttachCode(copied)
	if _, ok := copied.Code.File(train); ok {
		t.Error("a file is read that is newer than the recording's last event")
	}
}

func TestAFileOfTheProgramIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	recording, path := filepath.Join(dir, "problem.csv"), filepath.Join(dir, "train.py")
	for name, text := range map[string]string{path: "x = 1", recording: problem} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(path, time.Now(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	tr, err := load.Open(context.Background(), recording, load.Options{NoCache: true})
	if err != nil {
		t.Fatal(err)
	}
	load.AttachCode(tr)
	for range 2 {
		if text, ok := tr.Code.File(path); !ok || text != "x = 1" {
			t.Errorf("read %q, %v", text, ok)
		}
		_ = os.Remove(path)
	}
}
