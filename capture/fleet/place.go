package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/bus"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/traces/wholefile"
)

// A hub notes in a folder of its user where its join file is, so that gmemtop finds it there by the name of
// the run. Where machines share home folders, all of them find it. The notes hold no keys.

// errNoRun means that no hub of a run is known here.
var errNoRun = errors.New("no hub is known here")

// Places is the folder of the notes, which only its user can enter. It is made if it is missing.
func Places() (string, error) {
	base, err := os.UserCacheDir()
	if err == nil {
		base = filepath.Join(base, "gmemtop")
	} else if base, err = pytorch.Folder(); err != nil { // a container may have no home
		return "", err
	}
	dir := filepath.Join(base, "hubs")
	return dir, os.MkdirAll(dir, 0o700)
}

// mostPath is the longest note that is read.
const mostPath = 4 << 10

// Announce notes where the join file of a run is, until withdraw is called.
func Announce(run, join string) (withdraw func(), err error) {
	dir, err := Places()
	if err != nil {
		return nil, err
	}
	if join, err = filepath.Abs(join); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, bus.Token(run))
	if err := wholefile.Write(path, 0o600, func(f *os.File) error {
		_, err := f.WriteString(join + "\n")
		return err
	}); err != nil {
		return nil, err
	}
	return func() {
		// Another hub of the same run may have taken its place.
		if now, err := noted(path); err == nil && now == join {
			_ = os.Remove(path)
		}
	}, nil
}

// noted reads a note.
func noted(path string) (join string, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() > mostPath || !info.Mode().IsRegular() {
		return "", fmt.Errorf("gmemtop hub did not write %s", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if join = strings.TrimSpace(string(text)); !filepath.IsAbs(join) {
		return "", fmt.Errorf("gmemtop hub did not write %s", path)
	}
	return join, nil
}

// Find returns the join file of a run whose hub was started by this user; "" is the only one there is.
func Find(run string) (join string, err error) {
	dir, err := Places()
	if err != nil {
		return "", err
	}
	found := map[string]string{} // join files that are there, by run
	list, _ := os.ReadDir(dir)   // there may be none
	for _, e := range list {
		name, ok := bus.Untoken(e.Name())
		if !ok {
			continue
		}
		if path, err := noted(filepath.Join(dir, e.Name())); err == nil {
			if _, err := os.Stat(path); err == nil {
				found[name] = path
			}
		}
	}
	if run == "" && len(found) == 1 {
		for _, path := range found {
			return path, nil
		}
	}
	if path := found[run]; path != "" {
		return path, nil
	}
	host, _ := os.Hostname()
	if len(found) == 0 {
		return "", fmt.Errorf("%w: %s found no gmemtop hub of yours; start one, or name its "+
			"--join-file", errNoRun, host)
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return "", fmt.Errorf("%w for run %q; %s knows %s", errNoRun, run, host, strings.Join(names, ", "))
}
