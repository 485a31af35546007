package inject

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// byGDB halts a target with gdb and gives it commands one by one. gdb loads no symbols: every address comes
// from us.
type byGDB struct {
	syscall uint64 // address of the C library's syscall()
}

// throughGDB carries an injection out with gdb.
func throughGDB(ctx context.Context, t *target, b Bootstrap, r *Report) error {
	at := libc(processMemory(t.pid), t.modules, "syscall")
	if at == 0 {
		return &Error{Kind: ErrUnsupported, PID: t.pid, Message: "its C library exports no syscall()",
			retry: true}
	}
	return throughQueue(ctx, byGDB{at}, t, b, r)
}

// debugger is a running gdb that is attached.
type debugger struct {
	in     io.Writer
	out    *bufio.Scanner
	errs   *tail
	number int
	gadget byGDB
	waits  bool
}

// halt starts a gdb for one stop. It is never killed, which would leave the target with the registers of a
// call in progress.
func (g byGDB) halt(pid int, meant func() error, fn func(lent) error) (stop Stop, err error) {
	cmd := exec.Command("gdb", "-q", "-nx", "-nh")
	cmd.Env = append(os.Environ(), "DEBUGINFOD_URLS=", "LC_ALL=C")
	d := &debugger{errs: &tail{}, gadget: g}
	cmd.Stderr = d.errs
	if d.in, err = cmd.StdinPipe(); err != nil {
		return stop, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return stop, err
	}
	d.out = bufio.NewScanner(out)
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return stop, fmt.Errorf("start gdb: %w", err)
	}
	defer func() {
		// At the end of its input gdb detaches and exits.
		d.in.(io.Closer).Close()
		for d.out.Scan() {
		}
		if wait := cmd.Wait(); wait != nil && err == nil {
			err = fmt.Errorf("gdb: %w", wait)
		}
		stop.Took = time.Since(began)
	}()
	for _, line := range []string{"set confirm off", "set pagination off", "set auto-solib-add off",
		"set unwindonsignal on", "set print thread-events off"} {
		if _, err := d.command(line); err != nil {
			return stop, err
		}
	}
	if _, err := d.command(fmt.Sprintf("attach %d", pid)); err != nil {
		return stop, err
	}
	v, err := d.value("$_inferior_thread_count > 0") // an error unless attached
	if err != nil || v == 0 {
		v, err = d.value("$pc != 0")
	}
	if err != nil || v == 0 {
		return stop, fmt.Errorf("gdb could not attach: %s", d.errs.last())
	}
	if n, err := d.value("$orig_rax"); err == nil {
		d.waits = int64(n) >= 0
	}
	if !d.restores() {
		return stop, &Error{Kind: ErrUnsupported, PID: pid, retry: true,
			Message: "this gdb is older than the processor, and cannot write all of its registers",
			Fix:     "install a newer gdb, or " + startUnder}
	}
	if meant != nil {
		err = meant()
	}
	if err == nil {
		err = fn(d)
	}
	_, again := d.command("detach")
	return stop, errors.Join(err, again)
}

// restores reports whether gdb can write all registers of a thread. After a call it has to. Where a
// processor has more state than gdb knows of (AMX and gdb 13), the kernel refuses what gdb writes, and the
// thread goes on without a restart of the system call that it was in, which fails with an error that programs
// never see. So a register that tells nothing, where x87 last read an operand, is changed and changed back
// before anything is called. gdb skips writing what would not change.
func (d *debugger) restores() bool {
	if runtime.GOARCH != "amd64" {
		return true
	}
	if _, err := d.value("$fooff = $fooff + 1"); err != nil {
		return false
	}
	_, err := d.value("$fooff = $fooff - 1")
	return err == nil
}

// command gives gdb a command and returns the lines that it prints.
func (d *debugger) command(text string) ([]string, error) {
	d.number++
	marker := fmt.Sprintf("@end %d@", d.number)
	if _, err := fmt.Fprintf(d.in, "%s\necho \\n%s\\n\n", text, marker); err != nil {
		return nil, fmt.Errorf("gdb: %w", err)
	}
	var lines []string
	for d.out.Scan() {
		line := strings.TrimPrefix(d.out.Text(), "(gdb) ")
		if strings.HasSuffix(line, marker) {
			return lines, nil
		}
		lines = append(lines, line)
	}
	return nil, fmt.Errorf("gdb ended: %s", d.errs.last())
}

// value evaluates an expression to an integer.
func (d *debugger) value(expression string) (uint64, error) {
	lines, err := d.command(fmt.Sprintf(`printf "@value %%lu\n", (unsigned long)(%s)`, expression))
	if err != nil {
		return 0, err
	}
	for _, l := range lines {
		if _, v, ok := strings.Cut(l, "@value "); ok {
			return strconv.ParseUint(v, 10, 64)
		}
	}
	return 0, fmt.Errorf("gdb: %s", d.errs.last())
}

func (d *debugger) call(function uint64, args ...uint64) (uint64, error) {
	types, values := make([]string, len(args)), make([]string, len(args))
	for i, a := range args {
		types[i], values[i] = "unsigned long", fmt.Sprintf("%#xUL", a)
	}
	if len(args) == 0 {
		types = []string{"void"}
	}
	return d.value(fmt.Sprintf("((unsigned long (*)(%s))%#x)(%s)", strings.Join(types, ", "), function,
		strings.Join(values, ", ")))
}

func (d *debugger) syscall(number uint64, args ...uint64) (uint64, error) {
	v, err := d.call(d.gadget.syscall, append([]uint64{number}, args...)...)
	if err == nil && v == ^uint64(0) {
		err = fmt.Errorf("system call %d failed in the target", number)
	}
	return v, err
}

func (d *debugger) inSyscall() bool { return d.waits }
func (d *debugger) useStack(uint64) {}
func (d *debugger) patience(bool)   {}

// tail keeps the last lines that gdb wrote to its standard error.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - 4096; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(t.b), []byte("\n"))
	return string(lines[len(lines)-1])
}
