package acceptance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Processes
//
// A check runs gmemtop and trainings, and gmemtop starts further processes, some of them in their own
// sessions. All of them must be gone when the check is over or the user presses ctrl-c. Three things ensure
// that: each child leads a process group, which is signalled as a whole; each has a random token in its
// environment, which its descendants inherit and by which those that left the group are found in /proc; and
// trainings without an end set an alarm, in case this process is killed.

// tokenName is the variable that marks every process of a run.
const tokenName = "GMEMTOP_CHECK_TOKEN"

// gracePeriod is how long a process may take to end after it was told to.
const gracePeriod = 3 * time.Second

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// environ is the environment of children: their files go to the folder, and the user's settings do not reach
// the gmemtop under test.
func (s *checkup) environ(more ...string) []string {
	var env []string
	for _, v := range s.Environ {
		if !strings.HasPrefix(v, "GMEMTOP_") {
			env = append(env, v)
		}
	}
	cache := filepath.Join(s.Folder, "cache")
	env = append(env, tokenName+"="+s.token, "XDG_CACHE_HOME="+cache,
		"XDG_STATE_HOME="+filepath.Join(cache, "state"), "CUDA_CACHE_PATH="+filepath.Join(cache, "nv"),
		"PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID")
	if s.size.name == tiny.name { // cuBLAS's usual workspace of 32 MiB would be most of a tiny network
		env = append(env, "CUBLAS_WORKSPACE_CONFIG=:16:8")
	}
	if s.facts.visible != "" {
		env = append(env, "CUDA_VISIBLE_DEVICES="+s.facts.visible)
	}
	return append(env, more...)
}

// child is a process that was started.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of its end, once done is closed
}

// start starts a program. Its standard output goes to out, its standard error to the check's log.
func (t *trial) start(out io.Writer, env []string, argv ...string) (*child, error) {
	t.log("+ %s", strings.Join(argv, " "))
	log, err := os.OpenFile(t.path(".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = t.environ(env...), t.Folder, out, log
	cmd.WaitDelay = gracePeriod // a grandchild that holds the pipe open does not hold us up
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", filepath.Base(argv[0]), err)
	}
	c := &child{cmd: cmd, done: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// pid is the process's number.
func (c *child) pid() int { return c.cmd.Process.Pid }

// running reports whether the process has not ended yet.
func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the process. If ctx ends first it stops the process and returns ctx's error.
func (c *child) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		c.stop()
		return ctx.Err()
	}
}

// stop ends the process and its group, and returns when the process is gone.
func (c *child) stop() {
	if !c.running() {
		return
	}
	signalGroup(c.cmd.Process, false)
	select {
	case <-c.done:
	case <-time.After(gracePeriod):
		signalGroup(c.cmd.Process, true)
		<-c.done
	}
}

// ended is the error of a program that ended with an unexpected exit code.
type ended struct {
	program string
	code    int
	said    string // the last thing it said
}

func (e *ended) Error() string {
	if e.said == "" {
		return fmt.Sprintf("%s ended with code %d and said nothing", e.program, e.code)
	}
	return fmt.Sprintf("%s (exit code %d)", e.said, e.code)
}

// limited runs a program until it ends, for at most limit, and returns its output and exit code. The error is
// nil if it ended by itself with an accepted exit code. Exit code 5 of gmemtop, which means that this machine
// cannot do it, skips the check.
func (t *trial) limited(ctx context.Context, limit time.Duration, accepted []int, env []string,
	argv ...string) ([]byte, int, error) {
	limit = t.allow(limit)
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out bytes.Buffer
	from := t.logged()
	c, err := t.start(&out, env, argv...)
	if err != nil {
		return nil, 0, err
	}
	err = c.wait(inner)
	code := c.cmd.ProcessState.ExitCode()
	switch {
	case ctx.Err() != nil:
		return out.Bytes(), code, errNoTime
	case inner.Err() != nil:
		return out.Bytes(), code, fmt.Errorf("stopped after %.0f s, its limit", limit.Seconds())
	case err != nil && !errors.As(err, new(*exec.ExitError)) && !errors.Is(err, exec.ErrWaitDelay):
		return out.Bytes(), code, err
	}
	for _, a := range append(accepted, 0) {
		if code == a {
			return out.Bytes(), code, nil
		}
	}
	e := &ended{program: filepath.Base(argv[0]), code: code, said: t.lastSaid(from)}
	if code == 5 && argv[0] == t.Program {
		return out.Bytes(), code, skip("%s", e.said)
	}
	return out.Bytes(), code, e
}

// gmemtop runs the program under test.
func (t *trial) gmemtop(ctx context.Context, limit time.Duration, accepted []int,
	args ...string) ([]byte, int, error) {
	return t.limited(ctx, limit, accepted, nil, append([]string{t.Program}, args...)...)
}

// script runs one of the scripts in the folder by Python.
func (t *trial) script(ctx context.Context, limit time.Duration, env []string,
	args ...string) ([]byte, error) {
	out, _, err := t.limited(ctx, limit, nil, env, append([]string{t.Python}, args...)...)
	return out, err
}

// logged is how long the check's log is.
func (t *trial) logged() int64 {
	info, err := os.Stat(t.path(".log"))
	if err != nil {
		return 0
	}
	return info.Size()
}

// said returns the check's log from a position on.
func (t *trial) said(from int64) string {
	f, err := os.Open(t.path(".log"))
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, from, 1<<20))
	return string(b)
}

// lastSaid returns the last error of gmemtop's in the log from a position on, or else its last line.
func (t *trial) lastSaid(from int64) string {
	last, own := "", ""
	for line := range strings.Lines(t.said(from)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "+ ") {
			continue
		}
		last = line
		if s, ok := strings.CutPrefix(line, "gmemtop: "); ok {
			own = s
		}
	}
	if own != "" {
		return own
	}
	return last
}

// sweep ends every process that carries this run's token, whatever group or session it is in.
func (s *checkup) sweep() {
	for range 3 { // the next round finds one that was just being forked
		pids := marked(tokenName + "=" + s.token)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		time.Sleep(20 * time.Millisecond) // a killed process is listed until its parent has reaped it
	}
}

// marked returns the processes of this machine that were started with a variable in their environment. It
// finds none if there is no /proc.
func marked(variable string) []int {
	list, _ := filepath.Glob("/proc/[0-9]*/environ")
	var pids []int
	for _, path := range list {
		b, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, b...), []byte("\x00"+variable+"\x00")) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func lastLine(out []byte) []byte {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return []byte(lines[len(lines)-1])
}
