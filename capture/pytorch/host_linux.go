package pytorch

import (
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// peer returns the process at the other end of a Unix socket, according to the kernel; 0 if unknown.
func peer(conn net.Conn) int {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if c, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(c.Pid)
		}
	})
	return pid
}

// alive reports whether process pid runs and, unless started is 0, started then.
func alive(pid int, started int64) bool {
	s, err := statOf(pid)
	return err == nil && !s.Ended() && (started == 0 || s.Started == started)
}

// pidSpace names this program's PID namespace.
func pidSpace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "-"
	}
	return name
}

func statOf(pid int) (procs.Stat, error) { return procs.ReadStat(fmt.Sprintf("/proc/%d", pid)) }

// everyone returns all processes that have not ended, by number.
func everyone() map[int]procs.Stat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := make(map[int]procs.Stat, len(entries))
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			if s, err := statOf(n); err == nil && !s.Ended() {
				all[n] = s
			}
		}
	}
	return all
}

// environOf returns the environment that a process was started with, as "name=value"; ok is false if it
// cannot be read.
func environOf(pid int) (env []string, ok bool) {
	env, err := procs.ReadEnviron(fmt.Sprintf("/proc/%d", pid))
	return env, err == nil
}

// awaitEnd waits up to limit until process pid has ended, and reports whether it has. A start time other than
// 0 distinguishes the process from a later one with the same number. A child is not reaped: while wait(2)
// waits for a child, nothing can attach to it.
func awaitEnd(pid int, started int64, limit time.Duration) bool {
	late := time.Now().Add(limit)
	fd, err := unix.PidfdOpen(pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	for alive(pid, started) { // checked after PidfdOpen: by then the number may be another process's
		left := time.Until(late)
		switch {
		case left <= 0:
			return false
		case err != nil: // the kernel is older than 5.3 and only notifies the parent
			time.Sleep(20 * time.Millisecond)
		default:
			wait := int(min(left/time.Millisecond+1, math.MaxInt32))
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait)
		}
	}
	return true
}

// userOf returns the user and group with which process pid opens files, this process's if unknown.
func userOf(pid int) (uid, gid int) {
	uid, gid = os.Getuid(), os.Getgid()
	if f := statusOf(pid, "Uid:"); len(f) == 4 { // real, effective, saved, of the file system
		uid, _ = strconv.Atoi(f[3])
	}
	if f := statusOf(pid, "Gid:"); len(f) == 4 {
		gid, _ = strconv.Atoi(f[3])
	}
	return uid, gid
}

// innerPID returns process pid's number in its own PID namespace, which differs in a container.
func innerPID(pid int) int {
	if f := statusOf(pid, "NSpid:"); len(f) > 0 {
		if n, err := strconv.Atoi(f[len(f)-1]); err == nil {
			return n
		}
	}
	return pid
}

// statusOf returns the values of a line of /proc/PID/status, nil if there is none.
func statusOf(pid int, name string) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

func rootOf(pid int) string { return fmt.Sprintf("/proc/%d/root", pid) }

// sharesFiles reports whether process pid sees the same files under the same names as this one, true if
// unknown.
func sharesFiles(pid int) bool {
	ours, err := os.Readlink("/proc/self/ns/mnt")
	theirs, unread := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err == nil && unread == nil && ours != theirs {
		return false
	}
	a, err := os.Stat("/")
	b, unread := os.Stat(rootOf(pid) + "/")
	return err != nil || unread != nil || os.SameFile(a, b)
}

// asUser calls fn with another user's file permissions, on a thread that ends with it; other threads keep
// theirs.
func asUser(uid, gid int, fn func() error) error {
	if uid == os.Getuid() {
		return fn()
	}
	done, begun := make(chan error, 1), make(chan struct{})
	var call func()
	call = func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			go call() // the first thread of a program cannot end: another one must do it
			<-begun
			runtime.UnlockOSThread()
			return
		}
		close(begun)
		// The order matters: a thread that has given up its user may not change its groups.
		_, _, _ = unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)
		_, _ = unix.SetfsgidRetGid(gid)
		_, _ = unix.SetfsuidRetUid(uid)
		if now, err := unix.SetfsuidRetUid(-1); err != nil || now != uid {
			done <- fmt.Errorf("acting as user %d: %w", uid, os.ErrPermission)
			return
		}
		done <- fn()
	}
	go call()
	return <-done
}

func owner(info os.FileInfo) int {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid)
	}
	return -1
}

// allocate reserves n bytes of disk for a file from offset from on, without changing the file's size.
func allocate(f *os.File, from, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, from, n)
}

// release frees the disk space of a file's first n bytes, which read as zeros from then on.
func release(f *os.File, n int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, n)
}

// readWithRing reads from a connection. It returns the ring that came with the bytes, nil for none, and
// closes whatever else came with them.
func readWithRing(conn *net.UnixConn, p []byte) (n int, ring *os.File, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	n, got, _, _, err := conn.ReadMsgUnix(p, oob)
	messages, _ := unix.ParseSocketControlMessage(oob[:got])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			if ring == nil && inMemory(fd) {
				ring = os.NewFile(uintptr(fd), "ring")
				continue
			}
			_ = unix.Close(fd)
		}
	}
	return n, ring, err
}

// inMemory reports whether a descriptor is of a small file in memory, which can be read without waiting: only
// these have seals.
func inMemory(fd int) bool {
	var s unix.Stat_t
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return err == nil && unix.Fstat(fd, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFREG &&
		s.Size <= maxRing
}
