//go:build unix

package output

import (
	"os"
	"syscall"
)

// umask returns the process's umask. It can only be read by setting it; no file that matters is created
// meanwhile.
func umask() os.FileMode {
	m := syscall.Umask(0o22)
	syscall.Umask(m)
	return os.FileMode(m)
}
