// Package output writes reports to files. A file appears under its name only when it is complete.
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

// ErrFolder is the error for a path that is a folder.
var ErrFolder = errors.New("is a directory")

// Files writes files. The zero value is ready.
type Files struct {
	// Force allows overwriting existing files.
	Force bool

	mu         sync.Mutex
	unfinished map[string]bool // paths of temporary files
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

// RemoveUnfinished removes files still being written, for a program that is told to stop.
func (f *Files) RemoveUnfinished() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for path := range f.unfinished {
		os.Remove(path)
	}
}

// Write calls body with a writer to the file at path. The file appears once body has written all of it. An
// existing file is kept unless Force is set. If path is a symbolic link, Write replaces the link's target,
// not the link.
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
	defer func() { // remove the temporary file even if body panics
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

// Stream calls body with a buffered writer to f.
func Stream(f *os.File, body func(w io.Writer) error) error {
	w := bufio.NewWriterSize(f, 1<<16)
	if err := body(w); err != nil {
		w.Flush()
		return err
	}
	return w.Flush()
}

// writeInto writes to a pipe or a device at path, which must not be replaced by a file.
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

// MayWrite returns an error if a file could not be written at path, usually because one exists and Force is
// not set. It is called before any work is done for the file.
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
		return fmt.Errorf("%s already exists: overwrite it with -f or name another file", path)
	}
	return nil
}

// newFileMode is rw-rw-rw- less the process's umask; CreateTemp's own mode is for secrets.
func newFileMode() os.FileMode { return 0o666 &^ umask() }

// Reason strips the system call and the path from an error, for messages that name them already.
func Reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
