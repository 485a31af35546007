package load

import (
	"context"
	"io/fs"
	"os"
	"time"
)

// pipePatience is how long a named pipe may be without a writer before Options.Waiting is called.
const pipePatience = 300 * time.Millisecond

// openPath opens a file for reading. Opening a named pipe waits for a program that writes to it: waiting is
// called then, and ctx ends the wait.
func openPath(ctx context.Context, path string, waiting func(path string)) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
		return os.Open(path)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	patience := time.NewTimer(pipePatience)
	defer patience.Stop()
	for {
		select {
		case o := <-done:
			return o.f, o.err
		case <-patience.C:
			if waiting != nil {
				waiting(path)
			}
		case <-ctx.Done():
			go func() { // so that no later writer waits for a reader that never reads
				if o := <-done; o.f != nil {
					o.f.Close()
				}
			}()
			return nil, ctx.Err()
		}
	}
}
