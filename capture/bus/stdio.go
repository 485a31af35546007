//go:build !nobus

package bus

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"
)

// unixDialer connects to a Unix socket, whatever address is asked for.
type unixDialer string

func (d unixDialer) Dial(string, string) (net.Conn, error) {
	return net.DialTimeout("unix", string(d), dialWait)
}

// program connects through the standard input and output of a program that it starts, such as ssh.
type program struct{ argv []string }

func (p *program) Dial(string, string) (net.Conn, error) {
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.argv[0], err)
	}
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(in, theirs)
		_ = in.Close()
		// A program whose input has ended ends, or is stuck.
		late := time.AfterFunc(dialWait, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
	}()
	go func() {
		_, _ = io.Copy(theirs, out)
		_ = theirs.Close()
	}()
	return ours, nil
}

// Pass connects a hub's socket with in and out until either side ends. It is the far end of a program named
// by Access.Command.
func Pass(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoHub, err)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	ended := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(c, in)
		ended <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(out, c)
		ended <- struct{}{}
	}()
	<-ended
	return nil
}
