package inject

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// processMemory is the memory of a running process; offsets are addresses. It is read and written while the
// process runs.
type processMemory int

func (m processMemory) ReadAt(b []byte, addr int64) (int, error) {
	return m.move("read", unix.ProcessVMReadv, b, addr)
}

func (m processMemory) WriteAt(b []byte, addr int64) (int, error) {
	return m.move("write", unix.ProcessVMWritev, b, addr)
}

// move copies all of b from or to an address, with one of the kernel's two calls for that.
func (m processMemory) move(what string, call func(pid int, local []unix.Iovec, remote []unix.RemoteIovec,
	flags uint) (int, error), b []byte, addr int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := call(int(m), []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}},
		[]unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil {
		return 0, fmt.Errorf("%s memory of process %d: %w", what, int(m), err)
	}
	if n < len(b) {
		return n, fmt.Errorf("%s memory of process %d: %d of %d bytes at %#x", what, int(m), n, len(b), addr)
	}
	return n, nil
}

// hostAccess asks the kernel whether this process may trace another, by an empty read of its memory.
func hostAccess(pid int, addr uint64) error {
	var b [1]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 1}},
		[]unix.RemoteIovec{{Base: uintptr(addr), Len: 1}}, 0)
	return err
}
