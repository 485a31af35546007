package headless_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/headless"
)

func TestCommandOutputIsPassedOnUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := job.New(job.NewWatch(job.Options{}))
		j.Begin(capture.Target{PID: 1})
		j.Output([]byte("on the screen\n"))
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		printed := func() string {
			b, _ := os.ReadFile(out.Name())
			return string(b)
		}
		streamed := make(chan struct{})
		go func() {
			headless.CopyOutput(t.Context(), out, j)
			close(streamed)
		}()
		synctest.Wait()
		j.Output([]byte("one\n"))
		synctest.Wait()
		if got := printed(); got != "one\n" {
			t.Errorf("while it runs: %q", got)
		}
		j.Output([]byte("two\n"))
		j.End(capture.End{Reason: capture.Exited})
		<-streamed
		if got := printed(); got != "one\ntwo\n" {
			t.Errorf("in all: %q", got)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}
