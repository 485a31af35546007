package procs

import (
	"os"
	"syscall"
)

// owner returns the user that a process runs as, -1 if unknown.
func owner(dir string) int {
	info, err := os.Stat(dir)
	if err != nil {
		return -1
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
