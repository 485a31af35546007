package headless

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/feed"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/tui/live"
)

// unheard is how long a job may be silent before the user is told what gmemtop is waiting for.
const unheard = 3 * time.Second

// Recording follows a process while it is recorded. It shows its progress on one line and prints notes.
type Recording struct {
	Watch    *job.Watch
	Progress *progress.Line
	Note     func(text string)
	// Steps is how many steps to record, 0 for all. Windows says that a recording that ends by itself must
	// hold a step that was captured whole.
	Steps   int64
	Windows bool
}

// Until follows a training until enough steps were seen, the source ends or ctx is done. It reports whether
// the source ended, and how.
func (r *Recording) Until(ctx context.Context, f *feed.Process) (ended bool, end capture.End) {
	defer r.Progress.Done()
	said := map[string]bool{}
	once := func(text string) {
		if !said[text] {
			said[text] = true
			r.Progress.Done()
			r.Note(text)
		}
	}
	word, since := "", time.Now() // what the job waits for, and since when
	asked := false                // for a captured step, since none was due or all were dropped
	for version := int64(0); ; {
		patient, done := context.WithTimeout(ctx, unheard)
		_ = f.Wait(patient, version)
		done()
		if ctx.Err() != nil {
			return false, capture.End{}
		}
		l := f.Look()
		if l.Word != word {
			word, since = l.Word, time.Now()
		}
		if time.Since(since) >= unheard && l.State == live.Waiting {
			once("waiting " + strings.TrimPrefix(l.Word, "waiting "))
		}
		version = l.Version
		v := r.Watch.History.Snapshot()
		for _, n := range v.Notices {
			if !n.State {
				once(n.Text)
			}
		}
		if v.Ended {
			return true, v.End
		}
		n := len(l.Steps)
		if n == 0 {
			continue
		}
		r.tell(fmt.Sprintf("step %d, %d captured whole, written", l.Steps[n-1].Index,
			len(l.Windows)+l.Forgotten))
		switch {
		case r.Steps == 0 || int64(n) < r.Steps || r.Watch.Wants(&v).Pending:
			// a capture that is under way is finished
		case !asked && r.Windows && len(v.Windows) == 0:
			asked = true
			if err := r.Watch.Capture(ctx, 1); err != nil { // the steps' totals are a recording too
				return false, capture.End{}
			}
		default:
			return false, capture.End{}
		}
	}
}

// Finish closes the file once gmemtop has detached; left is the error of detaching. A file without a step
// or a window would only block the next recording, so it is removed, and recorded is false. The error says
// what went wrong, or that nothing was recorded before the recording was ended.
func (r *Recording) Finish(ended bool, end capture.End, left error) (recorded bool, err error) {
	v := r.Watch.History.Snapshot()
	if recorded = len(v.Steps)+len(v.Windows) > 0; recorded {
		err = errors.Join(left, r.Watch.Close())
	} else if err = errors.Join(left, r.Watch.Abandon()); !ended {
		err = errors.Join(err, context.Canceled)
	}
	if ended && end.Reason != capture.Exited && end.Reason != capture.Detached {
		err = errors.Join(errors.New(feed.HowEnded(end)), err)
	}
	return recorded, err
}

// UntilProbesEnd follows a process that is watched by probes until its source ends, which it returns, or ctx
// is done.
func (r *Recording) UntilProbesEnd(ctx context.Context) (end capture.End, ended bool) {
	defer r.Progress.Done()
	said := map[string]string{}
	// the only error is the context's
	_ = r.Watch.History.Until(ctx, func(v *capture.View) (bool, error) {
		for _, n := range v.Notices {
			switch {
			case said[n.Key] == n.Text:
			case n.State:
				r.Note("waiting " + n.Text)
			default:
				r.Note(n.Text)
			}
			said[n.Key] = n.Text
		}
		if n := len(v.Steps); n > 0 {
			r.tell(fmt.Sprintf("%d intervals, written", n))
		}
		end, ended = v.End, v.Ended
		return ended, nil
	})
	return end, ended
}

// tell shows a stage and how many bytes are written.
func (r *Recording) tell(stage string) {
	var sum int64
	files, _ := r.Watch.Files()
	for _, f := range files {
		if info, err := os.Stat(f); err == nil { // a file that was removed counts nothing
			sum += info.Size()
		}
	}
	r.Progress.Tell(stage, sum, 0)
}
