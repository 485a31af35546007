package inject

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// How long a thread may take to stop (it does so at once unless it is in an uninterruptible wait), and a
// remote call to return. A lock that another thread holds is free within microseconds; a call that takes
// longer is given up if that is safe. Time that a thread waits for a processor does not count: giving up
// would not release it any sooner, and would leave the work half done.
const (
	stopLimit    = 2 * time.Second
	callLimit    = 200 * time.Millisecond
	starvedLimit = 10 * time.Second
	starvedLook  = 10 * time.Millisecond // between two checks whether that is so
	neverLimit   = time.Minute
)

// shortest and longest, in nanoseconds, bound the sleep between two checks whether a thread has stopped. The
// time that it is halted counts from the last check at which it had not stopped, so a sleep overstates it.
const shortest, running, longest = 10_000, 200_000, 1_000_000

const (
	sysgood     = 0x80
	eventStop   = 128 // PTRACE_EVENT_STOP
	synchronous = 1<<(unix.SIGSEGV-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGILL-1) |
		1<<(unix.SIGFPE-1) | 1<<(unix.SIGTRAP-1) | 1<<(unix.SIGSYS-1)
	direction   = 1 << 10     // the direction flag, which must be clear when a function is called
	enosys      = ^uint64(37) // what the result is at the entry of a system call
	ntXState    = 0x202       // NT_X86_XSTATE: all of the floating-point and vector registers
	xstateMax   = 1 << 16     // bytes; AMX needs some 11 KiB
	noSyscall   = ^uint64(0)  // orig_rax of a thread that is not in a system call
	childDumped = 3           // CLD_DUMPED: the last of the codes of a process that has ended
)

// ptrace makes a request. It must be made on the thread that attached.
func ptrace(request, pid int, addr, data uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), addr, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ptraceAt makes a request whose data is a pointer. It stays a pointer until the system call, since stacks
// move.
func ptraceAt(request, pid int, addr uintptr, data unsafe.Pointer) error {
	if _, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), addr, uintptr(data),
		0, 0); errno != 0 {
		return errno
	}
	return nil
}

// standing is where a tracee has stopped.
type standing uint8

const (
	interrupted standing = iota // in the stop that we asked for: within the kernel's signal path
	afterCall                   // after a system call that we made it do
	atSignal                    // about to be given a signal: within the kernel's signal path as well
	ended
)

// tracee is a thread that is stopped for remote calls. Use it only on the thread that attached.
type tracee struct {
	pid         int
	mem         processMemory
	gadget      uint64        // address of a syscall instruction
	limit       time.Duration // how long a remote call may take
	trapIgnored bool          // the process ignores SIGTRAP; a trap would reset that
	stack       uint64        // top of the stack for function calls; 0: none yet
	home        home

	saved     unix.PtraceRegs
	xstate    []byte // nil until a function is called
	mask      uint64
	used      bool // registers are no longer the saved ones
	at        standing
	signal    unix.Signal   // of atSignal
	running   time.Time     // when it was last seen running
	doze      int64         // the longest sleep between two checks, in nanoseconds
	own       schedule      // of the thread
	ours      schedule      // of the tracing thread
	ranBefore time.Duration // the processor's time that it had had before
	held      []unix.Signal // signals that arrived during calls and are to be sent again
	vectors   []byte        // room for xstate

	took, starved time.Duration // see Stop
}

// byPtrace halts a target with ptrace.
type byPtrace struct {
	gadget      uint64
	trapIgnored bool
	ways        waysHome
	strict      bool
}

func (p byPtrace) halt(pid int, meant func() error, fn func(lent) error) (Stop, error) {
	t := &tracee{pid: pid, mem: processMemory(pid), gadget: p.gadget, trapIgnored: p.trapIgnored,
		limit: callLimit,
		home:  home{ways: p.ways, strict: p.strict}}
	err := stopped(t, meant, func(t *tracee) error { return fn(t) })
	return Stop{Took: t.took, Starved: min(t.starved, t.took)}, err
}

func (t *tracee) useStack(top uint64) { t.stack = top }

func (t *tracee) patience(never bool) {
	if never {
		t.limit = neverLimit
	}
}

// throughPtrace carries an injection out with ptrace.
func throughPtrace(ctx context.Context, t *target, b Bootstrap, r *Report) error {
	at, err := gadget(processMemory(t.pid), t.modules, t.mappings)
	if err != nil {
		return &Error{Kind: ErrUnsupported, PID: t.pid, Message: err.Error(), Err: err, retry: true}
	}
	by := byPtrace{gadget: at, trapIgnored: t.status.sigIgn>>(unix.SIGTRAP-1)&1 != 0,
		strict: t.status.seccomp != 0,
		ways:   findWaysHome(processMemory(t.pid), t.modules, t.mappings)}
	return throughQueue(ctx, by, t, b, r)
}

// stopped halts the main thread of a process, calls fn with it, and releases it in its previous state. meant,
// which may be nil, is called before, when another process can no longer take its place; after an error the
// process is left alone. took becomes how long the thread was halted, from when it was last seen running
// until it was released, an upper bound. The tracing thread ends afterwards: the kernel then detaches what it
// traced, so that the target is released whatever happens here.
func stopped(t *tracee, meant func() error, fn func(*tracee) error) error {
	var err error
	done := make(chan struct{})
	var work func()
	work = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread of a program cannot end: another one must do it.
			go work()
			<-done
			runtime.UnlockOSThread()
			return
		}
		defer close(done)
		err = t.halt(meant, fn)
	}
	undisturbed(func() {
		go work()
		<-done
	})
	return err
}

func (t *tracee) halt(meant func() error, fn func(*tracee) error) (err error) {
	pid := t.pid
	// The target waits for this thread, which should therefore sleep briefly and run at once. Both settings
	// end with the thread; without the permission for them it runs normally. Threads that the runtime starts
	// from it do not inherit the policy.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK, Priority: 1}, 0)
	// Prepare everything first: after the request to stop, the target stands still.
	if t.vectors == nil {
		t.vectors = make([]byte, xstateMax)
	}
	t.own, t.ours = scheduleOf(fmt.Sprintf("%d/task/%[1]d", pid)), scheduleOf("thread-self")
	defer t.own.close()
	defer t.ours.close()
	defer steadily()()
	if err := seize(func() error { return ptrace(unix.PTRACE_SEIZE, pid, 0, unix.PTRACE_O_TRACESYSGOOD) },
		func() int { return tracerOf(pid) }, time.Sleep); err != nil {
		return fmt.Errorf("ptrace: seize: %w", err)
	}
	if meant != nil {
		if err := meant(); err != nil {
			return err // the end of this thread detaches it, as below
		}
	}
	t.ranBefore, _ = t.own.read()
	t.running, t.doze = time.Now(), running
	if err := ptrace(unix.PTRACE_INTERRUPT, pid, 0, 0); err != nil {
		return fmt.Errorf("ptrace: interrupt: %w", err)
	}
	for {
		if err := t.wait(stopLimit); err != nil {
			switch {
			case errors.Is(err, errTimeout):
				err = errNoStop // it cannot be detached while it runs; the end of this thread does that
			case errors.Is(err, errStopped):
				err = errors.Join(err, t.resume(unix.PTRACE_DETACH, 0)) // stays stopped
			}
			return err
		}
		if t.at != atSignal {
			break
		}
		// A signal came before our stop: the thread gets it as if we were not there.
		if err := t.resume(unix.PTRACE_CONT, t.signal); err != nil {
			return err
		}
	}
	t.doze = longest
	began, starved := t.running, t.waited()
	defer func() {
		err = errors.Join(err, t.release())
		t.took, t.starved = time.Since(began), t.waited()-starved
	}()
	if err := ptraceAt(unix.PTRACE_GETREGS, pid, 0, unsafe.Pointer(&t.saved)); err != nil {
		return fmt.Errorf("ptrace: registers: %w", err)
	}
	if err := ptraceAt(unix.PTRACE_GETSIGMASK, pid, 8, unsafe.Pointer(&t.mask)); err != nil {
		return fmt.Errorf("ptrace: signal mask: %w", err)
	}
	if t.inRestartableSequence() {
		return errThreadBusy
	}
	return fn(t)
}

// waited returns how long the thread and its tracer could have run but had no processor. They take turns, so
// no time counts twice.
func (t *tracee) waited() time.Duration {
	_, own := t.own.read()
	_, ours := t.ours.read()
	return own + ours
}

var errTimeout = errors.New("timed out")

// wait waits for the next stop and notes where the thread has stopped. The limit does not include the time
// that the thread waits for a processor on a busy machine.
func (t *tracee) wait(limit time.Duration) error {
	began := time.Now()
	deadline := began.Add(limit)
	for spins := 0; ; spins++ {
		status, err := t.look()
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, errEnded), errors.Is(err, unix.ECHILD):
			t.at = ended
			return errEnded
		case err != nil:
			return fmt.Errorf("wait: %w", err)
		case status != 0:
			return t.note(status)
		}
		t.running = time.Now()
		switch {
		case t.running.After(deadline):
			if ran, _ := t.own.read(); t.running.Sub(began) > limit+starvedLimit || !runnable(t.pid) ||
				ran-t.ranBefore >= limit {
				return errTimeout
			}
			deadline = t.running.Add(starvedLook)
		case spins > 8:
			// By now the target may need this very processor, and frequent checks would keep it busy, since
			// this thread has priority. The kernel announces a stop by SIGCHLD, to this thread first, which
			// ends the sleep; one that comes just before the sleep is noticed after it.
			doze := unix.NsecToTimespec(min(max(int64(t.running.Sub(began)), shortest), t.doze))
			unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&doze)), 0, 0)
		}
	}
}

// look returns the status with which the thread has stopped, 0 if it has not; the error is errEnded if it has
// ended. It does not reap the process: if this program started it, another goroutine does that and gets the
// exit code.
func (t *tracee) look() (int32, error) {
	for _, options := range [...]int{unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT, unix.WSTOPPED} {
		var info struct { // siginfo_t of SIGCHLD
			Signo, Errno, Code, _, PID, UID, Status int32
			_                                       [100]byte
		}
		if err := unix.Waitid(unix.P_PID, t.pid, (*unix.Siginfo)(unsafe.Pointer(&info)),
			options|unix.WNOHANG|unix.WALL, nil); err != nil {
			return 0, err
		}
		switch {
		case info.PID != int32(t.pid):
			return 0, nil
		case info.Code <= childDumped:
			return 0, errEnded
		case options&unix.WNOWAIT == 0:
			return info.Status, nil
		}
	}
	return 0, nil
}

// runnable says whether the main thread of a process runs or waits for a processor, and for nothing else.
func runnable(pid int) bool {
	s, err := procs.ReadStat(fmt.Sprintf("/proc/%d/task/%[1]d", pid))
	return err == nil && s.State == 'R'
}

// note records where the thread is, from the status of its stop: a signal, with the event of ptrace above it.
func (t *tracee) note(status int32) error {
	switch sig := unix.Signal(status & 0xff); {
	case status>>8 == eventStop && sig == unix.SIGTRAP:
		t.at = interrupted
	case status>>8 == eventStop:
		t.at = interrupted
		return errStopped
	case sig == unix.SIGTRAP|sysgood:
		t.at = afterCall
	default:
		t.at, t.signal = atSignal, sig
	}
	return nil
}

func (t *tracee) resume(request int, sig unix.Signal) error {
	if err := ptrace(request, t.pid, 0, uintptr(sig)); err != nil {
		return fmt.Errorf("ptrace: resume: %w", err)
	}
	return nil
}

func (t *tracee) setRegs(r *unix.PtraceRegs) error {
	if err := ptraceAt(unix.PTRACE_SETREGS, t.pid, 0, unsafe.Pointer(r)); err != nil {
		return fmt.Errorf("ptrace: set registers: %w", err)
	}
	return nil
}

func (t *tracee) setMask(mask uint64) error {
	if err := ptraceAt(unix.PTRACE_SETSIGMASK, t.pid, 8, unsafe.Pointer(&mask)); err != nil {
		return fmt.Errorf("ptrace: set signal mask: %w", err)
	}
	return nil
}

// begin makes the thread ours for calls: signals that can wait are blocked.
func (t *tracee) begin() error {
	if t.used {
		return nil
	}
	t.used = true
	if err := t.leadHome(); err != nil {
		return err
	}
	return t.setMask(^uint64(synchronous))
}

// step resumes the thread with a request that makes it stop again soon: at a system call, or after one
// instruction. Signals that come meanwhile are kept for later; a fault of the thread itself is an error.
func (t *tracee) step(request int) error {
	for {
		if err := t.resume(request, 0); err != nil {
			return err
		}
		err := t.wait(t.limit)
		switch {
		case errors.Is(err, errTimeout):
			// The call is given up: the thread is halted wherever it waits, and its registers are given back.
			if err := ptrace(unix.PTRACE_INTERRUPT, t.pid, 0, 0); err != nil {
				return err
			}
			if err := t.wait(stopLimit); err != nil {
				return err
			}
			return fmt.Errorf("a remote call did not return within %v: %w", t.limit, errTimeout)
		case errors.Is(err, errStopped):
			continue // SIGSTOP cannot be blocked; the group stop resumes when we detach
		case err != nil:
			return err
		case t.at == afterCall:
			return nil
		case t.at == atSignal:
			var info [128]byte
			if err := ptraceAt(unix.PTRACE_GETSIGINFO, t.pid, 0, unsafe.Pointer(&info)); err != nil {
				return fmt.Errorf("ptrace: signal: %w", err)
			}
			byKernel := int32(binary.LittleEndian.Uint32(info[8:])) > 0 && synchronous>>(t.signal-1)&1 != 0
			if byKernel && t.signal == unix.SIGTRAP && request == unix.PTRACE_SINGLESTEP {
				return nil
			}
			if byKernel {
				return fmt.Errorf("a remote call was ended by %v", t.signal)
			}
			t.held = append(t.held, t.signal)
		}
	}
}

// release restores everything and resumes the thread.
func (t *tracee) release() error {
	if t.at == ended {
		return nil
	}
	if t.home.ready && t.at == afterCall && t.inSyscall() { // to the signal path first: see below
		if err := t.park(); err != nil {
			return err
		}
		if err := t.toSignalPath(); err != nil {
			return err
		}
		if t.at == ended {
			return nil
		}
	}
	if t.used {
		var err error
		if t.xstate != nil {
			v := unix.Iovec{Base: &t.xstate[0], Len: uint64(len(t.xstate))}
			err = ptraceAt(unix.PTRACE_SETREGSET, t.pid, ntXState, unsafe.Pointer(&v))
		}
		err = errors.Join(err, t.setMask(t.mask), t.setRegs(&t.saved))
		for _, sig := range t.held {
			err = errors.Join(err, unix.Tgkill(t.pid, t.pid, sig))
		}
		if err != nil {
			return fmt.Errorf("give the registers back: %w", err)
		}
	}
	pass := unix.Signal(0)
	switch t.at {
	case afterCall:
		if !t.inSyscall() {
			break
		}
		if err := t.toSignalPath(); err != nil || t.at == ended {
			return err
		}
		if t.at == atSignal {
			pass = t.signal
		}
	case atSignal:
		if !t.used {
			pass = t.signal
		}
	}
	return t.resume(unix.PTRACE_DETACH, pass)
}

// toSignalPath makes a thread that is just after a system call stop again before it does anything. Where it
// is, the kernel does not check whether to restart an earlier system call; in its signal path it does.
func (t *tracee) toSignalPath() error {
	if err := ptrace(unix.PTRACE_INTERRUPT, t.pid, 0, 0); err != nil {
		return fmt.Errorf("ptrace: interrupt: %w", err)
	}
	if err := t.resume(unix.PTRACE_CONT, 0); err != nil {
		return err
	}
	if err := t.wait(stopLimit); err != nil && !errors.Is(err, errStopped) && !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// inSyscall says whether the thread was waiting in a system call when it was stopped.
func (t *tracee) inSyscall() bool {
	return t.saved.Orig_rax != noSyscall
}

// inRestartableSequence says whether the thread is within an rseq critical section, which must be aborted
// when it is interrupted; the kernel would not notice, since by the time it looks the thread is elsewhere.
func (t *tracee) inRestartableSequence() bool {
	var c struct {
		Pointer         uint64
		Size, Signature uint32
		Flags, Pad      uint32
	}
	const request = 0x420f // PTRACE_GET_RSEQ_CONFIGURATION
	if ptraceAt(request, t.pid, unsafe.Sizeof(c), unsafe.Pointer(&c)) != nil || c.Pointer == 0 {
		return false
	}
	b, err := readBytes(t.mem, c.Pointer+8, 8)
	if err != nil {
		return false
	}
	section := binary.LittleEndian.Uint64(b)
	if section == 0 {
		return false
	}
	if b, err = readBytes(t.mem, section, 24); err != nil {
		return true
	}
	start, length := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	return t.saved.Rip-start < length
}
