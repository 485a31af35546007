package inject

import (
	"io"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// host is the machine that this runs on.
func host() system {
	return system{
		proc:   "/proc",
		access: hostAccess,
		memory: func(pid int) io.ReaderAt { return processMemory(pid) },
		alive:  func(pid int) error { return unix.Kill(pid, 0) },
		gdb:    func() error { _, err := exec.LookPath("gdb"); return err },
		arch:   runtime.GOARCH,
	}
}
