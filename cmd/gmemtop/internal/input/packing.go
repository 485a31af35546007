package input

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/gmemtop/gmemtop/managers/pack"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/load"
)

// Packing reads a storage-allocation problem from a file, plain or compressed. The error of a file that has
// none wraps [traces.ErrFormat] and names the line.
func Packing(ctx context.Context, path string, o load.Options) (*pack.Table, error) {
	var t *pack.Table
	err := load.Plain(ctx, path, o, func(r io.Reader) error {
		var err error
		t, err = pack.ReadCSV(r)
		return err
	})
	switch {
	case errors.As(err, new(*pack.ParseError)):
		return nil, fmt.Errorf("%s: %w: %w", load.Name(path), traces.ErrFormat, err)
	case err != nil:
		return nil, err
	}
	return t, nil
}
