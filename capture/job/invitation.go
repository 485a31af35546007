package job

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/gmemtop/gmemtop/capture"
)

// Invitation is how the agent gets into the process that started us to be watched: it reads the agent's
// source from our standard output and runs it, so it can be watched even where tracing is not permitted.
type Invitation struct {
	// Out is our standard output.
	Out io.Writer

	handed atomic.Bool // the process has got the agent's source, or knows that it needs none
}

// HandOver writes the agent's source, after a line with its length. It is a [pytorch.Injector].
func (i *Invitation) HandOver(_ context.Context, pid int, source string) error {
	if i.handed.Swap(true) {
		return fmt.Errorf("process %d ran the agent, which did not start: watch it again", pid)
	}
	if _, err := fmt.Fprintf(i.Out, "%d\n%s", len(source), source); err != nil {
		return fmt.Errorf("process %d did not accept the agent: %w", pid, err)
	}
	return nil
}

// Decline tells the process, once we are connected, that it has nothing to run because it already has an
// agent.
func (i *Invitation) Decline(ctx context.Context, w *Watch) {
	err := w.History.Until(ctx, func(v *capture.View) (bool, error) { return v.Began || v.Ended, nil })
	if err == nil && !i.handed.Swap(true) {
		_, _ = fmt.Fprintln(i.Out, 0)
	}
}
