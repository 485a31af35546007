package tui

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the processor time that this thread has used: the cost of a frame on a machine that does
// other things too.
func threadTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
