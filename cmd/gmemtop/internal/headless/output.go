package headless

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
)

// lastWords is how many lines of the output of an ended command are printed.
const lastWords = 20

// CopyOutput copies what the job's command prints from now on to w, until the command ends. If it has ended,
// it copies the last lines, which say why.
func CopyOutput(ctx context.Context, w io.Writer, j *job.Job) {
	s := j.First().History
	v := s.Snapshot()
	at := v.OutputCut + int64(len(v.Output))
	if _, over := j.Over(); over {
		lines := feed.Tail(v)
		for _, l := range lines[max(len(lines)-lastWords, 0):] {
			fmt.Fprintln(w, l)
		}
		return
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_ = j.WaitOver(running)
		stop()
	}()
	for {
		_, over := j.Over() // asked before copying, so that the last output is not missed
		v := s.Snapshot()
		if end := v.OutputCut + int64(len(v.Output)); end > at {
			from := max(at-v.OutputCut, 0)
			if _, err := w.Write(v.Output[from:]); errors.Is(err, syscall.EPIPE) ||
				errors.Is(err, io.ErrClosedPipe) {
				return
			}
			at = end
		}
		if over || ctx.Err() != nil {
			return
		}
		_, _ = s.Wait(running, v.Version) // also returns when the command ends
	}
}

// OncePerText returns a function that says something about a process of a job, each text once. It is safe for
// concurrent use.
func OncePerText(say func(text string)) func(t capture.Info, text string) {
	said := map[string]bool{}
	var mu sync.Mutex
	return func(t capture.Info, text string) {
		if t.IsRank() {
			text = t.Name() + ": " + text
		}
		mu.Lock()
		defer mu.Unlock()
		if !said[text] {
			said[text] = true
			say(text)
		}
	}
}
