package inject

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// throughPEP768 carries an injection out through CPython's own protocol. The script is in a new directory in
// the target's file system that belongs to the target's user; a file that appears beside it says that it has
// run.
func throughPEP768(ctx context.Context, t *target, b Bootstrap, r *Report) (err error) {
	fail := func(doing string, err error, retry bool) error {
		return &Error{Kind: errFailed, PID: t.pid, Message: doing + ": " + err.Error(), Err: err,
			retry: retry}
	}
	mem := processMemory(t.pid)
	at, err := findRemoteDebug(mem, t.python.runtime)
	if err != nil {
		return fail("find its main thread", err, true)
	}
	if busy, err := readBytes(mem, at.pending, 1); err != nil || busy[0] != 0 {
		return &Error{Kind: ErrBusy, PID: t.pid,
			Message: "another debugger has asked it to run a script, which it has not done yet",
			Fix:     "try again later", Err: err, retry: true}
	}
	d, err := newScriptDir(t)
	if err != nil {
		return fail("make a directory that it can read", err, true)
	}
	defer func() {
		if gone := d.remove(); gone != nil && err == nil {
			err = fail("remove the script", gone, false)
		}
	}()
	var report, after strings.Builder
	report.WriteString("(lambda p: lambda text: (lambda fd: (p.write(fd, text), p.close(fd)))(p.open(")
	literal(&report, d.path+"/outcome")
	report.WriteString(", p.O_WRONLY | p.O_CREAT | p.O_CLOEXEC, 0o600)))(__import__('posix'))")
	after.WriteString("(lambda p: p.close(p.open(")
	literal(&after, d.path+"/done")
	after.WriteString(", p.O_WRONLY | p.O_CREAT | p.O_CLOEXEC, 0o600)))(__import__('posix'))")
	script := d.path + "/bootstrap.py"
	if len(script)+1 > int(at.pathSize) {
		return fail("name the script", errors.New("its path is too long"), true)
	}
	if err := d.write("bootstrap.py", b.program(report.String(), after.String())); err != nil {
		return fail("write the script", err, true)
	}
	if started, err := startTime(t.pid); err != nil || started != t.started {
		return reused(t.pid)
	}
	if err := at.ask(mem, script); err != nil {
		return fail("ask the interpreter", err, false)
	}
	if err := awaitScript(ctx, t, at, d, b.Watch, r); err != nil {
		return err
	}
	return judge(t.pid, d.outcome())
}

// ask writes the path, the flag and the bit that makes the thread look, in this order.
func (r remoteDebug) ask(mem processMemory, script string) error {
	if _, err := mem.WriteAt(append([]byte(script), 0), int64(r.path)); err != nil {
		return err
	}
	if _, err := mem.WriteAt([]byte{1, 0, 0, 0}, int64(r.pending)); err != nil {
		return err
	}
	return r.nudge(mem)
}

// nudge sets the bit. The protocol has no atomic way to do so; nudge writes only the byte with the bit, since
// the others hold the version of the instrumentation.
func (r remoteDebug) nudge(mem processMemory) error {
	b, err := readBytes(mem, r.evalBreaker, 1)
	if err != nil {
		return err
	}
	b[0] |= pleaseStop
	_, err = mem.WriteAt(b, int64(r.evalBreaker))
	return err
}

func awaitScript(ctx context.Context, t *target, at remoteDebug, d *scriptDir, watch func(Stage),
	r *Report) error {
	mem := processMemory(t.pid)
	start := time.Now()
	var begun time.Time
	told := Stage("")
	for delay := time.Millisecond; ; delay = min(delay*5/4, 20*time.Millisecond) {
		if _, err := d.root.Lstat("done"); err == nil {
			if begun.IsZero() {
				begun = time.Now()
				r.Waited = begun.Sub(start)
			}
			r.Ran = time.Since(begun)
			return nil
		}
		pending, err := readBytes(mem, at.pending, 1)
		if err != nil {
			return gone(t.pid)
		}
		stage, since := Queued, start
		if pending[0] == 0 {
			if begun.IsZero() {
				begun = time.Now()
				r.Waited = begun.Sub(start)
			}
			stage, since = Running, begun
		} else if err := at.nudge(mem); err != nil { // the bit may have been lost to a concurrent write
			return gone(t.pid)
		}
		if watch != nil && told != stage && time.Since(since) >= 100*time.Millisecond {
			told = stage
			watch(stage)
		}
		if late := pause(ctx, delay); late != nil {
			e := &Error{Kind: errPending, PID: t.pid, Err: late, Message: "the source is still running"}
			if pending[0] != 0 {
				e.Message = "the interpreter is busy: its main thread is in a long call; the " +
					"source was withdrawn"
				if _, err := mem.WriteAt([]byte{0}, int64(at.pending)); err != nil {
					return gone(t.pid)
				}
			}
			return e
		}
	}
}

// scriptDir is a directory in the target's file system. The target's user may do anything there, so every
// access goes through a handle of the directory and follows no link out of it, and ownership is given away
// last.
type scriptDir struct {
	t      *target
	parent *os.Root
	root   *os.Root
	name   string
	path   string // as the target sees it
}

func newScriptDir(t *target) (*scriptDir, error) {
	var token [8]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	d := &scriptDir{t: t, name: "gmemtop-" + hex.EncodeToString(token[:])}
	top, err := os.OpenRoot(filepath.Join(t.proc, "root"))
	if err != nil {
		return nil, err
	}
	defer top.Close()
	for _, parent := range []string{"tmp", "dev/shm", "var/tmp"} {
		if d.parent, err = top.OpenRoot(parent); err != nil {
			continue
		}
		if err = d.parent.Mkdir(d.name, 0o700); err == nil {
			d.path = "/" + parent + "/" + d.name
			if d.root, err = d.parent.OpenRoot(d.name); err == nil {
				return d, nil
			}
			d.parent.Remove(d.name)
		}
		d.parent.Close()
	}
	return nil, err
}

// write makes a file and gives it, and the directory, to the target's user.
func (d *scriptDir) write(name, text string) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if os.Geteuid() == 0 { // otherwise it is the same user
		err = errors.Join(err, f.Chown(d.t.status.uid[3], d.t.status.gid[3]),
			d.root.Chown(".", d.t.status.uid[3], d.t.status.gid[3]))
	}
	return errors.Join(err, f.Close())
}

// outcome is what the bootstrap reported, "" if it could not.
func (d *scriptDir) outcome() string {
	if s, err := d.root.Lstat("outcome"); err != nil || !s.Mode().IsRegular() {
		return ""
	}
	f, err := d.root.Open("outcome")
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, outcomeMax))
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (d *scriptDir) remove() error {
	err := d.parent.RemoveAll(d.name)
	return errors.Join(err, d.root.Close(), d.parent.Close())
}
