// Package wholefile writes files that appear under their names only when they are complete.
package wholefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Write has body write a file with mode, and puts it in place of what is at path. Until body has returned
// without an error nothing at path changes. The unfinished file lies in the same folder, under a name that
// begins with .gmemtop-, and until it is complete only its owner can read it.
func Write(path string, mode fs.FileMode, body func(f *os.File) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".gmemtop-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // it is gone already if the rename succeeded
	defer f.Close()           // again, unless body panics
	if err := body(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
