package pytorch_test

import (
	"os/exec"
	"syscall"
)

// ownMounts has a command see mounts of its own.
func ownMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
}
