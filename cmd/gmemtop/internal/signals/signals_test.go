package signals

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

func TestASignalEndsTheProgramUnlessACommandAskedForIt(t *testing.T) {
	var h Handler
	ended := 0
	end := func() { ended++ }
	if h.Handle(os.Interrupt, end); ended != 1 {
		t.Errorf("without a command it ended the program %d times", ended)
	}
	cause := errors.New("stopped")
	ctx, release := h.Stoppable(t.Context(), cause)
	if h.Handle(os.Interrupt, end); ended != 1 || context.Cause(ctx) != cause {
		t.Errorf("the first ctrl-c: ended %d times, and the context by %v", ended, context.Cause(ctx))
	}
	if h.Handle(os.Interrupt, end); ended != 2 {
		t.Error("the second ctrl-c did not end the program")
	}
	release()
	ctx, release = h.Stoppable(t.Context(), cause)
	defer release()
	if h.Handle(syscall.SIGTERM, end); ended != 3 || ctx.Err() != nil {
		t.Errorf("another signal: ended %d times, and the context by %v", ended, ctx.Err())
	}
	ctx, stop := h.UntilSignal(t.Context())
	defer stop()
	if h.Handle(syscall.SIGTERM, end); ended != 3 || ctx.Err() == nil {
		t.Errorf("a signal that a command waits for: ended %d times, and the context by %v", ended, ctx.Err())
	}
}
