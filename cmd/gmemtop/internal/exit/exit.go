// Package exit has errors that decide the exit code of a command, for packages that do a command's work.
package exit

import (
	"errors"
	"fmt"
)

// Mistake is a mistake in the command line: another value helps, trying again does not.
type Mistake struct{ err error }

func (m *Mistake) Error() string { return m.err.Error() }

// Unwrap returns the cause.
func (m *Mistake) Unwrap() error { return m.err }

// Mistakef returns a mistake with a message, which may wrap an error with %w.
func Mistakef(format string, args ...any) error { return &Mistake{fmt.Errorf(format, args...)} }

// AsMistake returns err as a mistake, nil for nil.
func AsMistake(err error) error {
	if err == nil {
		return nil
	}
	return &Mistake{err}
}

// IsMistake reports whether an error is a mistake or wraps one.
func IsMistake(err error) bool { return errors.As(err, new(*Mistake)) }

// unsupported is something that this input or machine does not support.
type unsupported struct{ err error }

func (u *unsupported) Error() string { return u.err.Error() }
func (u *unsupported) Unwrap() error { return u.err }

// AsUnsupported returns err as one about something that this input or machine does not support, nil for nil.
func AsUnsupported(err error) error {
	if err == nil {
		return nil
	}
	return &unsupported{err}
}

// IsUnsupported reports whether an error, or one that it wraps, came from [AsUnsupported].
func IsUnsupported(err error) bool { return errors.As(err, new(*unsupported)) }
