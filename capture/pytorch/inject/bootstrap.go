package inject

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

//go:embed bootstrap.py
var bootstrapPy string

// Bootstrap is what a process is to run, and how.
type Bootstrap struct {
	// Source is Python source, UTF-8, up to maxSource bytes. It runs as its own module on the main thread;
	// names that it binds at its top level are gone afterwards unless it keeps them alive. It should let
	// KeyboardInterrupt and the exceptions of signal handlers pass: they are raised again in the program,
	// where they belong.
	Source string
	// Name is the module's __name__; its file name in tracebacks is "<Name>". Default "gmemtop".
	Name string
	// Started is the start time of the intended process, as in Findings.Started; 0 means any.
	Started uint64
	// Mechanisms restricts which ways are tried, in this order; nil means all.
	Mechanisms []Mechanism
	// Watch is called, on Inject's own goroutine, when the injection has been in a stage for a tenth of a
	// second.
	Watch func(Stage)
}

// maxSource is the largest source that Inject accepts, in bytes.
const maxSource = 8 << 20

func (b Bootstrap) validate() error {
	switch {
	case b.Source == "":
		return errors.New("there is no source to inject")
	case len(b.Source) > maxSource:
		return fmt.Errorf("the source has %d bytes, more than the %d allowed", len(b.Source), maxSource)
	case !utf8.ValidString(b.Source):
		return errors.New("the source is not UTF-8")
	case !utf8.ValidString(b.Name) || strings.ContainsAny(b.Name, "\x00\n\r"):
		return fmt.Errorf("the name %q is not a module name", b.Name)
	}
	return nil
}

// program returns the text for PyRun_SimpleString. It runs in __main__ yet binds no name there, catches every
// exception, and calls no builtin by a name that the program may have redefined (training scripts like a
// global "compile"). report is a Python expression for a function of one argument, the outcome in bytes;
// after is one more statement, or "".
func (b Bootstrap) program(report, after string) string {
	var s strings.Builder
	s.Grow(len(b.Source) + len(b.Source)/8 + 4096)
	s.WriteString("try:\n (lambda b, g: (b.exec(b.compile(")
	literal(&s, bootstrapPy)
	s.WriteString(", '<gmemtop bootstrap>', 'exec'), g), g.clear()))(__import__('builtins'), {'source': ")
	literal(&s, b.Source)
	s.WriteString(", 'filename': ")
	literal(&s, "<"+b.Name+">")
	s.WriteString(", 'name': ")
	literal(&s, b.Name)
	s.WriteString(", 'report': " + report + "})\nexcept: pass\n")
	if after != "" {
		s.WriteString("try:\n " + after + "\nexcept: pass\n")
	}
	return s.String()
}

// literal writes text as a Python string literal on one line.
func literal(s *strings.Builder, text string) {
	const hex = "0123456789abcdef"
	s.WriteByte('\'')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '\\' || c == '\'':
			s.WriteByte('\\')
			s.WriteByte(c)
		case c == '\n':
			s.WriteString(`\n`)
		case c < 0x20 || c == 0x7f:
			s.WriteString(`\x`)
			s.WriteByte(hex[c>>4])
			s.WriteByte(hex[c&15])
		default:
			s.WriteByte(c)
		}
	}
	s.WriteByte('\'')
}

// The memory that is mapped into the target, from its lowest address: a stack for remote calls, a page of
// bookkeeping, the text.
const (
	pageSize   = 4096
	stackSize  = 8 * pageSize
	headerAt   = stackSize
	textAt     = headerAt + pageSize
	tokenAt    = 0    // within the header: 16 random bytes
	begunAt    = 64   // a sem_t: the queue has been reached
	doneAt     = 128  // a sem_t: the text has been run
	outcomeAt  = 256  // what the bootstrap reports, NUL-terminated
	outcomeMax = 2048 // bytes
)

// layout is that memory at an address.
type layout struct {
	base uint64
	size uint64
}

func layoutFor(text string) layout {
	return layout{size: (textAt + uint64(len(text)) + 1 + pageSize - 1) &^ (pageSize - 1)}
}

func (l layout) header() uint64  { return l.base + headerAt }
func (l layout) stack() uint64   { return l.base + stackSize }
func (l layout) text() uint64    { return l.base + textAt }
func (l layout) begun() uint64   { return l.header() + begunAt }
func (l layout) done() uint64    { return l.header() + doneAt }
func (l layout) outcome() uint64 { return l.header() + outcomeAt }

// unknownAddress is a placeholder, of the greatest length, for an address in decimal that is filled in later.
const unknownAddress = "18446744073709551615"

// writesTo is the Python expression for a function that writes its argument to an address in its own process.
// It uses /proc/self/mem, so that ctypes need not be loaded; without /proc the outcome remains unknown.
func writesTo(addr string, limit int) string {
	const function = `lambda p: lambda text: (lambda fd: (p.pwrite(fd, text[:%d], %s), p.close(fd)))` +
		`(p.open('/proc/self/mem', p.O_WRONLY | p.O_CLOEXEC))`
	return "(" + fmt.Sprintf(function, limit, addr) + ")(__import__('posix'))"
}

// header is the first part of the bookkeeping page, as read from the target.
type header struct {
	token       [16]byte
	begun, done bool
	outcome     string
}

func parseHeader(b []byte) header {
	var h header
	copy(h.token[:], b[tokenAt:])
	h.begun = binary.LittleEndian.Uint32(b[begunAt:]) != 0
	h.done = binary.LittleEndian.Uint32(b[doneAt:]) != 0
	h.outcome, _, _ = strings.Cut(string(b[outcomeAt:outcomeAt+outcomeMax]), "\x00")
	h.outcome = strings.ToValidUTF8(h.outcome, "\uFFFD")
	return h
}

// judge turns a reported outcome into an error: nil for "ok" or if none could be reported.
func judge(pid int, outcome string) error {
	switch {
	case outcome == "ok" || outcome == "":
		return nil
	default:
		return &Error{Kind: errRaised, PID: pid,
			Message: "the injected source ended with " + strconv.QuoteToGraphic(outcome)}
	}
}
