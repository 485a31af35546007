package assistant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files are the recordings that the user named: files, and what lies directly in folders. Nothing else is
// ever opened, whatever an assistant asks for.
type Files struct {
	named   []string
	folders []string
}

// NewFiles checks the paths that the user named.
func NewFiles(paths []string) (*Files, error) {
	f := &Files{}
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			var call *fs.PathError
			if errors.As(err, &call) { // without the name of the system call
				return nil, fmt.Errorf("%s: %w", path, call.Err)
			}
			return nil, err
		case info.IsDir():
			f.folders = append(f.folders, path)
		case info.Mode().IsRegular():
			f.named = append(f.named, path)
		default:
			return nil, fmt.Errorf("%s is neither a file nor a folder: name a recording", path)
		}
	}
	return f, nil
}

// list returns the paths of all recordings as they are now, at most most of them. It skips links in a folder,
// since they may lead out of it.
func (f *Files) list(most int) ([]string, error) {
	list := slices.Clone(f.named)
	for _, folder := range f.folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
				list = append(list, filepath.Join(folder, e.Name()))
			}
		}
	}
	return list[:min(len(list), most)], nil
}

// everything is more recordings than a folder has.
const everything = 1 << 20

// path returns the path of the recording that an assistant means by a name: the path itself, or its last part
// if only one recording has that.
func (f *Files) path(name string) (string, error) {
	list, err := f.list(everything)
	if err != nil {
		return "", err
	}
	if slices.Contains(list, name) {
		return name, nil
	}
	var found []string
	for _, path := range list {
		if filepath.Base(path) == name {
			found = append(found, path)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("%q is not among the recordings that the user named: list_recordings "+
			"lists them", name)
	}
	return "", fmt.Errorf("%q is the name of %d recordings: give the whole path", name, len(found))
}
