//go:build unix

package output

import (
	"os"
	"syscall"
)

// umask returns the process's umask, which can only be read by setting it: nothing else creates files
// meanwhile that matters.
func umask() os.FileMode {
	m := syscall.Umask(0o22)
	syscall.Umask(m)
	return os.FileMode(m)
}
