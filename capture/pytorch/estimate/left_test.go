package estimate

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A file is removed only if it is the one that the script made, and a folder only if nothing else is in it.
func TestSweepRemovesOnlyWhatTheScriptMade(t *testing.T) {
	list, dir := t.TempDir(), t.TempDir()
	var said string
	folder := func(name string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		said += fmt.Sprintf("[\"folder\", %q]\n", filepath.Join(dir, name))
	}
	file := func(name string) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("made up"), 0o666); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		said += fmt.Sprintf("[\"file\", %q, %d, %d]\n", path, stat.Dev, stat.Ino)
		return path
	}
	folder("gone")
	file("gone/a")
	folder("shared")
	file("shared/b")
	for _, theirs := range []string{file("replaced") + ".new", filepath.Join(dir, "shared", "theirs")} {
		if err := os.WriteFile(theirs, []byte("theirs"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "replaced.new"), filepath.Join(dir, "replaced")); err != nil {
		t.Fatal(err)
	}
	said += `["file", "` + filepath.Join(dir, "shared", "theirs") // the process ended in the middle of a line
	if err := os.WriteFile(filepath.Join(list, "1.left"), []byte(said), 0o666); err != nil {
		t.Fatal(err)
	}
	if files, folders := sweep(list); files != 2 || folders != 1 {
		t.Errorf("%d files and %d folders, expected 2 and 1", files, folders)
	}
	for name, want := range map[string]bool{"gone": false, "shared": true, "shared/b": false,
		"shared/theirs": true, "replaced": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: %t", name, err == nil)
		}
	}
	if files, folders := sweep(list); files+folders != 0 {
		t.Errorf("the second time: %d and %d", files, folders)
	}
}
