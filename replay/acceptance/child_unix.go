//go:build unix

package acceptance

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup has a process lead a group of its own, so that a terminal's ctrl-c does not reach it before us.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup tells a process's group to end, or ends it.
func signalGroup(p *os.Process, kill bool) {
	s := syscall.SIGTERM
	if kill {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, s)
}
