package inject

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The way home
//
// If this program is killed while it has a thread halted, the kernel lets the thread go on with the registers
// that it has then. They must therefore lead back to what the thread was doing, whatever it is made to do in
// between. A signal handler returns in just that way: its frame on the stack holds all registers and the
// signal mask, and rt_sigreturn loads them. So each system call and function call that a thread makes for us
// returns into rt_sigreturn, with such a frame of the thread's own state. It runs only if nothing halts the
// thread any more: otherwise the thread stops at its entry, or before.
//
//	system call   syscall; ret  ->  mov $15, %rax; syscall  (the C library's own restorer)  ->  frame
//	function      ...; ret      ->  xchg %eax, %ebx; ret    (keeps the result)  ->  restorer  ->  frame
//
// An interrupted system call is repeated by the frame. One with a time limit that the kernel would continue
// (ERESTART_RESTARTBLOCK) returns EINTR instead, which Python repeats with the time that is left.
//
// The frame lies below the red zone of the thread's own stack, since the first system call is the one that
// maps memory. Only the main thread's stack is used, which has room: a small stack of a coroutine ends where
// other memory begins. If any of this is missing, the thread is lent without a way home.
//
// Rejected: a separate process that halts the thread: killing all of this program's processes ends it as
// well.
//
// Sources: arch/x86/kernel/signal_64.c and fpu/signal.c of Linux; sigreturn(2).

// waysHome are the instructions in the target that lead home: addresses, 0 where there are none.
type waysHome struct {
	syscall  uint64 // syscall; ret
	restorer uint64 // mov $15, %rax; syscall
	returns  uint64 // behind that syscall
	exchange uint64 // xchg %eax, %ebx; ret
	stack    mapping
}

// findWaysHome looks for the instructions in the target's code, in the C library first.
func findWaysHome(mem processMemory, mods []module, mappings []mapping) waysHome {
	var w waysHome
	scan := func(m mapping) {
		const most = 4 << 20
		b, err := readBytes(mem, m.start, int(min(m.end-m.start, most)))
		if err != nil {
			return
		}
		find := func(at *uint64, code ...byte) int {
			if i := bytes.Index(b, code); *at == 0 && i >= 0 {
				*at = m.start + uint64(i)
				return len(code)
			}
			return 0
		}
		find(&w.syscall, 0x0f, 0x05, 0xc3)
		find(&w.exchange, 0x93, 0xc3)
		for _, code := range [][]byte{
			{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, // with %rax
			{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},             // with %eax
		} {
			if n := find(&w.restorer, code...); n > 0 {
				w.returns = w.restorer + uint64(n)
			}
		}
	}
	for _, m := range mods {
		if n := m.name(); len(n) > 4 && (n[:5] == "libc." || n[:5] == "libc-") {
			for _, t := range m.text {
				scan(t)
			}
		}
	}
	for _, m := range mappings {
		switch {
		case m.path == "[stack]":
			w.stack = m
		case m.executable() && m.path != "[vsyscall]" && !w.complete():
			scan(m)
		}
	}
	return w
}

func (w *waysHome) complete() bool { return w.syscall != 0 && w.restorer != 0 && w.exchange != 0 }

const (
	redZone     = 128
	contextSize = 304             // what rt_sigreturn loads
	frameSize   = 8 + contextSize // and the restorer's address
	stackSpare  = 64 << 10        // bytes that must be left of the stack

	xsaveMagic1, xsaveMagic2 = 0x46505853, 0x46505845 // around the registers in a frame
	xsaveSoftware            = 464                    // where the kernel's description of them is
	xsaveHeader              = 512
	amxTiles                 = 1 << 18
	amxBytes                 = 8 << 10
)

// home is a thread's way home.
type home struct {
	ways   waysHome
	ready  bool
	frame  uint64 // its address on the thread's stack
	saved  []byte // what rt_sigreturn loads
	strict bool   // a system call must not be skipped: a seccomp filter would see that
}

// leadHome writes the frame below the thread's stack, and sends the thread there if it is released. If that
// is not possible the thread stays as it is.
func (t *tracee) leadHome() error {
	w, sp := &t.home.ways, t.saved.Rsp
	if !w.complete() || sp <= w.stack.start+stackSpare || sp > w.stack.end {
		return nil
	}
	if err := t.saveVectors(); err != nil {
		return err
	}
	vectors := vectorsFrame(t.xstate)
	fp := (sp - redZone - uint64(len(vectors))) &^ 63
	frame := (fp - frameSize) &^ 15
	t.home.saved = signalContext(t.saved, t.mask, fp)
	b := binary.LittleEndian.AppendUint64(nil, w.restorer)
	b = append(b, t.home.saved...)
	if _, err := t.mem.WriteAt(vectors, int64(fp)); err != nil {
		return nil
	}
	if _, err := t.mem.WriteAt(b, int64(frame)); err != nil {
		return nil
	}
	t.home.frame, t.home.ready = frame, true
	return t.park()
}

// park sends the thread home if it is released now.
func (t *tracee) park() error {
	r := t.saved
	r.Orig_rax, r.Rip, r.Rsp = noSyscall, t.home.ways.syscall+2, t.home.frame
	return t.setRegs(&r)
}

// vectorsFrame returns the floating-point and vector registers, as ptrace gives them, as a signal's frame
// holds them.
func vectorsFrame(xstate []byte) []byte {
	size, le := len(xstate), binary.LittleEndian
	if size < xsaveHeader+64 {
		return xstate
	}
	features, used := le.Uint64(xstate[xsaveSoftware:]), le.Uint64(xstate[xsaveHeader:])
	if features&amxTiles != 0 && used&amxTiles == 0 && size > amxBytes { // not in the frames of most programs
		features, size = features&^amxTiles, size-amxBytes
	}
	frame := append(bytes.Clone(xstate[:size]), 0, 0, 0, 0)
	le.PutUint32(frame[size:], xsaveMagic2)
	sw := frame[xsaveSoftware:]
	le.PutUint32(sw, xsaveMagic1)
	le.PutUint32(sw[4:], uint32(size+4))
	le.PutUint64(sw[8:], features)
	le.PutUint32(sw[16:], uint32(size))
	return frame
}

// signalContext is the ucontext that rt_sigreturn loads: the registers r of a halted thread and its signal
// mask, with the vector registers at fp.
func signalContext(r unix.PtraceRegs, mask, fp uint64) []byte {
	// -ERESTARTSYS, -ERESTARTNOINTR, -ERESTARTNOHAND, -ERESTART_RESTARTBLOCK
	const restart, noIntr, noHand, block = ^uint64(511), ^uint64(512), ^uint64(513), ^uint64(515)
	const eintr = ^uint64(unix.EINTR - 1) // -EINTR
	if r.Orig_rax != noSyscall {
		switch r.Rax {
		case restart, noIntr, noHand:
			r.Rax, r.Rip = r.Orig_rax, r.Rip-2
		case block:
			r.Rax = eintr
		}
	}
	c := make([]byte, 0, contextSize)
	put := func(values ...uint64) {
		for _, v := range values {
			c = binary.LittleEndian.AppendUint64(c, v)
		}
	}
	const flags = 0x1 | 0x2 | 0x4 // vector registers; the stack segment is valid, and to be loaded as it is
	put(flags, 0)
	// The alternate signal stack: flags that do not exist leave it as it is.
	put(0, 0x7fffffff, 0)
	put(r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15)
	put(r.Rdi, r.Rsi, r.Rbp, r.Rbx, r.Rdx, r.Rax, r.Rcx, r.Rsp, r.Rip, r.Eflags)
	put(r.Cs&0xffff|r.Ss&0xffff<<48, 0, 0, 0, 0, fp)
	put(make([]uint64, 8)...)
	put(mask)
	return c
}
