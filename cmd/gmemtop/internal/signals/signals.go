// Package signals decides what a command does when a signal arrives: end at once, finish first, or pass the
// signal on.
package signals

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// Handler has what the signals of one invocation do. Its zero value ends the program.
type Handler struct {
	onSignal atomic.Pointer[func(os.Signal)] // what a signal does; nil ends the program
	onCtrlC  atomic.Pointer[func()]          // what the first ctrl-c does instead, nil for nothing
}

// Listen handles signals as they arrive, until stop is called.
func (h *Handler) Listen(end func()) (stop func()) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range arrived {
			h.Handle(s, end)
		}
	}()
	return func() { signal.Stop(arrived) }
}

// Handle does what a signal does now. It calls end if no command has asked for it.
func (h *Handler) Handle(s os.Signal, end func()) {
	if f := h.onCtrlC.Swap(nil); f != nil && s == os.Interrupt {
		(*f)()
		return
	}
	if f := h.onSignal.Load(); f != nil {
		(*f)(s)
		return
	}
	end()
}

// OnSignal passes signals to f from now on, so that the command can finish before it ends.
func (h *Handler) OnSignal(f func(os.Signal)) { h.onSignal.Store(&f) }

// UntilSignal returns a context that the next signal ends instead of the program.
func (h *Handler) UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	h.OnSignal(func(os.Signal) { stop() })
	return ctx, stop
}

// Stoppable returns a context that the first ctrl-c ends with the given cause, so that the command can show
// what there is. The second ends the program, as any other signal does.
func (h *Handler) Stoppable(ctx context.Context, cause error) (_ context.Context, release func()) {
	ctx, stop := context.WithCancelCause(ctx)
	f := func() { stop(cause) }
	h.onCtrlC.Store(&f)
	return ctx, func() {
		h.onCtrlC.Store(nil)
		stop(nil)
	}
}

// OutliveTerminal keeps the program going when its terminal closes: neither the hangup signal nor a broken
// pipe ends it. Commands started from now on ignore the hangup signal too, as with nohup.
func OutliveTerminal() {
	signal.Ignore(syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writing fails instead
}
