package tui

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Run shows what opts loads until the user quits or ctx is cancelled. It always restores the terminal, even
// after a panic, whose stack it writes to the state folder. It returns nil if the user quit, the error on the
// screen if nothing could be shown, and ctx's error if it was cancelled.
func Run(ctx context.Context, opts Options) error {
	m := newModel(opts)
	program := []tea.ProgramOption{tea.WithoutSignalHandler(), tea.WithFPS(30)}
	if opts.Input != nil {
		program = append(program, tea.WithInput(opts.Input))
	}
	if opts.Output != nil {
		program = append(program, tea.WithOutput(opts.Output))
	}
	if opts.Environ != nil {
		program = append(program, tea.WithEnvironment(opts.Environ))
	}
	switch opts.Color {
	case "never":
		program = append(program, tea.WithColorProfile(colorprofile.ASCII))
	case "always":
		program = append(program, tea.WithColorProfile(opts.colors()))
	}
	p := tea.NewProgram(m, program...)
	ctx, ended := hangup(ctx)
	defer ended()
	defer context.AfterFunc(ctx, p.Quit)()
	_, err := p.Run()
	m.stop()
	switch {
	case err == nil && ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return m.loader.failure
	case errors.Is(err, tea.ErrProgramPanic):
		return fmt.Errorf("gmemtop failed; its crash log is in %s: %w", stateDir(m), err)
	}
	return err
}

// hangup returns a ctx that is also cancelled when the terminal goes away. A cancelled screen quits as on q,
// which restores the terminal; bubbletea's own way to stop on a context or a signal does not always.
func hangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

func stateDir(m *model) string {
	if m.opts.StateDir != "" {
		return m.opts.StateDir
	}
	if dir := m.opts.env("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "gmemtop")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "gmemtop")
	}
	return filepath.Join(home, ".local", "state", "gmemtop")
}

// logPanic is deferred wherever the program runs our code on the event loop: it logs a panic and lets it
// continue, so that bubbletea restores the terminal.
func logPanic(m *model) {
	if r := recover(); r != nil {
		writeCrash(m, r, debug.Stack())
		panic(r)
	}
}

// writeCrash appends a panic to the crash log and returns the log's path.
func writeCrash(m *model, value any, stack []byte) string {
	path := filepath.Join(stateDir(m), "crash.log")
	text := fmt.Sprintf("%s gmemtop, view %c, %dx%d\npanic: %v\n%s\n",
		m.now().UTC().Format(time.RFC3339), m.tabs.front, m.screen.width, m.screen.height, value, stack)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "nowhere: " + err.Error()
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return "nowhere: " + err.Error()
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "nowhere: " + err.Error()
	}
	return path
}
