// Package samples holds the traces embedded in the program, so that it has something to show on a machine
// without any. README.md says how each was recorded.
package samples

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/gmemtop/gmemtop/traces/near"
)

//go:embed *.gmt
var files embed.FS

// ErrUnknown is wrapped by the error about a name that no sample has.
var ErrUnknown = errors.New("no such sample")

// List returns the samples' names in alphabetical order.
func List() []string {
	paths, err := fs.Glob(files, "*.gmt")
	if err != nil {
		return nil // only a malformed pattern fails
	}
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(p, path.Ext(p))
	}
	return paths
}

// Open returns the native file of the sample with that name; the error wraps [ErrUnknown] and lists the
// names.
func Open(name string) ([]byte, error) {
	b, err := files.ReadFile(name + ".gmt")
	if err != nil {
		return nil, fmt.Errorf("%w: %q; there are %s%s", ErrUnknown, name, strings.Join(List(), ", "),
			near.Hint(name, List()))
	}
	return b, nil
}
