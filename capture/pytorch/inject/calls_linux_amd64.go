package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls and function calls that a halted thread makes for us.

// gadget returns the address of a syscall instruction in the target's code: in the C library, or anywhere
// else. Two bytes in the middle of another instruction will do.
func gadget(mem io.ReaderAt, mods []module, mappings []mapping) (uint64, error) {
	scan := func(m mapping) uint64 {
		const chunk = 1 << 20
		n := min(m.end-m.start, chunk)
		b, err := readBytes(mem, m.start, int(n))
		if err != nil {
			return 0
		}
		if i := bytes.Index(b, []byte{0x0f, 0x05}); i >= 0 {
			return m.start + uint64(i)
		}
		return 0
	}
	for _, m := range mods {
		if n := m.name(); len(n) > 4 && (n[:5] == "libc." || n[:5] == "libc-") {
			for _, t := range m.text {
				if a := scan(t); a != 0 {
					return a, nil
				}
			}
		}
	}
	for _, m := range mappings {
		if m.executable() && m.path != "[vsyscall]" {
			if a := scan(m); a != 0 {
				return a, nil
			}
		}
	}
	return 0, errors.New("no syscall instruction in its code")
}

// regs reads the registers as they are now.
func (t *tracee) regs() (unix.PtraceRegs, error) {
	var r unix.PtraceRegs
	if err := ptraceAt(unix.PTRACE_GETREGS, t.pid, 0, unsafe.Pointer(&r)); err != nil {
		return r, fmt.Errorf("ptrace: registers: %w", err)
	}
	return r, nil
}

// syscall makes the thread do a system call and returns its result. It steps over the one instruction, which
// ends within the kernel's signal path. If the trap would have side effects (SIGTRAP is ignored), it stops at
// the call's entry and return instead.
func (t *tracee) syscall(number uint64, args ...uint64) (uint64, error) {
	if err := t.begin(); err != nil {
		return 0, err
	}
	r, at, request := t.saved, t.gadget, unix.PTRACE_SINGLESTEP
	if t.trapIgnored {
		request = unix.PTRACE_SYSCALL
	}
	if t.home.ready { // a trap that nobody catches would end the process
		at, request, r.Rsp = t.home.ways.syscall, unix.PTRACE_SYSCALL, t.home.frame
	}
	r.Orig_rax, r.Rax, r.Rip = noSyscall, number, at
	for i, to := range [...]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.R10, &r.R8, &r.R9} {
		if i < len(args) {
			*to = args[i]
		}
	}
	if err := t.setRegs(&r); err != nil {
		return 0, err
	}
	// After a call of ours, the first stop may still belong to that call.
	for range 4 {
		if err := t.step(request); err != nil {
			return 0, err
		}
		var err error
		if r, err = t.regs(); err != nil {
			return 0, err
		}
		if r.Rip == at+2 && (request == unix.PTRACE_SINGLESTEP || r.Rax != enosys) {
			break
		}
	}
	if r.Rip != at+2 {
		return 0, fmt.Errorf("a remote system call returned to %#x", r.Rip)
	}
	if r.Rax >= ^uint64(4094) {
		return 0, unix.Errno(-r.Rax)
	}
	return r.Rax, nil
}

// call makes the thread call a function on our stack, with the syscall instruction as its return address: the
// function's result is then the number of a system call that is about to be made. PTRACE_SYSEMU stops there,
// and skips it, before a seccomp filter is asked. A system call of the function itself (it waits for a lock)
// is also skipped, and then repeated.
func (t *tracee) call(function uint64, args ...uint64) (uint64, error) {
	if t.stack == 0 {
		return 0, errors.New("no stack for a remote call")
	}
	if err := t.begin(); err != nil {
		return 0, err
	}
	if err := t.saveVectors(); err != nil {
		return 0, err
	}
	if t.home.ready {
		return t.callHome(function, args)
	}
	sp := t.stack&^15 - 8
	var ret [8]byte
	binary.LittleEndian.PutUint64(ret[:], t.gadget)
	if _, err := t.mem.WriteAt(ret[:], int64(sp)); err != nil {
		return 0, err
	}
	if err := t.enter(function, sp, args); err != nil {
		return 0, err
	}
	for {
		if err := t.step(unix.PTRACE_SYSEMU); err != nil {
			return 0, err
		}
		r, err := t.regs()
		if err != nil {
			return 0, err
		}
		if r.Rip == t.gadget+2 && r.Rsp == sp+8 {
			return r.Orig_rax, nil
		}
		r.Rip, r.Rax, r.Orig_rax = r.Rip-2, r.Orig_rax, noSyscall
		if err := t.setRegs(&r); err != nil {
			return 0, err
		}
		for range 3 { // the return of the skipped one, the entry, the return
			if err := t.step(unix.PTRACE_SYSCALL); err != nil {
				return 0, err
			}
		}
	}
}

// enter makes the thread begin a function, with its return address at sp.
func (t *tracee) enter(function, sp uint64, args []uint64) error {
	r := t.saved
	r.Orig_rax, r.Rax, r.Rip, r.Rsp, r.Rbp = noSyscall, 0, function, sp, 0
	r.Eflags &^= direction
	for i, to := range [...]*uint64{&r.Rdi, &r.Rsi, &r.Rdx, &r.Rcx, &r.R8, &r.R9} {
		if i < len(args) {
			*to = args[i]
		}
	}
	return t.setRegs(&r)
}

// callHome makes the thread call a function that returns into rt_sigreturn, at whose entry the thread stops
// with the function's result. System calls of the function itself run normally.
func (t *tracee) callHome(function uint64, args []uint64) (uint64, error) {
	w := &t.home.ways
	sp := (t.stack-frameSize-64)&^15 - 8
	b := binary.LittleEndian.AppendUint64(nil, w.exchange)
	b = binary.LittleEndian.AppendUint64(b, w.restorer)
	if _, err := t.mem.WriteAt(append(b, t.home.saved...), int64(sp)); err != nil {
		return 0, err
	}
	if err := t.enter(function, sp, args); err != nil {
		return 0, err
	}
	for {
		if err := t.step(unix.PTRACE_SYSCALL); err != nil {
			return 0, err
		}
		r, err := t.regs()
		if err != nil {
			return 0, err
		}
		if r.Rip != w.returns || r.Orig_rax != unix.SYS_RT_SIGRETURN {
			continue
		}
		result := r.Rbx & 0xffffffff
		if !t.home.strict {
			return result, nil // the next change of registers cancels it
		}
		if err := t.step(unix.PTRACE_SYSCALL); err != nil {
			return 0, err
		}
		return result, errors.Join(t.park(), t.setMask(^uint64(synchronous)))
	}
}

// saveVectors saves the floating-point and vector registers, which any function may use: the thread may have
// been interrupted in the middle of arithmetic.
func (t *tracee) saveVectors() error {
	if t.xstate != nil {
		return nil
	}
	b := t.vectors
	v := unix.Iovec{Base: &b[0], Len: xstateMax}
	if err := ptraceAt(unix.PTRACE_GETREGSET, t.pid, ntXState, unsafe.Pointer(&v)); err != nil {
		return fmt.Errorf("ptrace: vector registers: %w", err)
	}
	t.xstate = b[:v.Len]
	return nil
}
