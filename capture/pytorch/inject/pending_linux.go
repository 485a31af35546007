package inject

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// lent is the main thread of a target, halted and lent for remote calls.
type lent interface {
	syscall(number uint64, args ...uint64) (uint64, error)
	call(function uint64, args ...uint64) (uint64, error)
	inSyscall() bool     // it was waiting in a system call
	useStack(top uint64) // functions may be called on this stack
	patience(never bool) // whether to wait forever for a call that does not return
}

// halter halts the main thread of a target for fn, and releases it unchanged. meant, which may be nil,
// returns an error if this is not the intended process; it is called when that can no longer change.
type halter interface {
	halt(pid int, meant func() error, fn func(lent) error) (Stop, error)
}

var (
	errThreadBusy = errors.New("the main thread must not be interrupted where it is")
	errNotReady   = errors.New("the interpreter is still starting, or ending")
	errQueueFull  = errors.New("the interpreter's queue of pending calls is full")
	errStopped    = errors.New("the process is stopped")
	errNoStop     = errors.New("the main thread does not stop: it is in an uninterruptible wait")
	errEnded      = errors.New("the process has ended")
)

// injection is one source on its way through the queue of pending calls.
type injection struct {
	pid     int
	started uint64
	python  python
	mem     processMemory
	by      halter
	queue   uint64 // address of the interpreter's queue; 0: not known
	flag    uint64 // address of what Py_IsInitialized returns; 0: not known
	layout  layout
	token   [16]byte
	page    []byte // what is written to the target: the header and the text
	address []byte // the part of page that is to hold the outcome's address, in decimal
	queued  int    // calls that have been queued, of three
	report  *Report
}

// throughQueue carries an injection out through the queue of pending calls, halting the main thread twice.
func throughQueue(ctx context.Context, by halter, t *target, b Bootstrap, r *Report) error {
	in := &injection{pid: t.pid, started: t.started, python: t.python, mem: processMemory(t.pid),
		by: by, report: r}
	in.queue, in.flag = t.python.findQueue(in.mem), returned(in.mem, t.python.isInitialized)
	if _, err := rand.Read(in.token[:]); err != nil {
		return err
	}
	program := b.program(writesTo(unknownAddress, outcomeMax-1), "")
	in.layout = layoutFor(program)
	in.page = make([]byte, pageSize+len(program)+1)
	copy(in.page[tokenAt:], in.token[:])
	copy(in.page[pageSize:], program)
	at := bytes.LastIndex(in.page, []byte(unknownAddress)) // behind the source, whatever that holds
	in.address = in.page[at : at+len(unknownAddress)]
	r.Mapped = int64(in.layout.size)
	if err := in.enqueue(ctx); err != nil {
		return err
	}
	if err := in.await(ctx, b.Watch); err != nil {
		return err
	}
	h, err := in.header()
	if err != nil {
		return in.failed("read the outcome", err)
	}
	if err := in.unmap(ctx); err != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return judge(in.pid, h.outcome)
}

func (in *injection) header() (header, error) {
	b, err := readBytes(in.mem, in.layout.header(), outcomeAt+outcomeMax)
	if err != nil {
		return header{}, err
	}
	return parseHeader(b), nil
}

// failed turns an internal error into one for the caller.
func (in *injection) failed(doing string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	untouched := in.layout.base == 0
	switch {
	case errors.Is(err, errEnded), errors.Is(err, unix.ESRCH), over(in.pid):
		return gone(in.pid)
	case errors.Is(err, errStopped):
		return &Error{Kind: ErrBusy, PID: in.pid, Message: "it is stopped",
			Fix: fmt.Sprintf("resume it: kill -CONT %d", in.pid), Err: err}
	case errors.Is(err, unix.EPERM):
		var by tracedBy
		if !errors.As(err, &by) {
			by = tracedBy(tracerOf(in.pid))
		}
		if by != 0 { // a tracer that attached after the check, and may have left since
			e := traced("/proc", in.pid, int(by))
			e.Err = err
			return e
		}
		return &Error{Kind: ErrNotPermitted, PID: in.pid, Message: "the kernel refuses to let it be traced",
			Fix: "run gmemtop with sudo",
			Err: err, retry: untouched}
	}
	return &Error{Kind: errFailed, PID: in.pid, Message: doing + ": " + err.Error(), Err: err,
		retry: untouched}
}

// tracerOf returns the number of the process that traces this one now, 0 for none.
func tracerOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	return parseStatus(string(b)).tracer
}

// seize attaches to a process. Two that attach at the same moment are in each other's way for a millisecond,
// and the kernel refuses the second as it refuses somebody without permission. So if the process has no
// tracer, seize tries again, with pauses that outlast the stops of an injection; without permission every try
// fails. If it has one, the error names it, because it may be gone by the time anybody looks.
func seize(try func() error, tracer func() int, pause func(time.Duration)) (err error) {
	for wait := time.Duration(0); wait < seizeLimit; wait = 2*wait + time.Millisecond {
		pause(wait)
		if err = try(); !errors.Is(err, unix.EPERM) {
			return err
		}
		if by := tracer(); by != 0 {
			return fmt.Errorf("%w: %w", tracedBy(by), err)
		}
	}
	return err
}

// tracedBy is the number of the process that traced the target when the kernel refused to attach.
type tracedBy int

func (by tracedBy) Error() string { return fmt.Sprintf("process %d traces it", int(by)) }

// seizeLimit is more than the longest pause between two attempts to attach: there are eight, within a
// quarter of a second.
const seizeLimit = 200 * time.Millisecond

// over reports whether a process has ended. The kernel does not allow tracing a process that waits to be
// reaped.
func over(pid int) bool {
	s, err := procs.ReadStat(fmt.Sprintf("/proc/%d", pid))
	return err != nil || s.Ended()
}

// pause waits between two attempts.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// halt stops the target for fn and notes how long that took. If it catches the thread at a bad moment, it
// releases it and tries again.
func (in *injection) halt(ctx context.Context, what string, meant func() error, fn func(lent) error) error {
	for attempt := 1; ; attempt++ {
		stop, err := in.by.halt(in.pid, meant, fn)
		stop.For = what
		in.report.Stops = append(in.report.Stops, stop)
		if !errors.Is(err, errThreadBusy) && !errors.Is(err, errNotReady) && !errors.Is(err, errQueueFull) {
			return err
		}
		if late := pause(ctx, time.Duration(min(attempt, 50))*time.Millisecond); late != nil {
			return &Error{Kind: errPending, PID: in.pid, Message: err.Error(), Err: late,
				retry: in.layout.base == 0}
		}
	}
}

// enqueue maps the memory, writes it, and queues the three calls.
func (in *injection) enqueue(ctx context.Context) error {
	meant := func() error {
		if started, err := startTime(in.pid); err != nil || started != in.started {
			return reused(in.pid)
		}
		return nil
	}
	err := in.halt(ctx, "to map memory and queue the source", meant, func(t lent) error {
		t.patience(in.python.minor >= 13) // a contended lock of these versions cannot be given up
		if !in.safe(t) {
			return errThreadBusy
		}
		if in.layout.base == 0 {
			base, err := t.syscall(unix.SYS_MMAP, 0, in.layout.size, unix.PROT_READ|unix.PROT_WRITE,
				unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uint64(0), 0)
			if err != nil {
				return fmt.Errorf("map memory in the target: %w", err)
			}
			in.layout.base = base
			t.useStack(in.layout.stack())
			if err := in.fill(t); err != nil {
				_, again := t.syscall(unix.SYS_MUNMAP, in.layout.base, in.layout.size)
				if again == nil {
					in.layout.base = 0
				}
				return errors.Join(err, again)
			}
		}
		t.useStack(in.layout.stack())
		calls := []struct{ function, argument uint64 }{
			{in.python.semPost, in.layout.begun()},
			{in.python.simpleString, in.layout.text()},
			{in.python.semPost, in.layout.done()},
		}
		for _, c := range calls[in.queued:] {
			result, err := t.call(in.python.addPending, c.function, c.argument)
			if err != nil {
				return fmt.Errorf("Py_AddPendingCall: %w", err)
			}
			if int32(result) != 0 {
				break
			}
			in.queued++
		}
		if in.queued == 0 {
			if _, err := t.syscall(unix.SYS_MUNMAP, in.layout.base, in.layout.size); err != nil {
				return err
			}
			in.layout.base = 0
		}
		if in.queued < 3 {
			return errQueueFull
		}
		return nil
	})
	if err != nil && in.layout.base != 0 {
		in.report.Left = int64(in.layout.size)
	}
	if err != nil {
		return in.failed("queue the source", err)
	}
	return nil
}

// fill writes the memory. An interpreter that is still starting has no queue yet.
func (in *injection) fill(t lent) error {
	copy(in.address, fmt.Appendf(nil, "%*d", len(in.address), in.layout.outcome()))
	if _, err := in.mem.WriteAt(in.page, int64(in.layout.header())); err != nil {
		return err
	}
	// Kernels before 4.14 do not have this: there a child forked in between would run the source too.
	_, _ = t.syscall(unix.SYS_MADVISE, in.layout.base, in.layout.size, unix.MADV_WIPEONFORK)
	ready, err := in.initialized(t)
	if err == nil && !ready {
		err = errNotReady
	}
	return err
}

// initialized reports whether the interpreter has started and not ended: by Py_IsInitialized, or the variable
// that it returns.
func (in *injection) initialized(t lent) (bool, error) {
	if in.flag != 0 {
		b, err := readBytes(in.mem, in.flag, 4)
		return err == nil && binary.LittleEndian.Uint32(b) != 0, err
	}
	ready, err := t.call(in.python.isInitialized)
	if err != nil {
		return false, fmt.Errorf("Py_IsInitialized: %w", err)
	}
	return int32(ready) != 0, nil
}

// safe says whether the queue's lock is known to be free, or cannot be held by this thread.
func (in *injection) safe(t lent) bool {
	if in.python.minor < 13 || t.inSyscall() {
		return true
	}
	if in.queue == 0 {
		return false
	}
	b, err := readBytes(in.mem, in.queue+queueMutex, 1)
	return err == nil && b[0] == 0
}

// await waits until the source has run.
func (in *injection) await(ctx context.Context, watch func(Stage)) error {
	start := time.Now()
	var begun time.Time
	told := Stage("")
	tell := func(p Stage, since time.Time) {
		if watch != nil && told != p && time.Since(since) >= 100*time.Millisecond {
			told = p
			watch(p)
		}
	}
	for delay := 200 * time.Microsecond; ; delay = min(delay*5/4, 20*time.Millisecond) {
		h, err := in.header()
		if errors.Is(err, unix.EFAULT) || err == nil && h.token != in.token {
			return gone(in.pid) // it executes another program now, and the mapping is gone
		}
		if err != nil {
			return in.failed("wait for the interpreter", err)
		}
		if h.begun && begun.IsZero() {
			begun = time.Now()
			in.report.Waited = begun.Sub(start)
			delay = 200 * time.Microsecond
		}
		if h.done {
			in.report.Ran = time.Since(begun)
			return nil
		}
		if begun.IsZero() {
			tell(Queued, start)
		} else {
			tell(Running, begun)
		}
		if err := pause(ctx, delay); err != nil {
			return in.abandon(h.begun, err)
		}
	}
}

// abandon empties the text if the interpreter has not reached it.
func (in *injection) abandon(begun bool, cause error) error {
	in.report.Left = int64(in.layout.size)
	e := &Error{Kind: errPending, PID: in.pid, Err: cause,
		Message: "the interpreter is busy: its main thread is in a long call"}
	if begun {
		e.Message = "the source is still running"
		return e
	}
	err := in.halt(context.WithoutCancel(context.Background()), "to take the source back", nil,
		func(t lent) error {
			h, err := in.header()
			if err != nil || h.begun || h.token != in.token {
				return err
			}
			_, err = in.mem.WriteAt([]byte{0}, int64(in.layout.text()))
			return err
		})
	if err != nil {
		return in.failed("take the source back", err)
	}
	e.Message += "; the source was withdrawn"
	return e
}

// unmap removes the memory.
func (in *injection) unmap(ctx context.Context) error {
	in.report.Left = int64(in.layout.size)
	err := in.halt(context.WithoutCancel(ctx), "to unmap the memory", nil, func(t lent) error {
		h, err := in.header()
		if err != nil || h.token != in.token {
			return err
		}
		_, err = t.syscall(unix.SYS_MUNMAP, in.layout.base, in.layout.size)
		return err
	})
	if err == nil {
		in.report.Left = 0
		return nil
	}
	if err = in.failed("unmap the memory", err); errors.Is(err, ErrGone) {
		in.report.Left = 0
	}
	return err
}
