package pytorch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/procs"
	"github.com/gmemtop/gmemtop/capture/say"
	"github.com/gmemtop/gmemtop/traces/maybe"
)

// A command must not notice that it is watched, or that the watcher dies. So its output goes to a file that
// this process reads: with a pipe or terminal of ours, a killed viewer would end the training with a broken
// pipe. Nothing that goes wrong on this side changes its exit code.

// Launch says what to start and how.
type Launch struct {
	Argv []string
	Dir  string
	// Env is the environment, nil for this process's own. Two variables are set in it: PYTHONPATH gets our
	// folder in front, and GMEMTOP_SOCK names the socket.
	Env []string
	// Stdin is nil for none.
	Stdin *os.File
	// Stdout and Stderr, if given, are the command's; otherwise both go to one file that this process reads.
	Stdout, Stderr *os.File
	// Echo, unless nil, gets a copy of what is read. Errors are ignored: a terminal may end before the
	// command does.
	Echo io.Writer
	// First is how many steps are captured without an order once the program is warm: a short program would
	// end before a viewer could ask.
	First int
	// Depth is how steps are captured until another depth is ordered, "" for capture.HowOps.
	Depth string
	// Offload lists types of devices, such as cuda, whose saved tensors wait on the host from the first step
	// until a plan is carried out: for a training that would not fit without one.
	Offload []string
	// Detached starts the command in its own session, so that closing this terminal does not affect it.
	Detached bool
	// Each, unless nil, returns a sink for a process other than the one that is shown, or nil to drop what
	// that process sends.
	Each func(*Session) capture.Sink
	// Reach, unless nil, brings the agent into processes that have loaded torch but did not get the
	// environment, until an agent has connected.
	Reach Injector
	// Received, unless nil, is asked when a process connects for the last of its steps that reached anyone.
	// What the process has sent since then to a viewer that was killed is read from its ring.
	Received func(capture.Info) maybe.Int
	// Note is stored with the command, for the gmemtop that resumes it (Orphan).
	Note string
}

// Job is a command that was started under the agent. It is a capture.Source, to be run once, and a
// capture.Controller for the process that is shown.
type Job struct {
	launch   Launch
	process  *os.Process
	command  Orphan // what is left of this job if this program is killed
	listener *Listener
	folder   string
	output   *os.File
	room     *room // for what is printed to output
	exited   chan struct{}
	state    *os.ProcessState // nil until it has exited, and of an orphan

	mu      sync.Mutex
	shown   *Session
	rank    maybe.Int // of the process that is shown
	began   bool      // it has stepped
	last    capture.End
	trained bool // last is of a process that has stepped
}

var (
	_ capture.Source     = (*Job)(nil)
	_ capture.Controller = (*Job)(nil)
)

// ErrNotConnected means that no process of the job has connected yet.
var ErrNotConnected = errors.New("no process of the job has imported torch yet")

// Variables of the environment that a launched command and its children see.
const (
	envPath   = "PYTHONPATH"
	envSocket = "GMEMTOP_SOCK"
)

// Start starts the command. An error means that it was not started: the command cannot run, or gmemtop could
// not watch it.
func Start(l Launch) (*Job, error) {
	if len(l.Argv) == 0 {
		return nil, errors.New("no command to start")
	}
	base, err := Folder()
	if err != nil {
		return nil, err
	}
	sweep(base)
	folder, err := os.MkdirTemp(base, "run-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the agent: %w", err)
	}
	j := &Job{launch: l, folder: folder, exited: make(chan struct{})}
	if err := j.start(base); err != nil {
		if j.listener != nil {
			_ = j.listener.Close()
		}
		if j.output != nil {
			_ = j.output.Close()
			_ = os.Remove(j.output.Name())
		}
		_ = os.RemoveAll(folder)
		return nil, err
	}
	return j, nil
}

// Resume watches an orphan from now on. It uses only Each, Reach and Received of l.
func (o Orphan) Resume(l Launch) (*Job, error) {
	var lister procs.Lister
	p, err := lister.Look(o.PID)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", o.PID, err)
	}
	j := &Job{launch: Launch{Argv: p.Argv, Each: l.Each, Reach: l.Reach, Received: l.Received},
		folder: o.folder, command: o, exited: make(chan struct{})}
	if j.process, err = os.FindProcess(o.PID); err != nil {
		return nil, fmt.Errorf("process %d: %w", o.PID, err)
	}
	if j.listener, err = Listen(socketOf(o.folder)); err != nil {
		return nil, fmt.Errorf("process %d: %w", o.PID, err)
	}
	go func() {
		awaitEnd(o.PID, o.started, forever)
		close(j.exited)
	}()
	return j, nil
}

// agent returns the agent's source with its settings.
func (l *Launch) agent() string {
	settings := fmt.Sprintf("\n\nsettings.first, settings.depth = %d, %q\n", max(l.First, 0),
		cmp.Or(l.Depth, capture.HowOps))
	for _, kind := range l.Offload {
		settings += fmt.Sprintf("settings.unplanned += (%q,)\n", kind)
	}
	return Agent() + settings
}

// forever is longer than any process runs.
const forever = time.Duration(math.MaxInt64)

func (j *Job) start(base string) error {
	python := filepath.Join(j.folder, "python")
	if err := os.Mkdir(python, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"sitecustomize.py": siteSource, "agent.py": j.launch.agent()} {
		if err := os.WriteFile(filepath.Join(python, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the agent: %w", err)
		}
	}
	run := filepath.Base(j.folder)
	var err error
	if j.listener, err = Listen(socketOf(j.folder)); err != nil {
		return err
	}
	cmd := exec.Command(j.launch.Argv[0], j.launch.Argv[1:]...)
	cmd.Dir, cmd.SysProcAttr = j.launch.Dir, detached(j.launch.Detached)
	cmd.Env = environ(j.launch.Env, python, j.listener.Path())
	if j.launch.Stdin != nil {
		cmd.Stdin = j.launch.Stdin
	}
	if j.launch.Stdout == nil || j.launch.Stderr == nil {
		if j.output, err = outputFile(run); err != nil {
			return err
		}
		j.room = &room{file: j.output}
		if _, err := j.room.hold(0); err != nil {
			return fmt.Errorf("there is no room for what the command prints: %s: %w; free some, name "+
				"another folder with XDG_STATE_HOME, or leave its output where it is with --headless",
				j.output.Name(), err)
		}
	}
	cmd.Stdout, cmd.Stderr = pick(j.launch.Stdout, j.output), pick(j.launch.Stderr, j.output)
	if err := cmd.Start(); err != nil {
		return err
	}
	j.process = cmd.Process
	j.command = leaveOwner(j.folder, j.PID(), os.Getpid(), j.launch.Note)
	go func() {
		awaitEnd(j.PID(), 0, forever) // since Reach cannot attach while Wait waits
		_ = cmd.Wait()
		j.state = cmd.ProcessState
		close(j.exited)
	}()
	return nil
}

func pick(given, ours *os.File) *os.File {
	if given != nil {
		return given
	}
	return ours
}

// environ returns env with the agent at the front of PYTHONPATH. An empty PYTHONPATH gets no colon: Python
// would read the empty entry after it as the current folder.
func environ(env []string, python, socket string) []string {
	if env == nil {
		env = os.Environ()
	}
	path := python
	out := make([]string, 0, len(env)+2)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case envPath:
			if value != "" {
				path = python + string(os.PathListSeparator) + value
			}
		case envSocket:
		default:
			out = append(out, e)
		}
	}
	return append(out, envPath+"="+path, envSocket+"="+socket)
}

// outputFile makes the file that the command writes to.
func outputFile(run string) (*os.File, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		dir = filepath.Join(home, ".local", "state")
	}
	dir = filepath.Join(dir, "gmemtop")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		dir = os.TempDir()
	}
	f, err := os.OpenFile(filepath.Join(dir, run+".log"),
		os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a file for the command's output: %w", err)
	}
	return f, nil
}

// PID returns the command's process number.
func (j *Job) PID() int { return j.process.Pid }

// OutputPath returns the file that holds what the command writes, "" if that goes elsewhere.
func (j *Job) OutputPath() string {
	if j.output == nil {
		return ""
	}
	return j.output.Name()
}

// Signal sends the command a signal.
func (j *Job) Signal(s os.Signal) error { return j.process.Signal(s) }

// Wait waits for the command to end and returns its exit code: its own, or 128 plus the signal that ended it.
func (j *Job) Wait(ctx context.Context) (int, error) {
	select {
	case <-j.exited:
		return exitCode(j.state), nil
	case <-ctx.Done():
		return -1, ctx.Err()
	}
}

// Run implements capture.Source: it ends when the command has. When ctx is done the command and its agents go
// on, and Connect finds them.
func (j *Job) Run(ctx context.Context, sink capture.Sink) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m := &mux{job: j, sink: sink, passed: map[int]*capture.Step{}}
	sink.Begin(capture.Info{PID: j.PID(), Argv: j.launch.Argv})
	m.notice(capture.Say(say.WaitsForTorch))
	var work sync.WaitGroup
	work.Go(func() { m.accept(ctx, &work) })
	if j.output != nil {
		work.Go(func() { m.tail(ctx) })
	}
	work.Go(func() { m.reach(ctx) })
	var err error
	select {
	case <-j.exited:
		m.drain() // the last messages of its processes
		_ = j.listener.Close()
	case <-ctx.Done():
		err = ctx.Err()
		_ = j.listener.Close()
	}
	cancel()
	work.Wait()
	if err != nil {
		return err
	}
	_ = os.RemoveAll(j.folder)
	if j.output != nil {
		_ = j.output.Close()
	}
	end := j.last
	end.Reason, end.Code = capture.Exited, maybe.NonNegative(int64(exitCode(j.state)))
	sink.End(end)
	return nil
}

// control returns the session that is shown.
func (j *Job) control() (*Session, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.shown == nil {
		return nil, ErrNotConnected
	}
	return j.shown, nil
}

// Order implements capture.Controller.
func (j *Job) Order(ctx context.Context, o capture.Order) error {
	s, err := j.control()
	if err != nil {
		return err
	}
	return s.Order(ctx, o)
}

// Detach implements capture.Controller.
func (j *Job) Detach(ctx context.Context) error {
	s, err := j.control()
	if err != nil {
		return err
	}
	return s.Detach(ctx)
}

// Share makes r serve other viewers that ask for a process of this job without its own ShareProcess.
func (j *Job) Share(r *Relay) { j.listener.share(0, r) }

// ShareProcess makes r serve other viewers that ask for process pid.
func (j *Job) ShareProcess(pid int, r *Relay) { j.listener.share(pid, r) }
