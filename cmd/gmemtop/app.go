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
// app is what all of them share: streams, environment, the flags that many have, how a report is written and
// what is said beside it. A command is a type of its own, over the app, that has its own flags as fields and
// its steps as methods, the first of them run; or only a function, where it has neither. What several have in
// common stands between: planning under compare and plan, watcher under attach, run and record.
// newRootCommand lists them all.
//
// What lives for as long as a training is watched knows neither app nor flags: capture/job and replay/crew
// below, and here the feeds that show it.

// app is one invocation: its streams, its environment and the flags that many commands share.
type app struct {
	in       *os.File
	piped    io.Reader // what "-" reads: in, unless a command has looked at its begin
	out, err *os.File
	environ  []string
	flags    flags
	started  bool // a command's own work began; errors before it are mistakes in the command line
	files    output.Files
	onSignal atomic.Pointer[func(os.Signal)] // what a signal does instead of ending the program, nil for that
}

func newApp(in, out, err *os.File, environ []string) *app {
	return &app{in: in, out: out, err: err, environ: environ}
}

// signals hands signals to f from now on: the command ends by itself, in its own time.
func (a *app) signals(f func(os.Signal)) { a.onSignal.Store(&f) }

// env returns the value of an environment variable, "" where it is not set.
func (a *app) env(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(a.environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

func isTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }

// oneLine keeps what came from a file from driving the terminal.
func oneLine(err error) string { return report.Printable(strings.TrimSpace(err.Error())) }

const (
	groupLook    = "look"
	groupLive    = "live"
	groupReport  = "report"
	groupFiles   = "files"
	groupMachine = "machine"
)

// exactArgs asks for n arguments by name.
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

// complain tells the user what stands in the way, however quiet they want it.
func (a *app) complain(format string, args ...any) {
	fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
}

// note tells the user something on standard error, unless told to be quiet.
func (a *app) note(format string, args ...any) {
	if !a.flags.quiet {
		fmt.Fprintf(a.err, "gmemtop: %s\n", report.Printable(fmt.Sprintf(format, args...)))
	}
}

// line prints a line of an answer on standard output.
func (a *app) line(format string, args ...any) {
	fmt.Fprintln(a.out, report.Printable(fmt.Sprintf(format, args...)))
}

// newProgress returns a line that says how far work is, where standard error is a terminal.
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

// colored says whether escape sequences may go to standard output: --color first, then NO_COLOR,
// CLICOLOR_FORCE, TERM and what standard output is (https://no-color.org, https://bixense.com/clicolors).
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
