// Package output writes reports to files: a file appears under its name only when it is whole.
package output

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// ErrFolder is in the error about a name that is a folder's.
var ErrFolder = errors.New("is a directory")

// Files writes files. The zero value is ready.
type Files struct {
	// Force says that files which are there already may be overwritten.
	Force bool

	mu         sync.Mutex
	unfinished map[string]bool // paths under temporary names
}

func (f *Files) add(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unfinished == nil {
		f.unfinished = map[string]bool{}
	}
	f.unfinished[path] = true
}

func (f *Files) done(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unfinished, path)
}

// RemoveUnfinished removes what is being written now, for a program that is told to stop.
func (f *Files) RemoveUnfinished() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.unfinished {
		os.Remove(path)
	}
}

// Write hands body a writer to the file at path. The file appears when body has written all of it. One that
// is there already is kept unless Force is set, and one that a symbolic link names is replaced, not the link.
func (f *Files) Write(path string, body func(w io.Writer) error) error {
	if err := f.MayWrite(path); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, body)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	t, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, Reason(err))
	}
	f.add(t.Name())
	defer func() { // the temporary file goes, even where body panics
		t.Close()
		os.Remove(t.Name())
		f.done(t.Name())
	}()
	if err := Stream(t, body); err != nil {
		return err
	}
	if err := t.Chmod(newFileMode()); err != nil {
		return err
	}
	if err := t.Close(); err != nil {
		return err
	}
	return os.Rename(t.Name(), path)
}

// Stream hands body a buffered writer to f.
func Stream(f *os.File, body func(w io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	if err := body(w); err != nil {
		w.Flush()
		return err
	}
	return w.Flush()
}

// writeInto writes to a pipe or a device at path, which a file must not replace.
func writeInto(path string, body func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, Reason(err))
	}
	defer f.Close()
	if err := Stream(f, body); err != nil {
		return err
	}
	return f.Close()
}

// MayWrite returns an error where a file could not be written at path: where one is there already and Force
// is not set, above all. It is called before any work is done for the file.
func (f *Files) MayWrite(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot write %s: there is no folder %s: make it, or name another file", path,
				filepath.Dir(path))
		}
		return nil
	case err != nil:
		return fmt.Errorf("cannot write %s: %w", path, Reason(err))
	case info.IsDir():
		return fmt.Errorf("-o %s %w: name a file in it", path, ErrFolder)
	case !f.Force && info.Mode().IsRegular():
		return fmt.Errorf("%s is there already: overwrite it with -f or name another file", path)
	}
	return nil
}

// newFileMode is what the process's umask leaves of rw-rw-rw-; CreateTemp's own mode is for secrets.
func newFileMode() os.FileMode { return 0o666 &^ umask() }

// Reason drops the system call and the path of an error whose message names them itself.
func Reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
