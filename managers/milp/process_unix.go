//go:build unix

package milp

import (
	"os/exec"
	"syscall"
)

// killAsGroup makes the end of the command's context kill the processes it started too.
func killAsGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
