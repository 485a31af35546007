//go:build unix

package managers_test

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the processor time that this process has used, its garbage collector included: what planning
// costs on a machine that does other things too.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
