package procs

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// As the entry point of a container this program is process 1, which inherits every process whose parent has
// ended and has to reap it, or the container runs out of process numbers one day. What this program started
// itself is waited for where it was started, within milliseconds; so only what has been dead for longer is
// taken.

// unclaimed is for how long a child is dead before it is taken to be nobody's.
const unclaimed = time.Second

// ReapOrphans reaps, until ctx is done, what others left to process 1; elsewhere it does nothing. job is
// never touched.
func ReapOrphans(ctx context.Context, job int) {
	if os.Getpid() != 1 {
		return
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		defer signal.Stop(died)
		seen := map[int]bool{}
		for {
			if len(seen) == 0 {
				select {
				case <-died:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-time.After(unclaimed):
			case <-ctx.Done():
				return
			}
			seen = reapDead(job, seen)
		}
	}()
}

// reapDead reaps the dead children that were seen dead before, and returns those that were not.
func reapDead(job int, before map[int]bool) map[int]bool {
	now := map[int]bool{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		at := bytes.LastIndexByte(b, ')') // the name in front of it may hold anything
		if err != nil || at < 0 {
			continue
		}
		fields := bytes.Fields(b[at+1:])
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || pid == job || len(fields) < 2 || string(fields[0]) != "Z" ||
			string(fields[1]) != "1" {
			continue
		}
		if before[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		now[pid] = true
	}
	return now
}
