//go:build linux || darwin

package bus

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileSystem returns the kernel's number for the file system that a folder is on.
func fileSystem(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Type), nil
}

// freeBytes returns how much a folder's file system has room for.
func freeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(min(s.Bavail, 1<<40)) * int64(s.Bsize), nil
}

// ownedByUs reports whether a file belongs to the user who runs this program.
func ownedByUs(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
