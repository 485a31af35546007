//go:build !linux || (!amd64 && !arm64)

package aside

import "os/exec"

type watch struct{}

// Start starts a command as it is: the kernel cannot ask about its calls.
func Start(cmd *exec.Cmd, _ Options) (*Guard, error) { return &Guard{}, cmd.Start() }

// End has nothing to end.
func (g *Guard) End() (files, folders int) { return 0, 0 }
