package procs

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// As the entry point of a container this program is process 1. It then inherits every process whose parent
// has ended and must reap it, or the container runs out of process numbers one day. A process that gmemtop
// itself started is reaped within milliseconds, so a child that stays dead for longer is an orphan.

// unclaimed is how long a child stays dead before it counts as an orphan.
const unclaimed = time.Second

// ReapOrphans reaps orphans until ctx is done if this program is process 1, and does nothing otherwise. It
// never reaps job.
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

// reapDead reaps the children that were dead before and still are, and returns those that are newly dead.
func reapDead(job int, before map[int]bool) map[int]bool {
	now := map[int]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		s, err := ReadStat(dir)
		pid, notPID := strconv.Atoi(filepath.Base(dir))
		if err != nil || notPID != nil || pid == job || s.State != 'Z' || s.Parent != 1 {
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
