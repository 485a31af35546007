package inject

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// schedule reads a thread's processor time: an open file, negative if the kernel does not report it.
type schedule int

func scheduleOf(thread string) schedule {
	fd, err := unix.Open("/proc/"+thread+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return schedule(fd)
}

// read returns how long the thread has run, and how long it was ready to run but had no processor; 0 if the
// kernel does not report it.
func (s schedule) read() (ran, waited time.Duration) {
	var b [128]byte
	n, err := unix.Pread(int(s), b[:], 0)
	if err != nil {
		return 0, 0
	}
	fields := bytes.Fields(b[:n])
	if len(fields) < 2 {
		return 0, 0
	}
	r, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	w, _ := strconv.ParseInt(string(fields[1]), 10, 64)
	return time.Duration(r), time.Duration(w)
}

func (s schedule) close() {
	if s >= 0 {
		_ = unix.Close(int(s))
	}
}
