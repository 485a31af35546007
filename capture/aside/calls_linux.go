//go:build amd64 || arm64

package aside

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kind is what a system call does.
type kind int

const (
	opens kind = iota
	opensHow
	creates
	removes
	renames
	makesFolder
	makesLink
	truncates
	changes // permissions or times
	connects
	sends
	sendsMessage
	sendsMessages
)

// call says where a system call has its arguments.
type call struct {
	kind kind
	// at says that the argument before each path is the folder that it is relative to.
	at              bool
	path, to, flags int
}

var calls = map[int]call{
	unix.SYS_OPENAT:    {kind: opens, at: true, path: 1, flags: 2},
	unix.SYS_OPENAT2:   {kind: opensHow, at: true, path: 1, flags: 2},
	unix.SYS_UNLINKAT:  {kind: removes, at: true, path: 1},
	unix.SYS_RENAMEAT:  {kind: renames, at: true, path: 1, to: 3},
	unix.SYS_RENAMEAT2: {kind: renames, at: true, path: 1, to: 3},
	unix.SYS_MKDIRAT:   {kind: makesFolder, at: true, path: 1},
	unix.SYS_LINKAT:    {kind: makesLink, at: true, path: 3},
	unix.SYS_SYMLINKAT: {kind: makesLink, at: true, path: 2},
	unix.SYS_TRUNCATE:  {kind: truncates, path: 0},
	unix.SYS_FCHMODAT:  {kind: changes, at: true, path: 1},
	unix.SYS_UTIMENSAT: {kind: changes, at: true, path: 1},
	unix.SYS_CONNECT:   {kind: connects},
	unix.SYS_SENDTO:    {kind: sends},
	unix.SYS_SENDMSG:   {kind: sendsMessage},
	unix.SYS_SENDMMSG:  {kind: sendsMessages},
}

func init() { maps.Copy(calls, olderCalls) }

// writes are the flags of opening that may change or make a file.
const writes = unix.O_WRONLY | unix.O_RDWR | unix.O_CREAT | unix.O_TRUNC

// filter is the program that decides in the kernel which calls we are asked about. It cannot read memory, so
// it cannot tell paths and addresses apart.
func filter() []unix.SockFilter {
	const number, architecture, arguments = 0, 4, 16 // in struct seccomp_data
	load := func(at int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(at)}
	}
	// without goes on if the comparison holds, and skips n instructions if not
	without := func(op uint16, k, n int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: uint32(k), Jf: uint8(n)}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	ask, allow := end(unix.SECCOMP_RET_USER_NOTIF), end(unix.SECCOMP_RET_ALLOW)
	program := []unix.SockFilter{load(architecture), without(unix.BPF_JEQ, arch, 1), load(number),
		without(unix.BPF_JGE, 1<<30, 1), allow} // another architecture's calls, or numbers of x32
	for _, nr := range slices.Sorted(maps.Keys(calls)) {
		switch c := calls[nr]; c.kind {
		case opens:
			program = append(program, without(unix.BPF_JEQ, nr, 4), load(arguments+8*c.flags),
				without(unix.BPF_JSET, writes, 1), ask, allow)
		case sends: // to an address
			program = append(program, without(unix.BPF_JEQ, nr, 7), load(arguments+8*4),
				without(unix.BPF_JGT, 0, 1), ask, load(arguments+8*4+4), without(unix.BPF_JGT, 0, 1), ask,
				allow)
		default:
			program = append(program, without(unix.BPF_JEQ, nr, 1), ask)
		}
	}
	// io_uring opens files and sends data without the calls that we are asked about. Programs fall back to
	// those calls where the kernel lacks it.
	program = append(program, without(unix.BPF_JEQ, unix.SYS_IO_URING_SETUP, 1),
		end(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	return append(program, allow)
}

// install makes the kernel ask us about calls of the current thread, and of the processes that it starts.
// Nothing can undo that.
func install() (listener int, err error) {
	program := filter()
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	try := func(flags uintptr) unix.Errno {
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
			flags|unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&p)))
		listener = int(fd)
		return errno
	}
	errno := try(unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if errno == unix.EACCES { // without privileges: then programs may not gain any, such as sudo
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return -1, err
		}
		errno = try(unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	}
	if errno == unix.EINVAL { // Linux before 5.19
		errno = try(0)
	}
	if errno != 0 {
		return -1, fmt.Errorf("a seccomp filter: %w", errno)
	}
	return listener, nil
}
