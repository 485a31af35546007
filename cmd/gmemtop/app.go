package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/output"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/progress"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/signals"
	"github.com/gmemtop/gmemtop/replay"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// How commands are made
//
// app holds what all commands share: streams, environment, common flags, and how to write reports and notes.
// A command is a type that embeds app, with its flags as fields and its steps as methods, run first; a
// command with neither flags nor steps is just a function. Types in between hold what several commands share:
// planning for compare and plan, watcher for attach, run and record. newRootCommand lists all commands.
//
// Code that lives as long as a watched training uses neither app nor flags. It is in capture/job,
// capture/hub, capture/slurm, replay/crew, internal/feed and internal/headless.

// app is one invocation: its streams and environment, and the flags that many commands share.
type app struct {
	console.Console
	signals.Handler
	program   string    // the path of gmemtop, "" in tests, which are another program
	piped     io.Reader // what "-" reads: standard input, including what was peeked at
	flags     flags
	started   bool // a command's own work began; errors before it are mistakes in the command line
	files     output.Files
	notHelped error // why -h printed no help: the word beside it is no command
}

func newApp(in, out, err *os.File, environ []string) *app {
	return &app{Console: console.Console{In: in, Out: out, Err: err, Environ: environ}}
}

// stoppable returns a context for planning. The first ctrl-c ends it with [replay.ErrStopped], so that the
// command shows what there is.
func (a *app) stoppable(ctx context.Context) (_ context.Context, release func()) {
	return a.Stoppable(ctx, replay.ErrStopped)
}

// interrupted returns a context's error if ctrl-c ended it, nil if it did not.
func interrupted(ctx context.Context) error {
	if replay.Stopped(ctx) {
		return ctx.Err()
	}
	return nil
}

// oneLine keeps an error that quotes a file from sending control sequences to the terminal.
func oneLine(err error) string { return report.Printable(strings.TrimSpace(err.Error())) }

const (
	groupLook    = "look"
	groupLive    = "live"
	groupReport  = "report"
	groupFiles   = "files"
	groupMachine = "machine"
)

// complain reports a problem on standard error, even with --quiet.
func (a *app) complain(text string) { a.Tell(report.Printable(text)) }

func (a *app) complainf(format string, args ...any) { a.complain(fmt.Sprintf(format, args...)) }

// note prints a message on standard error, unless --quiet is set.
func (a *app) note(text string) {
	if !a.flags.quiet {
		a.Tell(report.Printable(text))
	}
}

func (a *app) notef(format string, args ...any) { a.note(fmt.Sprintf(format, args...)) }

// detailf prints a note that only --verbose shows.
func (a *app) detailf(format string, args ...any) {
	if a.flags.verbose {
		a.notef(format, args...)
	}
}

// newProgress returns a progress line on standard error. Where that is no terminal, long work writes a line
// every few seconds.
func (a *app) newProgress() *progress.Line {
	switch {
	case a.flags.quiet:
		return progress.New(nil, a.flags.report.Units)
	case !a.Redraws(a.Err):
		return progress.NewLog(a.Err, a.flags.report.Units)
	}
	return progress.New(a.Err, a.flags.report.Units)
}

// newTicker returns a progress line for work without an end, which shows nothing unless standard error is a
// terminal.
func (a *app) newTicker() *progress.Line {
	if !a.Redraws(a.Err) {
		return progress.New(nil, a.flags.report.Units)
	}
	return a.newProgress()
}

// colored reports whether standard output may get escape sequences.
func (a *app) colored() bool { return a.Colored(a.flags.color) }
