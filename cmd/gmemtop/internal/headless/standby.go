package headless

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/gmemtop/gmemtop/capture"
	"github.com/gmemtop/gmemtop/capture/reach"
	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/console"
)

// StandBy is a second gmemtop beside one that sends a command's steps to a hub. If the first is killed, the
// second takes its place. It waits at the end of a pipe that the kernel closes however the first one ends, so
// it needs no timer and costs no processor time, and it has a session of its own, which a signal to the first
// one's group does not reach. Once it has taken over, it starts the next one.
//
// Rejected: a parent that starts the watching gmemtop again. The command would be a grandchild, and a
// scheduler that kills or signals the process that it has started would reach the wrong one.
type StandBy struct {
	alive *os.File // closed by the kernel if this process is killed
	ended chan struct{}
}

// dismissed is written to a stand-by that is not needed.
const dismissed = "."

// StandByCommand is the name of the command that stands by.
const StandByCommand = "stand-by"

// startStandBy starts a gmemtop that takes over if this one is killed. program is the path of gmemtop, pids
// are the commands that this one watches, and stderr is where the other one says that it has taken over.
// Without a program, and where nothing could be taken over, as on macOS, none is started, and the StandBy is
// nil.
func startStandBy(program string, where reach.Where, pids []int, stderr *os.File) (*StandBy, error) {
	if program == "" || runtime.GOOS != "linux" {
		return nil, nil
	}
	waiting, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer waiting.Close()
	argv := []string{StandByCommand, "--join-file", where.JoinFile}
	if where.Credentials != "" {
		argv = append(argv, "--creds", where.Credentials)
	}
	for _, pid := range pids {
		argv = append(argv, strconv.Itoa(pid))
	}
	cmd := exec.Command(program, argv...)
	cmd.Stdin, cmd.Stderr, cmd.SysProcAttr = waiting, stderr, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = alive.Close()
		return nil, err
	}
	s := &StandBy{alive: alive, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

// BeginStandBy starts a stand-by and returns what ends it. It complains if there can be none, which is no
// reason not to watch.
func BeginStandBy(program string, where reach.Where, pids []int, stderr *os.File,
	complain func(text string)) (end func()) {
	s, err := startStandBy(program, where, pids, stderr)
	if err != nil {
		complain(fmt.Sprintf("no second gmemtop stands by: %v; if this one is killed, type gmemtop attach "+
			"--join-file %s on this machine", err, console.ShellWord(where.JoinFile)))
	}
	return s.Dismiss
}

// Dismiss ends the stand-by and waits for that, since it has this program's error output. s may be nil.
func (s *StandBy) Dismiss() {
	if s == nil {
		return
	}
	_, _ = io.WriteString(s.alive, dismissed) // it fails if the stand-by was killed
	_ = s.alive.Close()
	<-s.ended
}

// Times of a stand-by.
const (
	// aMoment is how long it waits between two looks at a command. The gmemtop that was killed may still hold
	// the socket.
	aMoment = 200 * time.Millisecond
	// settled is after how long a command that somebody still watches has been taken over by another gmemtop.
	settled = 5 * time.Second
	// longer is how long it waits before it tries again to reach a hub that does not answer.
	longer = 2 * time.Second
)

// AwaitDeath waits for the gmemtop at the other end of a pipe. It reports whether that was killed, rather
// than ended.
func AwaitDeath(pipe io.Reader) (killed bool, err error) {
	b, err := io.ReadAll(pipe)
	return len(b) == 0 && err == nil, err
}

// Stand watches the commands of a gmemtop that was just killed, in its place, until they have ended or ctx is
// done.
func (t *TakeOver) Stand(ctx context.Context, pids []int) error {
	once := OncePerText(t.Complain)
	t.Complain = func(text string) { once(capture.Info{}, text) }
	t.standsBy = true
	for began := time.Now(); time.Since(began) < settled && slices.ContainsFunc(pids, exists); {
		wait := aMoment
		if err := t.Find(pids...); err == nil {
			failed, err := t.run(ctx)
			if err != nil {
				t.Complain(err.Error())
			} else if failed == 0 {
				return nil
			}
			began, wait = time.Now(), longer
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	return nil
}

// exists reports whether there is a process of a number.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
