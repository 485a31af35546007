package load

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Plain opens the file at path, or standard input for "-", and passes its uncompressed bytes to body, within
// the limits of Options. It is for inputs that are not traces. The error is body's, or about the file.
func Plain(ctx context.Context, path string, o Options, body func(r io.Reader) error) error {
	lim, err := limitsOf(o)
	if err != nil {
		return err
	}
	src := &source{ctx: ctx, progress: o.Progress}
	var file *os.File
	if path == "-" {
		if src.r = o.Stdin; src.r == nil {
			src.r = os.Stdin
		}
	} else {
		f, info, err := openFile(ctx, path, o.Waiting)
		if err != nil {
			return err
		}
		defer f.Close()
		src.r = f
		if info.Mode().IsRegular() {
			src.total, file = info.Size(), f
		}
	}
	r, closeAll, err := unpack(src, file, lim)
	defer closeAll()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return body(r)
}
