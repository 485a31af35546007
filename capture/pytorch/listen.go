package pytorch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

// maxSocketPath is what the kernels have room for in the address of a Unix socket.
const maxSocketPath = 103

// Listener waits for agents on a Unix socket.
type Listener struct {
	l        *net.UnixListener
	path     string
	since    time.Time
	sessions chan *Session
	failures chan error
	closed   chan struct{}
	once     sync.Once
	shaking  sync.WaitGroup
	place    place // of the socket; the zero value where it need not be closed

	mu     sync.Mutex
	relays map[int]*Relay // show processes to other viewers; 0 stands for those that are not in it
	met    time.Time      // when an agent connected first, the zero time before
}

// Listen waits for agents at path. It replaces the socket of a viewer that has gone. If another viewer
// listens, the error wraps ErrWatched and names it.
func Listen(path string) (*Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket's path is longer than the system allows: %s; "+
			"set XDG_RUNTIME_DIR to a shorter folder", path)
	}
	// Of several that find a viewer gone, one at a time looks at the socket: it would take another's new one
	// for the old one.
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		defer dir.Close() // which unlocks
		lock(dir)
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("waiting for the agent: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	x := &Listener{l: l, path: path, since: time.Now()}
	x.sessions, x.failures, x.closed = make(chan *Session), make(chan error, 16), make(chan struct{})
	go x.accept()
	return x, nil
}

// lockPatience is how long to wait for a folder that another process has locked: another user could hold it
// forever. A wait for a lock cannot be given up, so lock asks again and again.
const (
	lockPatience = 5 * time.Second
	lockEvery    = 10 * time.Millisecond
)

// lock keeps others from locking a folder until it is closed. After lockPatience it goes without.
func lock(dir *os.File) {
	for began := time.Now(); time.Since(began) < lockPatience; time.Sleep(lockEvery) {
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			return
		}
	}
}

// vacate removes a socket that no viewer listens on. The error names the viewer that does.
func vacate(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return os.Remove(path)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	who := watched{PID: peer(conn)}
	if b, err := frame(frameWho, struct{}{}); err == nil {
		if _, err = conn.Write(b); err == nil {
			if k, payload, err := readFrame(conn, maxHello); err == nil && k == frameWatched {
				if w, err := read[watched](payload); err == nil {
					who = w
				}
			}
		}
	}
	since := ""
	if who.Since != "" {
		since = " since " + who.Since
	}
	return fmt.Errorf("%w by process %d%s, which shows nothing to others; close that viewer first, or read "+
		"what it records", ErrWatched, who.PID, since)
}

// Path returns the socket's path.
func (l *Listener) Path() string { return l.path }

func (l *Listener) accept() {
	for {
		conn, err := l.l.Accept()
		if err != nil {
			select {
			case <-l.closed:
				return
			case <-time.After(10 * time.Millisecond): // out of files, say
				continue
			}
		}
		l.shaking.Go(func() {
			s, kept, err := l.meet(conn)
			if kept {
				return
			}
			if s == nil {
				_ = conn.Close()
				if err != nil {
					select {
					case l.failures <- err:
					default:
					}
				}
				return
			}
			l.mu.Lock()
			if l.met.IsZero() {
				l.met = time.Now()
			}
			l.mu.Unlock()
			select {
			case l.sessions <- s:
			case <-l.closed:
				_ = conn.Close()
			}
		})
	}
}

// meet reads a connection's first frame and answers it. An agent becomes a session. Another viewer is told
// which process listens here, or becomes a relay's guest, as kept says.
func (l *Listener) meet(conn net.Conn) (s *Session, kept bool, err error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	k, payload, err := readFrame(conn, maxHello)
	if err != nil {
		return nil, false, err
	}
	switch k {
	case frameWho:
	case frameLook:
		asked, err := read[look](payload)
		if err != nil {
			return nil, false, err
		}
		if r := l.relayOf(asked.PID); r != nil && asked.Version == lookVersion && r.serve(conn) {
			return nil, true, nil
		}
	default:
		s, err := shake(conn, k, payload)
		return s, false, err
	}
	b, err := frame(frameWatched, watched{PID: os.Getpid(), Since: l.since.Format("15:04:05"),
		Looks: lookVersion, Attaching: l.attaching()})
	if err == nil {
		_, err = conn.Write(b)
	}
	return nil, false, err
}

// attaching reports whether this viewer has only just come and will soon show other viewers something.
func (l *Listener) attaching() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.relays) == 0 && (l.met.IsZero() || time.Since(l.met) < showing)
}

// share has r serve other viewers that ask for process pid. With pid 0 it serves those that ask for any
// other.
func (l *Listener) share(pid int, r *Relay) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.relays == nil {
		l.relays = map[int]*Relay{}
	}
	l.relays[pid] = r
}

func (l *Listener) relayOf(pid int) *Relay {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.relays[pid]; r != nil {
		return r
	}
	return l.relays[0]
}

// Accept returns the next agent that connects. Errors of single connections, such as an agent of another
// version, are returned as well; net.ErrClosed means that the listener is closed.
func (l *Listener) Accept(ctx context.Context) (*Session, error) {
	select {
	case s := <-l.sessions:
		return s, nil
	case err := <-l.failures:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refuse hangs up on agents that connect from now on.
func (l *Listener) refuse() {
	for {
		s, err := l.Accept(context.Background())
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if s != nil {
			_ = s.Close()
		}
	}
}

// Close ends the waiting and removes the socket. Sessions go on.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		close(l.closed)
		err = l.l.Close()
		l.shaking.Wait()
		l.place.leave()
	})
	return err
}

// Folder returns the folder in which this user's sockets and agents' markers are, and makes it. It must
// belong to the user and be closed to everyone else.
func Folder() (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	if base == "" {
		base = "/tmp"
	}
	dir := filepath.Join(base, "gmemtop-"+strconv.Itoa(os.Getuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("a folder for the socket: %w; set XDG_RUNTIME_DIR to a folder of yours", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || owner(info) != os.Getuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a folder that only you can enter; remove it, or set "+
			"XDG_RUNTIME_DIR to another", dir)
	}
	return dir, nil
}

// marker is the file by which later viewers find an agent.
type marker struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	Start   int64  `json:"start"`
	Socket  string `json:"socket"`
}

// findMarker returns the marker of the agent in process pid. The error wraps ErrNoAgent if it has none, and
// ErrReused if the marker is of an earlier process with that number.
func findMarker(pid int) (m marker, err error) {
	uid, _ := userOf(pid)
	name := strconv.Itoa(innerPID(pid)) + ".json"
	for _, dir := range folders(pid, uid) {
		p, closed := placeAt(pid, dir, false)
		if closed != nil {
			continue
		}
		b, unread := p.read(name)
		over := false
		if unread == nil && json.Unmarshal(b, &m) == nil && m.Socket != "" {
			if over = !alive(pid, m.Start); over {
				p.remove(name)
			}
		} else {
			m = marker{}
		}
		p.close()
		switch {
		case m.Socket == "":
			continue
		case over:
			return m, fmt.Errorf("process %d: %w: the training that had this number has ended", pid, ErrReused)
		case m.Version != Version:
			return m, otherVersion(pid, m.Version)
		}
		return m, nil
	}
	return marker{}, fmt.Errorf("process %d: %w lives in it", pid, ErrNoAgent)
}

// Lives reports whether an agent lives in process pid: Attach then needs no permission to trace it.
func Lives(pid int) bool {
	_, err := findMarker(pid)
	return err == nil
}

// OtherVersion returns an error that wraps ErrVersion where an agent of another version lives in process pid,
// nil where none does.
func OtherVersion(pid int) error {
	if _, err := findMarker(pid); errors.Is(err, ErrVersion) {
		return err
	}
	return nil
}

// Connect finds the agent in process pid and waits until it has connected, which takes up to about a second.
// If another viewer watches it, that viewer passes on what it sees. The error wraps ErrNoAgent if no agent is
// there: Attach brings one in.
func Connect(ctx context.Context, pid int) (*Session, error) {
	for began := time.Now(); ; {
		m, err := findMarker(pid)
		if err != nil {
			return nil, err
		}
		at, err := placeAt(pid, filepath.Dir(m.Socket), true)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(m.Socket)
		s, err := await(ctx, pid, at, name, nil, func() error {
			now, err := findMarker(pid)
			if err == nil && now.Socket != m.Socket {
				err = fmt.Errorf("process %d: %w connects here any more", pid, ErrNoAgent)
			}
			return err
		})
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrWatched) {
			at.close()
			return nil, err
		}
		// With the user's rights: that user may have put a link to another's socket there meanwhile.
		along := asUser(at.uid, at.gid, func() (err error) {
			s, err = lookAlong(pid, filepath.Join(at.here, name))
			return err
		})
		at.close()
		switch {
		case along == nil:
			return s, nil
		case errors.Is(along, ErrVersion):
			return nil, along
		case errors.Is(along, errAttaching):
			began = time.Now()
		case time.Since(began) > showing:
			return nil, err
		}
		select { // nobody tells when that viewer goes, or begins to show what it sees
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// showing is how long a viewer may take from the agent's connection until it shows others what it sees.
const showing = 2 * time.Second

// Injector has source run on the main thread of a running Python process, and returns once it has.
type Injector func(ctx context.Context, pid int, source string) error

// settling is how long to retry when another agent is in the way: one that another viewer has just injected,
// or one that is leaving. On a busy machine either takes seconds.
const settling = 30 * time.Second

// settleEvery is the time between two looks at whether that agent can be found. It is injected again after
// that time, and each time after twice as long: what is injected takes time from the training.
const settleEvery = 50 * time.Millisecond

// tracing is how long to retry while another process traces the target: another viewer needs less than that
// to inject the agent.
const tracing = 2 * time.Second

// Attach connects to the agent in a running process, and brings one in if there is none.
func Attach(ctx context.Context, pid int, way Injector) (*Session, error) {
	var first time.Time // when another agent or tracer was in the way
	for pause := settleEvery; ; pause *= 2 {
		s, err := Connect(ctx, pid)
		if errors.Is(err, ErrNoAgent) || errors.Is(err, ErrReused) {
			s, err = bring(ctx, pid, way)
		}
		if first.IsZero() { // injecting may have taken long
			first = time.Now()
		}
		switch spent := time.Since(first); {
		case errors.Is(err, inject.ErrBusy) && spent < tracing: // by another viewer, or a debugger
		case (errors.Is(err, errLives) || errors.Is(err, ErrNoAgent)) && spent < settling:
		default:
			return s, err
		}
		if !settle(ctx, pid, pause) {
			return nil, err
		}
	}
}

// settle waits until the agent in a process can be found, at most for pause. It reports whether ctx is not
// done. What it looks for is a file that another process writes.
func settle(ctx context.Context, pid int, pause time.Duration) bool {
	for late := time.Now().Add(pause); ; {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(settleEvery):
		}
		if Lives(pid) || !time.Now().Before(late) {
			return true
		}
	}
}

// brought counts the attempts to bring an agent in: each has a socket of its own.
var brought atomic.Int64

// bring brings the agent into a process that has none, and waits until it has connected.
func bring(ctx context.Context, pid int, way Injector) (*Session, error) {
	at, err := placeFor(pid)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%d-%d.sock", os.Getpid(), pid, brought.Add(1))
	begin := func() error { return way(ctx, pid, Bootstrap(filepath.Join(at.there, name))) }
	s, err := await(ctx, pid, at, name, begin, func() error { return nil })
	if err != nil {
		at.close()
	}
	return s, err
}

// goneEvery is the time between two looks at whether an agent will still connect: what says so is a file that
// another process removes, in a container perhaps.
const goneEvery = 200 * time.Millisecond

// await listens at a socket of a place until the agent of process pid has connected, or gone returns why it
// will not. Place and listener last as long as the session, to tell other viewers who watches. It hangs up on
// other ranks of the same run, which keep trying.
func await(ctx context.Context, pid int, at place, name string, begin, gone func() error) (*Session, error) {
	l, err := at.listen(name)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	if begin != nil {
		if err := begin(); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	for {
		wait, cancel := context.WithTimeout(ctx, goneEvery)
		s, err := l.Accept(wait)
		cancel()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			_ = l.Close()
			return nil, fmt.Errorf("process %d: the agent did not connect: %w", pid, context.Cause(ctx))
		case errors.Is(err, context.DeadlineExceeded):
			err := gone()
			if !alive(pid, 0) {
				err = fmt.Errorf("process %d has ended", pid)
			}
			if err != nil {
				_ = l.Close()
				return nil, err
			}
		case err != nil:
			_ = l.Close()
			return nil, err
		case s.target.PID == pid:
			s.listener = l
			go l.refuse()
			return s, nil
		default:
			_ = s.Close() // another rank of the same run: it keeps trying
		}
	}
}
