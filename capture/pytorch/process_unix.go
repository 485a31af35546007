package pytorch

import (
	"os"
	"syscall"
)

// detached returns the attributes of a command that survives the end of this terminal.
func detached(on bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: on} }

// exitCode returns a process's exit code as a shell reports it.
func exitCode(s *os.ProcessState) int {
	if s == nil {
		return -1
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
