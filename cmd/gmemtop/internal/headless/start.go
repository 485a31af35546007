package headless

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/job"
	"github.com/gmemtop/gmemtop/capture/pytorch"
	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
	"github.com/gmemtop/gmemtop/timeline/report"
)

// Exit codes that a shell returns if a command cannot be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// NotStarted returns the exit code that a shell would give a command that could not be started, and says why
// in a shell's words; 0 for any other error.
func NotStarted(err error) (code int, why error) {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound, notStarted(err)
	case errors.Is(err, fs.ErrPermission):
		return exitNotExecutable, notStarted(err)
	}
	return 0, nil
}

// notStarted says in a shell's words why a command could not be started.
func notStarted(err error) error {
	var found *exec.Error
	if errors.As(err, &found) && errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s: command not found", found.Name)
	}
	var started *fs.PathError
	if !errors.As(err, &started) {
		return err
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%s: permission denied: is it a file that can be executed?", started.Path)
	}
	return fmt.Errorf("%s: no such file or directory, or its interpreter is missing", started.Path)
}

// Streams gives a command without a screen the streams of this process. A command that outlives its terminal
// would die when it prints there, so its output goes to a file, and from there to the terminal as long as
// there is one.
func Streams(l *pytorch.Launch, c *console.Console, outlives bool) {
	l.Stdin, l.Stdout, l.Stderr = c.In, c.Out, c.Err
	if !outlives {
		return
	}
	if console.IsTerminal(c.Err) {
		l.Stderr, l.Echo = nil, c.Err
	}
	if console.IsTerminal(c.Out) {
		l.Stdout, l.Echo = nil, c.Out
	}
}

// Starting says how to start a command.
type Starting struct {
	// Screen says that there is one: then the command has no terminal.
	Screen bool
	// OnSignal passes the signals of this process to a function from now on.
	OnSignal func(func(os.Signal))
	// Complain says why a process of the command is not watched.
	Complain func(text string)
}

// Start starts the command, whose processes become those of a job, and passes signals on to it.
func (x *Starting) Start(ranks *job.Job, l pytorch.Launch) (command *pytorch.Job, err error) {
	l.Each = func(s *pytorch.Session) capture.Sink { return ranks.Add(s.Info(), s) }
	l.Reach = ranks.Injector()
	if !x.Screen {
		l.Reach = reaching(l.Reach, x.Complain)
	}
	started := make(chan struct{})
	defer close(started)
	x.OnSignal(func(s os.Signal) {
		<-started // a signal that arrives earlier is for the command too
		// A command that shares the terminal gets typed signals from the terminal itself.
		if command != nil && (x.Screen || s != os.Interrupt) {
			_ = command.Signal(s)
		}
	})
	return pytorch.Start(l)
}

// reaching returns an injector that does as bring, and has complain say why a process could not be reached,
// unless it has ended by itself or the context has.
func reaching(bring pytorch.Injector, complain func(text string)) pytorch.Injector {
	return func(ctx context.Context, pid int, source string) error {
		err := bring(ctx, pid, source)
		if err != nil && ctx.Err() == nil && !errors.Is(err, inject.ErrGone) {
			complain("a program that loaded torch is not watched, because it did not get gmemtop's " +
				"environment: " + report.Printable(strings.TrimSpace(err.Error())))
		}
		return err
	}
}
