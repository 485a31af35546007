package wholefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/gmemtop/gmemtop/traces/wholefile"
)

// A file is replaced whole, with the mode asked for. A body that fails, or panics, leaves the old one and
// nothing beside it.
func TestAFileIsReplacedWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	write := func(text string, err error) error {
		return wholefile.Write(path, 0o640, func(f *os.File) error {
			if text == "" {
				panic("in the middle")
			}
			_, werr := f.WriteString(text)
			return errors.Join(werr, err)
		})
	}
	check := func(want string) {
		t.Helper()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("the file has %q (%v), want %q", got, err, want)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
			t.Errorf("the folder has %v (%v), want one file", all, err)
		}
	}
	if err := write("first", nil); err != nil {
		t.Fatal(err)
	}
	check("first")
	if err := write("second", nil); err != nil {
		t.Fatal(err)
	}
	check("second")
	full := errors.New("no space left")
	if err := write("half", full); !errors.Is(err, full) {
		t.Errorf("a body that fails: %v", err)
	}
	check("second")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = write("", nil)
	}()
	check("second")
	err := wholefile.Write(filepath.Join(dir, "none", "a.txt"), 0o600, nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}
