package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gmemtop/gmemtop/capture/hub"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/samples"
)

// Exit codes, part of the command line's interface.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitFinding     = 3
	exitInput       = 4
	exitUnsupported = 5
	exitInterrupted = 130
)

// childError carries the exit code of a command that gmemtop started; nothing is printed for it.
type childError struct{ code int }

func (e childError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.code) }

// errFinding means that a report was printed and found what the user asked about. Nothing more is printed.
var errFinding = errors.New("a threshold was passed")

// exitCode maps an error to its exit code; the first matching rule wins.
func exitCode(err error) int {
	var child childError
	var injected *inject.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &child):
		return child.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case exit.IsMistake(err), errors.Is(err, samples.ErrUnknown), errors.As(err, new(*reach.Mistake)),
		errors.As(err, new(*hub.Mistake)):
		return exitUsage
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.Is(err, traces.ErrFormat):
		return exitInput
	case errors.As(err, &injected) && injected.Refused():
		return exitUnsupported
	case exit.IsUnsupported(err), errors.As(err, new(*plan.Unavailable)),
		errors.Is(err, traces.ErrUnsupported), errors.Is(err, reach.ErrPlain),
		errors.Is(err, fs.ErrPermission):
		return exitUnsupported
	}
	return exitFailure
}

// selection turns an error about the user's selection within a trace into a mistake in the command line,
// unless it was cancelled or the trace has nothing to select.
func selection(err error) error {
	if code := exitCode(err); code == exitInterrupted || code == exitUnsupported {
		return err
	}
	return exit.AsMistake(err)
}
