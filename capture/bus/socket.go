//go:build !nobus

package bus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// unixDialer connects to a Unix socket, whatever address is asked for.
type unixDialer string

func (d unixDialer) Dial(string, string) (net.Conn, error) {
	return net.DialTimeout("unix", string(d), dialWait)
}

// NATS has no Unix sockets. A bridge listens at one and hands every connection to the server in this process.

// bridge is a Unix socket that leads to a hub.
type bridge struct {
	listener net.Listener
	open     func() (net.Conn, error)
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once it is closed
	// allowed decides by user who may connect; a test sets it.
	allowed func(user int) bool
}

// listen opens a socket at path, in a folder that only this user can enter.
func listen(path string, open func() (net.Conn, error)) (*bridge, error) {
	if err := privateFolder(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("open the hub's socket: %w", err)
	}
	// A socket that nobody listens at is left over from a hub that was killed.
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("open the hub's socket: another hub listens at %s", path)
	}
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("open the hub's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("open the hub's socket: %w", err), l.Close())
	}
	b := &bridge{listener: l, open: open, conns: map[net.Conn]bool{},
		allowed: func(user int) bool { return user == os.Geteuid() }}
	b.work.Go(b.accept)
	return b, nil
}

func (b *bridge) accept() {
	for {
		c, err := b.listener.Accept()
		if err != nil {
			return
		}
		b.work.Go(func() { b.serve(c) })
	}
}

// serve carries one connection.
func (b *bridge) serve(c net.Conn) {
	defer c.Close()
	b.mu.Lock()
	allowed := b.allowed
	b.mu.Unlock()
	if user, err := peerOf(c); err != nil || !allowed(user) {
		return
	}
	hub, err := b.open()
	if err != nil {
		return
	}
	defer hub.Close()
	b.mu.Lock()
	if b.conns == nil {
		b.mu.Unlock()
		return
	}
	b.conns[c] = true
	b.mu.Unlock()
	splice(c, hub)
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
}

// close ends all connections and removes the socket.
func (b *bridge) close() {
	_ = b.listener.Close()
	b.mu.Lock()
	for c := range b.conns {
		_ = c.Close()
	}
	b.conns = nil
	b.mu.Unlock()
	b.work.Wait()
}

// splice copies between two connections until either ends.
func splice(a, b net.Conn) {
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}

// peerOf returns the user at the other end of a Unix socket.
func peerOf(c net.Conn) (user int, err error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a Unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) { user, err = userAt(int(fd)) })
	return user, errors.Join(failed, err)
}
