//go:build !nobus

package bus

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// If no port can be reached, a program connects to the hub: ssh, srun or kubectl exec starts gmemtop at the
// far end, and its standard input and output are the connection. The far end begins with a line that says
// which hub it is, logs in with the keys that it has there, and passes everything on. So keys stay where they
// are, except the operator's, which signs orders.

// relayed begins the far end's first line. What a shell's start-up files print before it is skipped.
const relayed = "gmemtop-relay 1 "

// mostBanner is how much may come before that line, and mostLine how long it and a line of NATS may be.
const (
	mostBanner = 64 << 10
	mostLine   = 64 << 10
)

// errNoRelay means that a program did not lead to a hub.
var errNoRelay = errors.New("it does not lead to a hub")

// lastLine returns the last line of what a program said, for an error.
func lastLine(said string) string {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "gmemtop: ")
}

// Tunnel is a way to a hub through a program, whose far end is [Relay]. Its methods are safe for concurrent
// use.
type Tunnel struct {
	first, again, env []string

	mu    sync.Mutex
	join  Join
	ready *pipe // started, and not used yet
}

// pipe is a program that leads to a hub.
type pipe struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *lastWords
}

// lastWords keeps the end of what a program says.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

const mostWords = 4 << 10

func (l *lastWords) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(len(l.text)-mostWords, 0):]
	return len(b), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// OpenTunnel starts a program and waits for the hub at its far end. When the connection is lost, again is
// started instead, which must ask nothing. env is added to the environment of both.
func OpenTunnel(ctx context.Context, first, again, env []string) (*Tunnel, error) {
	t := &Tunnel{first: first, again: again, env: env}
	p, join, err := t.start(ctx, first)
	if err != nil {
		return nil, err
	}
	t.ready, t.join = p, join
	return t, nil
}

// Join returns what the far end said about its hub when it was started last.
func (t *Tunnel) Join() Join {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.join
}

// Close ends a program that was started but not used.
func (t *Tunnel) Close() {
	t.mu.Lock()
	p := t.ready
	t.ready = nil
	t.mu.Unlock()
	if p != nil {
		p.end()
	}
}

// start starts a program and reads its first line.
func (t *Tunnel) start(ctx context.Context, argv []string) (*pipe, Join, error) {
	fail := func(err error) (*pipe, Join, error) {
		return nil, Join{}, fmt.Errorf("%s: %w", argv[0], err)
	}
	p := &pipe{cmd: exec.Command(argv[0], argv[1:]...), err: &lastWords{}}
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = append(os.Environ(), t.env...), p.err, dialWait
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return fail(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, Join{}, err
	}
	p.in, p.out = in, bufio.NewReaderSize(out, mostLine)
	stop := context.AfterFunc(ctx, func() { _ = p.cmd.Process.Kill() })
	join, err := readRelayed(p.out)
	if !stop() || err != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if said := lastLine(p.err.String()); said != "" && ctx.Err() == nil {
			err = fmt.Errorf("%w: %s", errNoRelay, said)
		}
		return fail(errors.Join(err, ctx.Err()))
	}
	return p, join, nil
}

// readRelayed reads up to the far end's first line and returns what it says.
func readRelayed(r *bufio.Reader) (Join, error) {
	for read := 0; read < mostBanner; {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return Join{}, fmt.Errorf("%w: %w", errNoRelay, err)
		}
		read += len(line)
		text, ok := strings.CutPrefix(string(line), relayed)
		if !ok {
			continue
		}
		var j Join
		if err := json.Unmarshal([]byte(text), &j); err != nil || j.Run == "" || j.Version != joinVersion {
			return Join{}, fmt.Errorf("%w that this gmemtop knows: use the same gmemtop at both ends",
				errNoRelay)
		}
		// These are the far end's.
		j.Socket, j.Addresses = "", nil
		return j, nil
	}
	return Join{}, fmt.Errorf("%w, but prints other things", errNoRelay)
}

// dialer connects through a tunnel to the hub with this certificate.
type dialer struct {
	tunnel      *Tunnel
	certificate string
}

// Dial implements nats.CustomDialer. If another hub is at the far end, its program stays ready for whoever
// connects to that hub.
func (d *dialer) Dial(string, string) (net.Conn, error) {
	t := d.tunnel
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ready == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 4*dialWait)
		defer cancel()
		p, join, err := t.start(ctx, t.again)
		if err != nil {
			return nil, err
		}
		t.ready, t.join = p, join
	}
	if t.join.Certificate != d.certificate {
		return nil, fmt.Errorf("%w: another hub has taken its place", ErrNoHub)
	}
	p := t.ready
	t.ready = nil
	return p.conn(), nil
}

// conn makes a connection of a program.
func (p *pipe) conn() net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(p.in, theirs)
		p.end()
	}()
	go func() {
		_, _ = io.Copy(theirs, p.out)
		_ = theirs.Close()
	}()
	return ours
}

// end ends the program. A program whose input has ended should end by itself; otherwise it is stuck.
func (p *pipe) end() {
	_ = p.in.Close()
	late := time.AfterFunc(dialWait, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	_ = p.cmd.Wait()
}
