package pytorch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

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
	place    place // of the socket; the zero value if it need not be closed

	mu     sync.Mutex
	relays map[int]*Relay // share processes with other viewers; 0 is for those not in the map
	met    time.Time      // when the first agent connected; zero before
}

// Listen waits for agents at path. It replaces the socket of a viewer that has gone. If another viewer
// listens, the error wraps ErrWatched and names it.
func Listen(path string) (*Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the socket's path is longer than the system allows: %s; "+
			"set XDG_RUNTIME_DIR to a shorter folder", path)
	}
	// If several find that a viewer has gone, they check the socket one at a time: otherwise one could
	// mistake another's new socket for the old one.
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
// forever. A wait for a lock cannot be cancelled, so lock polls.
const (
	lockPatience = 5 * time.Second
	lockEvery    = 10 * time.Millisecond
)

// lock keeps others from locking a folder until it is closed. After lockPatience it goes on without the lock.
func lock(dir *os.File) {
	for began := time.Now(); time.Since(began) < lockPatience; time.Sleep(lockEvery) {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
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

// meet reads a connection's first frame and answers it. An agent becomes a session. Another viewer learns
// which process listens here, or becomes a relay's guest, as kept says.
func (l *Listener) meet(conn net.Conn) (s *Session, kept bool, err error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	first := &greeting{Conn: conn}
	defer func() {
		if s == nil {
			first.drop()
		}
	}()
	k, payload, err := readFrame(first, maxHello)
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
		if s, err = shake(conn, k, payload); s != nil {
			s.ring = first.ring
		}
		return s, false, err
	}
	b, err := frame(frameWatched, watched{PID: os.Getpid(), Since: l.since.Format("15:04:05"),
		Looks: lookVersion, Attaching: l.attaching()})
	if err == nil {
		_, err = conn.Write(b)
	}
	return nil, false, err
}

// attaching reports whether this viewer has only just started and will soon share what it sees.
func (l *Listener) attaching() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.relays) == 0 && (l.met.IsZero() || time.Since(l.met) < showing)
}

// share makes r serve other viewers that ask for process pid; with pid 0, those that ask for any other
// process.
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

// listen waits for agents on a socket in the place. The listener closes the place; after an error the caller
// must.
func (p place) listen(name string) (*Listener, error) {
	var l *Listener
	err := asUser(p.uid, p.gid, func() (err error) {
		l, err = Listen(filepath.Join(p.here, name))
		return err
	})
	if err != nil {
		return nil, err
	}
	l.place = p
	return l, nil
}

// showing is how long a viewer may take from the agent's connection until it shares what it sees with others.
const showing = 2 * time.Second
