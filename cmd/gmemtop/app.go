package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// How commands are made
//
// app holds what all commands share: streams, environment, common flags, and how to write reports and notes.
// A command is a type over app, with its own flags as fields and its steps as methods, run first; a command
// that has neither flags nor steps is only a function. Parts that several commands share are types in
// between: planning for compare and plan, watcher for attach, run and record. newRootCommand lists all
// commands.
//
// Code that lives as long as a watched training uses neither app nor flags: capture/job and replay/crew below
// it, and the feeds here that show it.

// app is one invocation: its streams, its environment and the flags that many commands share.
type app struct {
	in       *os.File
	piped    io.Reader // what "-" reads: in, including what was peeked at
	out, err *os.File
	environ  []string
	flags    flags
	started  bool // a command's own work began; errors before it are mistakes in the command line
	files    output.Files
	onSignal atomic.Pointer[func(os.Signal)] // what a signal does; nil ends the program
}

func newApp(in, out, err *os.File, environ []string) *app {
	return &app{in: in, out: out, err: err, environ: environ}
}

// signals passes signals to f from now on, so that the command can end in its own time.
func (a *app) signals(f func(os.Signal)) { a.onSignal.Store(&f) }

// env returns the value of an environment variable, "" if it is not set.
func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(a.environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func isTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }

// oneLine keeps an error that quotes a file from sending control sequences to the terminal.
func oneLine(err error) string { return report.Printable(strings.TrimSpace(err.Error())) }

const (
	groupLook    = "look"
	groupLive    = "live"
	groupReport  = "report"
	groupFiles   = "files"
	groupMachine = "machine"
)

// exactArgs requires n arguments and names them in its error.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			err := fmt.Errorf("%s needs %s", cmd.Name(), strings.Join(names, " and "))
			if len(args) > 0 {
				err = fmt.Errorf("%w, but got only %q", err, args[0])
			}
			return err
		case len(args) > len(names):
			return fmt.Errorf("%s takes only %s: %q is one too many", cmd.Name(),
				strings.Join(names, " and "), args[len(names)])
		}
		return nil
	}
}

// complain reports a problem on standard error, even with --quiet.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
}

// note prints a message on standard error, unless --quiet is set.
func (a *app) note(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
	}
}

// line prints one line of the answer on standard output.
func (a *app) line(format string, args ...any) {
	fmt.Fprintln(a.out, report.Printable(fmt.Sprintf(format, args...)))
}

// newProgress returns a progress line, which shows nothing unless standard error is a terminal.
func (a *app) newProgress() *progress.Line {
	if a.flags.quiet || !isTerminal(a.err) || a.env("TERM") == "dumb" {
		return progress.New(nil, a.flags.report.Units)
	}
	return progress.New(a.err, a.flags.report.Units)
}

// firstError returns the first error that is not nil: a report that was printed whole still ends with its
// input's error.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// colored reports whether standard output may get escape sequences. It asks --color first, then NO_COLOR,
// CLICOLOR_FORCE, TERM and whether standard output is a terminal (https://no-color.org,
// https://bixense.com/clicolors).
func (a *app) colored() bool {
	switch {
	case a.flags.color == "always":
		return true
	case a.flags.color == "never", a.env("NO_COLOR") != "":
		return false
	case a.env("CLICOLOR_FORCE") != "" && a.env("CLICOLOR_FORCE") != "0":
		return true
	case a.env("TERM") == "dumb":
		return false
	}
	return isTerminal(a.out)
}
