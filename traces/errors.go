package traces

import (
	"errors"
	"fmt"
)

// ErrFormat is wrapped by every error that means the input is damaged, cut or hostile. A reader returns it
// with a trace of the sound part before the damage, or nil if there is none.
var ErrFormat = errors.New("invalid input")

// ErrUnsupported is wrapped by errors that mean the input is sound, but of a kind that gmemtop cannot use.
var ErrUnsupported = errors.New("not supported")

// FormatError says where an input is wrong and what to do about it. It unwraps to ErrFormat and to Err.
type FormatError struct {
	// Format is the reader's name, "" if no reader knew the input.
	Format string
	// Offset is the byte offset in the decompressed input, -1 if Line is known instead.
	Offset int64
	// Line is the 1-based line of a text input, 0 if Offset is known instead.
	Line int
	// Reason is what is wrong, in lower case.
	Reason string
	// Advice is what to do next, "" for none.
	Advice string
	// Err is the underlying error, nil for none.
	Err error
}

// Error returns one sentence: format, place, reason, advice.
func (e *FormatError) Error() string {
	s := ""
	if e.Format != "" {
		s = e.Format + ": "
	}
	if e.Line > 0 {
		s += fmt.Sprintf("line %d: ", e.Line)
	} else if e.Offset >= 0 {
		s += fmt.Sprintf("byte %d: ", e.Offset)
	}
	s += e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// Unwrap makes errors.Is(err, ErrFormat) hold.
func (e *FormatError) Unwrap() []error {
	if e.Err != nil {
		return []error{ErrFormat, e.Err}
	}
	return []error{ErrFormat}
}

// UnsupportedError says why gmemtop cannot use a sound input and what to do about it. It unwraps to
// ErrUnsupported.
type UnsupportedError struct {
	// Reason is why the input cannot be used, in lower case.
	Reason string
	// Advice is what to do next, "" for none.
	Advice string
}

// Error returns one sentence: reason, advice.
func (e *UnsupportedError) Error() string {
	if e.Advice == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Advice
}

// Unwrap makes errors.Is(err, ErrUnsupported) hold.
func (*UnsupportedError) Unwrap() error { return ErrUnsupported }
