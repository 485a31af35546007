package output

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestAFileAppearsOnlyWhenItIsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	a := &Files{}
	failed := errors.New("half way")
	err := a.Write(path, func(w io.Writer) error {
		io.WriteString(w, strings.Repeat("x", 1<<20))
		return failed
	})
	if !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	if err := a.Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "whole")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "whole" {
		t.Errorf("got %q", b)
	}
	if info, _ := os.Stat(path); info.Mode().Perm()&0o400 == 0 ||
		info.Mode().Perm() == 0o600 && umask() == 0o22 {
		t.Errorf("mode %v is a temporary file's", info.Mode())
	}
}

func TestPipesAndLinksAreNotReplaced(t *testing.T) {
	dir := t.TempDir()
	whole, link := filepath.Join(dir, "whole"), filepath.Join(dir, "link")
	if err := os.WriteFile(whole, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("whole", link); err != nil {
		t.Skipf("needs symbolic links: %v", err)
	}
	a := &Files{Force: true}
	hello := func(w io.Writer) error {
		_, err := io.WriteString(w, "hello")
		return err
	}
	if err := a.Write(link, hello); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is now %v, %v", info, err)
	}
	if b, _ := os.ReadFile(whole); string(b) != "hello" {
		t.Errorf("the file behind the link holds %q", b)
	}
	pipe := namedPipe(t, dir)
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // both ways, so that opening does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := a.Write(pipe, hello); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		t.Fatalf("the pipe is now %v, %v", info, err)
	}
	if err := reader.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, len("hello"))
	if _, err := io.ReadFull(reader, text); err != nil || string(text) != "hello" {
		t.Errorf("the pipe's reader got %q, %v", text, err)
	}
}

// namedPipe makes a named pipe with the system's tool, so that this test needs no file per system.
func namedPipe(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "pipe")
	if out, err := exec.Command("mkfifo", path).CombinedOutput(); err != nil {
		t.Skipf("needs mkfifo: %v %s", err, out)
	}
	return path
}
