//go:build !nobus

package bus

import (
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
