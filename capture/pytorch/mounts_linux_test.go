package pytorch_test

import (
	"os/exec"
	"syscall"
)

// ownMounts gives a command its own mount namespace.
func ownMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
}
