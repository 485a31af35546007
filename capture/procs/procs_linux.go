package procs

import (
	"os"
	"syscall"

	"github.com/gmemtop/gmemtop/traces/maybe"
)

// owner returns the user that a process runs as, unknown if /proc does not say.
func owner(dir string) maybe.Int {
	info, err := os.Stat(dir)
	if err != nil {
		return maybe.Int{}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return maybe.Known(int64(st.Uid))
	}
	return maybe.Int{}
}
