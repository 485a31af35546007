package pytorch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gmemtop/gmemtop/capture/pytorch/inject"
)

// Connect finds the agent in process pid and waits until it has connected, which takes up to about a second.
// If another viewer is watching it, that viewer relays what it sees. The error wraps errNoAgent if no agent
// is there: Attach brings one in.
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
		s, err := acceptAgent(ctx, pid, at, name, nil, func() error {
			now, err := findMarker(pid)
			if err == nil && now.Socket != m.Socket {
				err = fmt.Errorf("process %d: %w connects here any more", pid, errNoAgent)
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
		select { // nothing signals that the viewer leaves, or starts to share what it sees
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Injector runs source on the main thread of a running Python process, and returns when it has run.
type Injector func(ctx context.Context, pid int, source string) error

// settling is how long to retry when another agent is in the way: one that another viewer has just injected,
// or one that is leaving. On a busy machine either takes seconds.
const settling = 30 * time.Second

// settleEvery is how often to look for that agent. The first new injection comes after that time, and each
// later one after twice as long: injecting takes time from the training.
const settleEvery = 50 * time.Millisecond

// tracing is how long to retry while a debugger traces the target, which may be about to leave. Another
// gmemtop that attaches gets as long as settling: on a busy machine it takes seconds.
const tracing = 2 * time.Second

// patience is how long to retry after an error.
func patience(err error) time.Duration {
	var e *inject.Error
	switch {
	case errors.Is(err, errLives), errors.Is(err, errNoAgent), errors.As(err, &e) && e.Attaching:
		return settling
	case errors.Is(err, inject.ErrBusy):
		return tracing
	}
	return 0
}

// Attach connects to the agent in a running process, and brings one in if there is none.
func Attach(ctx context.Context, pid int, way Injector) (*Session, error) {
	var first time.Time // when another agent or tracer was in the way
	for pause := settleEvery; ; pause *= 2 {
		s, err := Connect(ctx, pid)
		if errors.Is(err, errNoAgent) || errors.Is(err, errReused) {
			s, err = bring(ctx, pid, way)
		}
		if first.IsZero() { // injecting may have taken long
			first = time.Now()
		}
		if err == nil || time.Since(first) >= patience(err) {
			return s, err
		}
		if !settle(ctx, pid, pause) {
			return nil, err
		}
	}
}

// settle waits up to pause until the agent in a process can be found, by a file that another process writes.
// It returns false if ctx is done.
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

// brought counts the attempts to bring an agent in: each has its own socket.
var brought atomic.Int64

// bring brings the agent into a process that has none, and waits until it has connected.
func bring(ctx context.Context, pid int, way Injector) (*Session, error) {
	at, err := placeFor(pid)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%d-%d-%d.sock", os.Getpid(), pid, brought.Add(1))
	begin := func() error { return way(ctx, pid, bootstrap(filepath.Join(at.there, name))) }
	s, err := acceptAgent(ctx, pid, at, name, begin, func() error { return nil })
	if err != nil {
		at.close()
	}
	return s, err
}

// goneEvery is how often to check whether an agent will still connect, by a file that another process,
// perhaps in a container, removes.
const goneEvery = 200 * time.Millisecond

// acceptAgent listens on a socket in a place until the agent of process pid has connected, or gone returns
// why it will not. Place and listener last as long as the session, to tell other viewers who is watching. It
// hangs up on other ranks of the same run, which keep trying.
func acceptAgent(ctx context.Context, pid int, at place, name string, begin,
	gone func() error) (*Session, error) {
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
		case s.info.PID == pid:
			s.listener = l
			go l.refuse()
			return s, nil
		default:
			_ = s.Close() // another rank of the same run: it keeps trying
		}
	}
}
