package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/gmt"
)

// Repair copies the intact parts of the recording at path through write, and says what is lost.
func Repair(ctx context.Context, path string, write func(body func(w io.Writer) error) error) (rep gmt.Report,
	err error) {
	info, err := os.Stat(path)
	if err != nil {
		return rep, fmt.Errorf("%s: %w", path, output.Reason(err))
	}
	if !info.Mode().IsRegular() { // opening a named pipe would wait for a writer
		return rep, exit.Mistakef("%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return rep, fmt.Errorf("%s: %w", path, output.Reason(err))
	}
	defer f.Close()
	err = write(func(w io.Writer) error {
		var err error
		rep, err = gmt.Repair(ctx, f, info.Size(), w)
		return err
	})
	head := make([]byte, 64)
	if n, _ := f.ReadAt(head, 0); errors.Is(err, traces.ErrFormat) && !gmt.Sniff(head[:n]) {
		return rep, fmt.Errorf("%s: %w: this is not a gmemtop recording (.gmt); files of other formats need "+
			"no repair: gmemtop replay shows the intact part", path, traces.ErrFormat)
	}
	if err != nil {
		return rep, fmt.Errorf("%s: %w", path, err)
	}
	return rep, nil
}
