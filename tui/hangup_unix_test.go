//go:build unix

package tui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAClosedTerminalOrCancelledContextEndsTheScreenCleanly(t *testing.T) {
	for name, end := range map[string]func(cancel func()){
		"hangup": func(func()) { _ = syscall.Kill(syscall.Getpid(), syscall.SIGHUP) },
		"cancel": func(cancel func()) { cancel() },
	} {
		var out bytes.Buffer
		in, _ := io.Pipe()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		time.AfterFunc(300*time.Millisecond, func() { end(cancel) })
		err := Run(ctx, Options{
			Loader: loaderOf(training(t, "runs/train.gmt", 0)), Input: in, Output: &out, Color: "never",
			Theme:   "dark",
			Environ: []string{"TERM=xterm-256color"}, StateDir: t.TempDir(),
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Run ends with %v", name, err)
		}
		for _, seq := range []string{"\x1b[?1049l", "\x1b[?25h"} {
			if !strings.Contains(out.String(), seq) {
				t.Errorf("%s: %q is not written", name, seq)
			}
		}
	}
}
