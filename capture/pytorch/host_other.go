//go:build !linux

package pytorch

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// peer cannot identify the other end here: we believe what the agent says.
func peer(net.Conn) int { return 0 }

// alive reports whether process pid runs; when it started is not known here.
func alive(pid int, _ int64) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}

// pidSpace is one here.
func pidSpace() string { return "-" }

// everyone, statOf and environOf are for attaching to processes that the environment does not reach, on Linux
// only.
func everyone() map[int]procs.Stat   { return nil }
func statOf(int) (procs.Stat, error) { return procs.Stat{}, errors.ErrUnsupported }
func environOf(int) ([]string, bool) { return nil, false }

// awaitEnd waits until process pid has ended, but not longer than limit, and reports whether it has. It does
// not wait forever: that is for commands started here, and nothing attaches to those.
func awaitEnd(pid int, started int64, limit time.Duration) bool {
	for late := time.Now().Add(limit); limit < forever && alive(pid, started); {
		if time.Now().After(late) {
			return false
		}
		time.Sleep(20 * time.Millisecond) // only the parent is notified of a process's end
	}
	return true
}

// Another user's files and another root directory are not reached here.
func userOf(int) (uid, gid int)              { return os.Getuid(), os.Getgid() }
func innerPID(pid int) int                   { return pid }
func rootOf(int) string                      { return "/" }
func sharesFiles(int) bool                   { return true }
func asUser(_, _ int, fn func() error) error { return fn() }

func owner(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// allocate and release reserve disk space, on Linux only.
func allocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
func release(*os.File, int64) error         { return errors.ErrUnsupported }

// readWithRing reads from a connection: agents have rings on Linux only.
func readWithRing(conn *net.UnixConn, p []byte) (int, *os.File, error) {
	n, err := conn.Read(p)
	return n, nil, err
}
