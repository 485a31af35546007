// Package inject makes a running, unmodified CPython process execute a piece of Python source on its main
// thread, and leaves nothing behind. It does not know what the source does.
//
// # The problem
//
// A training job is worth days, so looking into it must not change it: as few instructions as possible run in
// the target, none of its code is patched, no library is loaded, no file is written if that can be avoided,
// the target is halted for a millisecond or two, every register, floating-point register, signal and
// interrupted system call is restored, and each refusal is known before the target is touched.
//
// # The solution
//
// CPython has a queue of calls that its main thread makes between two bytecodes (Py_AddPendingCall).
// PyRun_SimpleString happens to have the signature of such a call, so a debugger needs no code of its own in
// the target: it stops the main thread, maps memory that holds the source, makes the thread itself call
// Py_AddPendingCall three times, and lets it go:
//
//	sem_post(begun)             the queue has been reached
//	PyRun_SimpleString(text)    the source, wrapped so that it neither prints nor fails
//	sem_post(done)              nothing reads the memory any more
//
// The two semaphores are in the mapped memory, where they can be read from outside while the target runs.
// When done has been posted, a second stop unmaps the memory. The source is in that memory: there is no file,
// so neither mount namespaces nor file permissions matter. MADV_WIPEONFORK makes a child forked meanwhile
// find an empty text.
//
// System calls are made at a syscall instruction that the target's code already has. Functions return into
// a system call, at whose entry the thread stops: no signal is involved, so that handlers, faulthandler and
// ignored or blocked signals make no difference, and a seccomp filter sees nothing unusual. Functions run on
// a stack in the mapped memory, not on the main thread's. Control changes hands some ten times in the first
// stop and twice in the second: if all processors are busy, the target is halted for as long as it waits for
// one. Stop.Starved counts that time.
//
// Symbols are looked up in the target's memory, in the hash tables that its own dynamic linker uses, so
// deleted files, chroots, containers and static interpreters make no difference.
//
// # What could go wrong, and the precautions
//
//   - An interrupted system call (sleep, poll, futex): the kernel's restart bookkeeping must be intact when
//     the thread goes on. The last stop before detaching is inside the kernel's signal path with the saved
//     registers in place, so that the kernel restarts the call itself, with the remaining time. The few calls
//     that signal(7) lists as never restarted after a stop (epoll_wait is one) return EINTR, as under any
//     debugger; Python repeats them.
//   - Floating-point and vector registers, which a called function may use freely, are saved and restored.
//   - A signal that arrives during the calls: all but the synchronous ones are blocked until the calls are
//     done (a handler in between would turn the restarted call into EINTR), and are delivered then.
//   - The queue's own lock: up to 3.12 it is a semaphore, and a call that waits for it can be abandoned. From
//     3.13 on, a thread that finds the lock taken releases the interpreter lock in the middle of whatever it
//     was doing. So the lock is found in _PyRuntime, and calls are made only while it is free; if it cannot
//     be found, only while the thread waits in a system call.
//   - A restartable sequence (rseq): the thread is released and stopped again.
//   - An interpreter that is still starting: Py_IsInitialized is called first.
//   - The thread is in a long C call: the source waits in the queue. The caller is notified and may give up:
//     the text is then emptied. The memory, some KiB, stays mapped for good, since the calls are still
//     queued; to unmap it later would take another stop of a process that nobody watches any more.
//   - A signal handler of the program runs during the source, and raises: the exception belongs to the
//     program, and is raised there.
//   - This program ends while the target is halted: a closed terminal, Ctrl-C and the end of main wait for
//     the release (Quiesce). If it is killed, the kernel lets the target go on from where it is, and each
//     remote call returns to what the thread was doing (home_linux_amd64.go).
//   - The target executes another program in between: we compare a random token in the memory before we unmap
//     anything.
//
// # Rejected
//
// Breakpoints on malloc and a helper library (memray, debugpy) patch code under other threads and need a file
// that the target can load. Returning to address zero and catching the fault is simpler, but resets the
// disposition of SIGSEGV if that is ignored or blocked. PEP 768 (CPython 3.14) needs no stop at all, but
// needs a file that the target can read; it comes second. gdb comes last: it takes seconds and stops all
// threads. A small program in executable memory would need fewer stops, but memory that is both written and
// executed is forbidden in hardened systems.
//
// Sources: ptrace(2); PEP 768 and Doc/howto/remote_debugging.rst of CPython; Python/ceval_gil.c of CPython
// 3.8 to 3.14.
package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// Inject makes process pid run b.Source on its main thread, by the first mechanism that works, and returns
// when it has run and nothing is left. It waits for a busy interpreter until ctx is done. Errors are *Error:
// ErrGone, ErrReused, ErrNotPython, ErrNotPermitted, ErrUnsupported, ErrBusy, errPending (ctx was done
// first), errRaised (the source raised).
//
// If pid is a child of this very process, no other goroutine may be waiting for it (os.Process.Wait)
// meanwhile: wait(2) hands a traced child's stops to any thread of the tracer. Such a caller can wait for the
// child's end with a pidfd and reap it afterwards.
func Inject(ctx context.Context, pid int, b Bootstrap) (Report, error) {
	r := Report{PID: pid}
	if b.Name == "" {
		b.Name = "gmemtop"
	}
	if err := b.validate(); err != nil {
		return r, &Error{Kind: errFailed, PID: pid, Message: err.Error(), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return r, &Error{Kind: errPending, PID: pid, Message: "cancelled before anything was done", Err: err}
	}
	t, f := examine(host(), pid)
	r.Python = f.Python
	if err := f.Err(); err != nil {
		return r, err
	}
	if b.Started != 0 && b.Started != f.Started {
		return r, reused(pid)
	}
	wanted := b.Mechanisms
	if wanted == nil {
		wanted = mechanisms
	}
	var last, tried *Error
	for _, m := range wanted {
		i := slices.IndexFunc(f.Ways, func(w Way) bool { return w.Mechanism == m })
		if i < 0 {
			return r, &Error{Kind: errFailed, PID: pid, Message: fmt.Sprintf("unknown mechanism %q", m)}
		}
		if w := f.Ways[i]; w.Obstacle != nil {
			last = w.Obstacle
			r.Passed = append(r.Passed, last)
			continue
		}
		r.Mechanism = m
		err := carryOut(ctx, m, t, b, &r)
		if err == nil {
			return r, nil
		}
		if !errors.As(err, &last) {
			last = &Error{Kind: errFailed, PID: pid, Message: err.Error(), Err: err}
		}
		// Another attempt is allowed only if this one left the target unchanged.
		if !last.retry || r.Left > 0 || ctx.Err() != nil {
			return r, last
		}
		r.Passed = append(r.Passed, last)
		tried = cmp.Or(tried, last)
	}
	if last.Kind == ErrUnsupported {
		last = cmp.Or(tried, last) // that a fallback is missing does not say what went wrong
	}
	return r, last
}
