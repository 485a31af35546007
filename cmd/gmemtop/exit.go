package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/planner"
	"github.com/gmemtop/gmemtop/managers/plan"
	"github.com/gmemtop/gmemtop/traces"
	"github.com/gmemtop/gmemtop/traces/samples"
)

// Exit codes, as the command line's contract names them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitFinding     = 3
	exitInput       = 4
	exitUnsupported = 5
	exitInterrupted = 130
)

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// childError carries the exit code of a command that was started; nothing is printed for it.
type childError struct{ code int }

func (e childError) Error() string { return fmt.Sprintf("the command ended with exit code %d", e.code) }

// errFinding means that a report was printed and that it found what the user asked to be told of: nothing
// more is said.
var errFinding = errors.New("a threshold was passed")

// exitCode maps an error to its exit code: the first rule that fits.
func exitCode(err error) int {
	var usage usageError
	var child childError
	var injected *inject.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &child):
		return child.code
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.Is(err, samples.ErrUnknown), errors.As(err, new(*planner.Mistake)):
		return exitUsage
	case errors.Is(err, errFinding):
		return exitFinding
	case errors.Is(err, traces.ErrFormat):
		return exitInput
	case errors.As(err, &injected) && injected.Refused():
		return exitUnsupported
	case errors.As(err, new(unsupportedError)), errors.As(err, new(*plan.Unavailable)),
		errors.Is(err, traces.ErrUnsupported), errors.Is(err, fs.ErrPermission):
		return exitUnsupported
	}
	return exitFailure
}

// unsupportedError is something that this input or machine does not allow.
type unsupportedError struct{ err error }

func (e unsupportedError) Error() string { return e.err.Error() }
func (e unsupportedError) Unwrap() error { return e.err }

// selection marks an error about what the user chose of a trace as a mistake in the command line, unless it
// was told to stop or there is nothing in the trace to choose from.
func selection(err error) error {
	if code := exitCode(err); code == exitInterrupted || code == exitUnsupported {
		return err
	}
	return usageError{err}
}
