package inject

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// schedule tells what a thread has had of the processors: an open file, negative where the kernel does not
// tell.
type schedule int

func scheduleOf(thread string) schedule {
	fd, err := unix.Open("/proc/"+thread+"/schedstat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return schedule(fd)
}

// read returns for how long the thread has run, and for how long it could have run and had no processor; 0 if
// the kernel does not tell.
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
