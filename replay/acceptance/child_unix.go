//go:build unix

package acceptance

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes a process lead its own group, so that a terminal's ctrl-c reaches only us.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks a process's group to end, or kills it.
func signalGroup(p *os.Process, kill bool) {
	s := syscall.SIGTERM
	if kill {
		s = syscall.SIGKILL
	}
	_ = syscall.Kill(-p.Pid, s)
}
