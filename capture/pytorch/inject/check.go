package inject

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/gmemtop/gmemtop/capture/procs"
)

// Findings say what Inject would do to a process, and what prevents it.
type Findings struct {
	PID     int
	Started uint64 // start time in clock ticks since boot: with the pid, names the process
	Command string // its command line, arguments separated by spaces
	User    int    // its effective user id
	Python  string // version of its interpreter, as exactly as known; "" for none
	Threads int

	Plan []string // what Inject would do, a sentence each; nil if it would do nothing
	// every mechanism, in the order in which they are tried; nil if an obstacle bars them all
	Ways      []Way
	Obstacles []*Error // what prevents all of them
	Notes     []string // what is worth knowing but prevents nothing, a sentence each
}

// Way is a mechanism as it applies to one process.
type Way struct {
	Mechanism Mechanism
	Obstacle  *Error // nil: available
}

// Err returns the first obstacle to every mechanism, or nil.
func (f Findings) Err() error {
	if len(f.Obstacles) > 0 {
		return f.Obstacles[0]
	}
	var first error
	for _, w := range f.Ways {
		if w.Obstacle == nil {
			return nil
		}
		if first == nil {
			first = w.Obstacle
		}
	}
	return first
}

// Check examines process pid without touching it.
func Check(pid int) Findings {
	_, f := examine(host(), pid)
	return f
}

const capSysPtrace = 1 << 19

func startTime(pid int) (uint64, error) {
	s, err := procs.ReadStat(fmt.Sprintf("/proc/%d", pid))
	return uint64(s.Started), err
}

// examine collects findings until one makes further ones impossible.
func examine(sys system, pid int) (*target, Findings) {
	f := Findings{PID: pid}
	t := &target{pid: pid, proc: filepath.Join(sys.proc, fmt.Sprint(pid))}
	e := &examination{sys: sys, t: t, f: &f}
	for _, look := range []func() *Error{e.process, e.state, e.permission, e.architecture, e.interpreter} {
		if err := look(); err != nil {
			err.PID = pid
			f.Obstacles = append(f.Obstacles, err)
			return t, f
		}
	}
	e.ways()
	e.notes()
	e.plan()
	return t, f
}

type examination struct {
	sys system
	t   *target
	f   *Findings
}

func (e *examination) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(e.t.proc, name))
	return string(b), err
}

// process: is there one, and is it the right one?
func (e *examination) process() *Error {
	const lookUp = "gmemtop attach lists the processes"
	if e.sys.alive == nil || e.sys.arch == "" {
		return &Error{Kind: ErrUnsupported, Message: "attaching works on Linux only",
			Fix: "run gmemtop on the machine that trains"}
	}
	if e.t.pid <= 0 {
		return &Error{Kind: ErrGone, Message: "a pid is a positive number", Fix: lookUp}
	}
	if e.t.pid == os.Getpid() && e.sys.proc == "/proc" {
		return &Error{Kind: ErrNotPython, Message: "that is gmemtop itself",
			Fix: "give the pid of a Python process"}
	}
	stat, err := procs.ReadStat(e.t.proc)
	switch {
	case errors.Is(err, fs.ErrInvalid):
		return &Error{Kind: errFailed, Message: err.Error(), Err: err}
	case err != nil:
		if alive := e.sys.alive(e.t.pid); alive == nil || errors.Is(alive, fs.ErrPermission) {
			return &Error{Kind: ErrNotPermitted, Message: "/proc hides it (mounted with hidepid)",
				Fix: "run gmemtop with sudo", Err: err}
		}
		return gone(e.t.pid)
	}
	e.t.started = uint64(stat.Started)
	e.f.Started = e.t.started
	text, err := e.read("status")
	if err != nil {
		return gone(e.t.pid)
	}
	s := parseStatus(text)
	e.t.status, e.f.User, e.f.Threads = s, s.uid[1], s.threads
	if command, err := e.read("cmdline"); err == nil {
		e.f.Command = printable(command)
	}
	switch {
	case stat.Ended():
		return &Error{Kind: ErrGone, Message: "it has ended and waits to be reaped by its parent (a zombie)",
			Fix: fmt.Sprintf("nothing runs there any more; its parent is process %d", s.ppid)}
	case s.tgid != 0 && s.tgid != e.t.pid:
		return &Error{Kind: ErrGone, Message: fmt.Sprintf("that is a thread of process %d", s.tgid),
			Fix: fmt.Sprintf("give %d", s.tgid)}
	case !s.vmSize:
		return &Error{Kind: ErrNotPython, Message: "it is a kernel thread",
			Fix: "give the pid of a Python process"}
	}
	return nil
}

// state: can it be stopped and resumed?
func (e *examination) state() *Error {
	stat, _ := procs.ReadStat(e.t.proc)
	switch {
	case e.t.status.tracer != 0:
		return traced(e.sys.proc, e.t.pid, e.t.status.tracer)
	case stat.State == 'T' || stat.State == 't':
		return &Error{Kind: ErrBusy, Message: "it is stopped",
			Fix: fmt.Sprintf("resume it: kill -CONT %d", e.t.pid)}
	}
	return nil
}

// permission: would the kernel let this process trace it? Only if the kernel refuses do we look for the
// reason.
func (e *examination) permission() *Error {
	err := e.sys.access(e.t.pid, 0)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return nil // the address need not be mapped
	}
	refused := func(message, fix string) *Error {
		return &Error{Kind: ErrNotPermitted, Message: message, Fix: fix, Err: err}
	}
	own := status{}
	if b, err := os.ReadFile(filepath.Join(e.sys.proc, "self/status")); err == nil {
		own = parseStatus(string(b))
	}
	capable := own.capEff&capSysPtrace != 0
	if b, err := os.ReadFile(filepath.Join(e.sys.proc, "sys/kernel/yama/ptrace_scope")); err == nil {
		switch scope := strings.TrimSpace(string(b)); {
		case scope == "3":
			return refused("tracing is switched off on this machine until it is booted again "+
				"(kernel.yama.ptrace_scope is 3)",
				"start the program under gmemtop: gmemtop run -- COMMAND")
		case scope == "2" && !capable:
			return refused("only administrators may trace on this machine (kernel.yama.ptrace_scope is 2)",
				"run gmemtop with sudo")
		case scope == "1" && !capable && e.t.status.uid[1] == own.uid[1]:
			return refused("only a process's ancestors may trace it on this machine "+
				"(kernel.yama.ptrace_scope is 1)",
				"run gmemtop with sudo, or allow it until the next boot: sudo sysctl "+
					"kernel.yama.ptrace_scope=0, or start the program under "+
					"gmemtop: gmemtop run -- COMMAND")
		}
	}
	sudo := func(how string) string {
		if own.uid[1] == 0 { // we are root already
			return startUnder
		}
		return fmt.Sprintf("run gmemtop with sudo%s: sudo gmemtop attach %d", how, e.t.pid)
	}
	u := e.t.status.uid
	same := u[0] == own.uid[1] && u[1] == own.uid[1] && u[2] == own.uid[1]
	switch {
	case own.uid[1] == 0 && !capable:
		return refused("this is root without the capability CAP_SYS_PTRACE, as in a container",
			"start the container with --cap-add=SYS_PTRACE, or run gmemtop outside of it")
	case !same && own.uid[1] != 0:
		return refused(fmt.Sprintf("it belongs to user %d, and this is user %d", u[1], own.uid[1]),
			fmt.Sprintf("run gmemtop as that user, or with sudo: sudo gmemtop attach %d", e.t.pid))
	case !e.readable():
		return refused("the kernel protects its memory (not dumpable: it changed user, called "+
			"prctl(PR_SET_DUMPABLE, 0), or its program file is not readable)", sudo(""))
	case own.seccomp != 0:
		return refused("a seccomp filter forbids this process to trace, as in a container",
			"start the container with --security-opt seccomp=unconfined --cap-add=SYS_PTRACE, or run "+
				"gmemtop outside of it")
	}
	return refused("the kernel refuses to let it be traced (a security module, or another user namespace)",
		sudo(", outside of containers"))
}

// readable says whether procfs shows what only a dumpable process shows.
func (e *examination) readable() bool {
	_, err := os.Readlink(filepath.Join(e.t.proc, "exe"))
	return err == nil
}

// architecture: of this machine, and of its executable.
func (e *examination) architecture() *Error {
	if e.sys.arch != "amd64" {
		return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("attaching has been run on linux/amd64 "+
			"only, and this is %s/%s", runtime.GOOS, e.sys.arch),
			Fix: startUnder}
	}
	text, err := os.Open(filepath.Join(e.t.proc, "maps"))
	if err != nil {
		return &Error{Kind: ErrNotPermitted, Message: "its memory map cannot be read",
			Fix: "run gmemtop with sudo", Err: err}
	}
	defer text.Close()
	if e.t.mappings, err = parseMaps(text); err != nil {
		return &Error{Kind: errFailed, Message: err.Error(), Err: err}
	}
	e.t.modules = modules(e.t.mappings)
	exe, err := os.Open(filepath.Join(e.t.proc, "exe"))
	if err != nil {
		return nil // replaced or gone: its memory says the rest
	}
	defer exe.Close()
	var h [20]byte
	if _, err := io.ReadFull(exe, h[:]); err != nil || string(h[:4]) != elf.ELFMAG {
		return nil
	}
	if h[elf.EI_CLASS] != byte(elf.ELFCLASS64) {
		return &Error{Kind: ErrUnsupported, Message: "it is a 32-bit program", Fix: "use a 64-bit Python"}
	}
	if got := elf.Machine(uint16(h[18]) | uint16(h[19])<<8); got != elf.EM_X86_64 {
		return &Error{Kind: ErrUnsupported,
			Message: fmt.Sprintf("it is a program for %v, and this gmemtop one for %s", got, e.sys.arch),
			Fix:     "use the gmemtop built for that architecture"}
	}
	return nil
}

// interpreter: is there one, and of which version?
func (e *examination) interpreter() *Error {
	exe, _ := os.Readlink(filepath.Join(e.t.proc, "exe"))
	p, err := findPython(e.sys.memory(e.t.pid), e.t.modules, strings.TrimSuffix(exe, " (deleted)"))
	if err != nil {
		for _, m := range e.t.modules { // even an executable that exports nothing may hold one
			if m.path == strings.TrimSuffix(exe, " (deleted)") {
				p.module, p.minor = m, -1
			}
		}
	}
	e.t.python = p
	if p.runtime == 0 && e.runtimeSection() {
		p, err = e.t.python, nil
	}
	e.f.Python = p.version
	if err != nil {
		fix := "give the pid of the Python process itself, not of a shell or launcher"
		if e.usesCUDA() {
			fix = fmt.Sprintf("its CUDA memory can be watched from outside all the same: "+
				"gmemtop attach --probes %d", e.t.pid)
		}
		return &Error{Kind: ErrNotPython, Message: "it is not Python", Fix: fix, Err: err}
	}
	switch {
	case strings.HasPrefix(p.version, "2") || p.minor >= 0 && p.minor < 8 || p.minor < 0 && p.exported():
		version := p.version
		if version == "" || version == "3" {
			version = "older than 3.8"
		}
		return &Error{Kind: ErrUnsupported,
			Message: fmt.Sprintf("its Python is %s, and 3.8 is the oldest that can be attached to", version),
			Fix:     "use Python 3.8 or later"}
	case p.freeThreaded:
		return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("its Python %s is a free-threaded build, "+
			"which cannot be attached to", p.version),
			Fix: "use the build with the global interpreter lock"}
	}
	return nil
}

// usesCUDA says whether the driver's library is loaded.
func (e *examination) usesCUDA() bool {
	return slices.ContainsFunc(e.t.modules, func(m module) bool {
		return strings.HasPrefix(m.name(), "libcuda.so")
	})
}

// runtimeSection finds _PyRuntime if it is not an exported symbol: in its own section, which only the file
// shows. It reports whether there is one; it notes the address only if the content begins correctly, as it
// does from 3.13 on.
func (e *examination) runtimeSection() bool {
	p := &e.t.python
	mem := e.sys.memory(e.t.pid)
	im, err := openImage(mem, p.module.base, p.module.end)
	if err != nil {
		return false
	}
	for _, name := range []string{"root" + p.module.path, "exe"} { // the latter even if the file is deleted
		file, err := elf.Open(filepath.Join(e.t.proc, name))
		if err != nil {
			continue
		}
		section := file.Section(".PyRuntime")
		file.Close()
		if section == nil || section.Size < 32 {
			continue
		}
		if b, err := readBytes(mem, section.Addr+im.bias, 8); err == nil && string(b) == debugCookie {
			p.runtime = section.Addr + im.bias
			p.readOffsets(mem)
		}
		return true
	}
	return false
}

// ways fills in the obstacle to each mechanism.
func (e *examination) ways() {
	for _, m := range mechanisms {
		var err *Error
		switch m {
		case Ptrace:
			err = e.wayPtrace()
		case PEP768:
			err = e.wayPEP768()
		case GDB:
			err = e.wayGDB()
		}
		if err != nil {
			err.PID, err.retry = e.t.pid, true
		}
		e.f.Ways = append(e.f.Ways, Way{Mechanism: m, Obstacle: err})
	}
}

func (e *examination) wayPtrace() *Error {
	unsupported := func(message string) *Error {
		return &Error{Kind: ErrUnsupported, Message: message, Fix: startUnder}
	}
	p := e.t.python
	switch {
	case e.t.status.shadowStack:
		return unsupported("its threads have shadow stacks, which a remote call would violate")
	case !p.exported():
		return unsupported(fmt.Sprintf("its interpreter %s exports no functions (stripped, or linked "+
			"without -rdynamic)", printable(p.module.name())))
	case p.semPost == 0:
		return unsupported("its C library exports no sem_post")
	}
	return nil
}

func (e *examination) wayGDB() *Error {
	if err := e.sys.gdb(); err != nil {
		return &Error{Kind: ErrUnsupported, Message: "there is no gdb on this machine",
			Fix: "install gdb, or " + startUnder, Err: err}
	}
	if p := e.t.python; !p.exported() || p.semPost == 0 {
		return &Error{Kind: ErrUnsupported, Message: fmt.Sprintf("its interpreter %s exports no functions "+
			"that gdb could call", printable(p.module.name())),
			Fix: startUnder}
	}
	return nil
}

// notes adds what is worth knowing.
func (e *examination) notes() {
	s := e.t.status
	note := func(format string, args ...any) { e.f.Notes = append(e.f.Notes, fmt.Sprintf(format, args...)) }
	if s.seccomp == 2 {
		note("The process runs under a seccomp filter; it must allow it mmap, munmap and madvise, as any " +
			"Python needs them.")
	}
	if s.ppid == os.Getpid() {
		note("The process is a child of this gmemtop.")
	}
	if a, err := os.Readlink(filepath.Join(e.t.proc, "ns/mnt")); err == nil {
		if b, err := os.Readlink(filepath.Join(e.sys.proc, "self/ns/mnt")); err == nil && a != b {
			note("The process is in another mount namespace, as in a container.")
		}
	}
	if stat, _ := procs.ReadStat(e.t.proc); stat.State == 'D' {
		note("Its main thread is in an uninterruptible wait (a driver or a network file system); " +
			"it can only be stopped after that.")
	}
}

// plan says what the first available mechanism would do.
func (e *examination) plan() {
	for _, w := range e.f.Ways {
		if w.Obstacle != nil {
			continue
		}
		switch w.Mechanism {
		case Ptrace:
			e.f.Plan = []string{
				"The main thread is stopped for a millisecond or two; the source is put into newly mapped " +
					"memory and queued for the interpreter.",
				"The interpreter runs the source on its main thread, between two bytecodes.",
				"The main thread is stopped once more, for less, and the memory is unmapped.",
			}
		case PEP768:
			e.f.Plan = []string{
				"The source is written to a file in a new directory below the target's temporary " +
					"directory, owned by its user.",
				"CPython's own protocol for debuggers makes the interpreter run that file on its main " +
					"thread, without a stop.",
				"The file and the directory are removed.",
			}
		case GDB:
			e.f.Plan = []string{
				"gdb stops all threads, possibly for seconds, maps memory, and queues the source for the " +
					"interpreter.",
				"The interpreter runs the source on its main thread, between two bytecodes.",
				"gdb stops all threads once more to unmap the memory.",
			}
		}
		return
	}
}

// wayPEP768 says what prevents CPython's own protocol.
func (e *examination) wayPEP768() *Error {
	p := e.t.python
	unsupported := func(message, fix string) *Error {
		return &Error{Kind: ErrUnsupported, Message: message, Fix: fix}
	}
	switch {
	case p.minor < 0:
		return unsupported("gmemtop cannot tell the version of its Python", startUnder)
	case p.minor < offsetsMinor:
		return unsupported(fmt.Sprintf("Python %s has no remote debugging (PEP 768); 3.14 is the first "+
			"version that has it", p.version), "use Python 3.14")
	case p.minor > offsetsMinor:
		return unsupported(fmt.Sprintf("the remote debugging (PEP 768) of Python %s is not known to this "+
			"gmemtop", p.version), "use a later gmemtop")
	case p.runtime == 0:
		return unsupported("its _PyRuntime cannot be found: no such symbol, nor the section .PyRuntime",
			startUnder)
	}
	if _, err := findRemoteDebug(e.sys.memory(e.t.pid), p.runtime); err != nil {
		fix := startUnder
		if errors.Is(err, errRemoteDebugOff) {
			fix = "start it without PYTHON_DISABLE_REMOTE_DEBUG and -X disable-remote-debug, with a Python " +
				"built with remote debugging"
		}
		return &Error{Kind: ErrUnsupported, Message: err.Error(), Fix: fix, Err: err}
	}
	return nil
}
