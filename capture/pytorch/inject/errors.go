package inject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The kinds of Error, for errors.Is. ErrNotPermitted and ErrUnsupported are refusals: nothing was tried.
var (
	errFailed       = errors.New("injection failed")
	ErrGone         = errors.New("no such process")
	ErrReused       = errors.New("another process has this pid now")
	ErrNotPython    = errors.New("not a Python process")
	ErrNotPermitted = errors.New("not permitted")
	ErrUnsupported  = errors.New("not supported")
	ErrBusy         = errors.New("process is stopped or traced")
	errPending      = errors.New("the interpreter is busy")
	errRaised       = errors.New("the injected source raised an exception")
)

// Error is what prevented an injection, or ended one. The target goes on as before.
type Error struct {
	Kind    error // one of the above
	PID     int
	Message string // what is wrong
	Fix     string // what to do about it; "" if nothing can be done
	Err     error  // the cause; may be nil
	// Attaching says of an ErrBusy that another gmemtop is working on the process: it will be done soon.
	Attaching bool

	retry bool // the target is unchanged: another mechanism may be tried
}

// Error returns the sentence, with the fix.
func (e *Error) Error() string {
	if e.Fix == "" {
		return fmt.Sprintf("process %d: %s", e.PID, e.Message)
	}
	return fmt.Sprintf("process %d: %s: %s", e.PID, e.Message, e.Fix)
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// Refused reports that the injection is not permitted or not supported here, rather than failed.
func (e *Error) Refused() bool { return e.Kind == ErrNotPermitted || e.Kind == ErrUnsupported }

func reused(pid int) *Error {
	return &Error{Kind: ErrReused, PID: pid,
		Message: "the process has ended, and another one has its pid now",
		Fix:     "gmemtop attach lists the processes"}
}

// traced is the error for a process that another one traces. proc is where procfs is mounted.
func traced(proc string, pid, tracer int) *Error {
	comm := func(of string) string {
		b, _ := os.ReadFile(filepath.Join(proc, of, "comm"))
		return strings.TrimSpace(string(b))
	}
	who := comm(strconv.Itoa(tracer))
	if who != "" && (who == "gmemtop" || who == comm("self")) {
		return &Error{Kind: ErrBusy, PID: pid, Attaching: true, Fix: "try again",
			Message: fmt.Sprintf("another gmemtop (process %d) is attaching to it", tracer)}
	}
	if who == "" {
		who = "another process"
	}
	return &Error{Kind: ErrBusy, PID: pid, Fix: "detach that debugger, or end it",
		Message: fmt.Sprintf("it is being traced already, by process %d (%s)", tracer, printable(who))}
}

func gone(pid int) *Error {
	return &Error{Kind: ErrGone, PID: pid, Message: "no such process, or it has ended",
		Fix: "gmemtop attach lists the processes"}
}

// printable makes another process's text safe for a terminal: it replaces characters that are not graphic
// with spaces.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text))
}
