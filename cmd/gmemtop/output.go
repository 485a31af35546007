package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/charmbracelet/x/term"
)

// unfinished are files that are being written under a name that nobody asked for: they go when the program is
// told to stop.
type unfinished struct {
	mu    sync.Mutex
	paths map[string]bool
}

func (u *unfinished) add(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.paths == nil {
		u.paths = map[string]bool{}
	}
	u.paths[path] = true
}

func (u *unfinished) remove(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.paths, path)
}

// removeAll removes the files themselves.
func (u *unfinished) removeAll() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for path := range u.paths {
		os.Remove(path)
	}
}

// write hands body a writer to the file that -o names, or to standard output. A file appears under its name
// only when it is whole, and one that is there already is kept unless -f was given. binary says that the
// bytes are of no use on a terminal.
func (a *app) write(binary bool, body func(w io.Writer) error) error {
	return a.writeTo(a.flags.output, binary, body)
}

func (a *app) writeTo(path string, binary bool, body func(w io.Writer) error) error {
	if path == "" || path == "-" {
		if binary && isTerminal(a.out) {
			return errTerminal
		}
		w := bufio.NewWriterSize(a.out, 1<<16)
		if err := body(w); err != nil {
			w.Flush()
			return err
		}
		return w.Flush()
	}
	if err := a.mayWrite(path); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeInto(path, body)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil { // the file that a link names is replaced, not the link
		path = target
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, unwrapPath(err))
	}
	a.pending.add(f.Name())
	defer func() { // nothing is left under the temporary name, also where body panics
		f.Close()
		os.Remove(f.Name())
		a.pending.remove(f.Name())
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	err = firstError(body(w), w.Flush(), f.Chmod(newFileMode()), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// writeInto writes to what is there and no file, such as a pipe or /dev/null, which a file must not take the
// place of.
func writeInto(path string, body func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, unwrapPath(err))
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<16)
	return firstError(body(w), w.Flush(), f.Close())
}

// mayWrite refuses to overwrite a file without -f, before any work is done for it.
func (a *app) mayWrite(path string) error {
	if path == "" || path == "-" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot write %s: there is no folder %s: make it, or name another file", path, filepath.Dir(path))
		}
		return nil
	case err != nil:
		return fmt.Errorf("cannot write %s: %w", path, unwrapPath(err))
	case info.IsDir():
		return usageError{fmt.Errorf("-o %s is a directory: name a file in it", path)}
	case !a.flags.force && info.Mode().IsRegular():
		return fmt.Errorf("%s is there already: overwrite it with -f or name another file", path)
	}
	return nil
}

// newFileMode is what the process's umask leaves of rw-rw-rw-; CreateTemp's own mode is for secrets.
func newFileMode() os.FileMode { return 0o666 &^ umask() }

// unwrapPath drops the system call and path of an error that names them itself.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// text writes a text report, its first line in bold where standard output shows colours.
func (a *app) text(body func(w io.Writer) error) error { return a.headed(body, "\n") }

// answer writes a text report, its first paragraph in bold where standard output shows colours.
func (a *app) answer(body func(w io.Writer) error) error { return a.headed(body, "\n\n") }

// headed writes a text report, in bold what comes before the first separator where standard output shows
// colours.
func (a *app) headed(body func(w io.Writer) error, separator string) error {
	if a.flags.output != "" || !a.colored() {
		return a.write(false, body)
	}
	return a.write(false, func(w io.Writer) error {
		var b bytes.Buffer
		if err := body(&b); err != nil {
			return err
		}
		head, rest, _ := strings.Cut(b.String(), separator)
		for line := range strings.Lines(head) { // a pager forgets at the end of a line what its beginning said
			if _, err := fmt.Fprintf(w, "\x1b[1m%s\x1b[0m\n", strings.TrimRight(line, "\n")); err != nil {
				return err
			}
		}
		_, err := io.WriteString(w, separator[1:]+rest)
		return err
	})
}

// width is that of the terminal that the report goes to, 0 where it goes anywhere else.
func (a *app) width() int {
	if a.flags.output != "" || !isTerminal(a.out) {
		return 0
	}
	w, _, err := term.GetSize(a.out.Fd())
	if err != nil {
		return 0
	}
	return w
}
