//go:build linux && cgo

package control

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *library;

static const char *control_open(const char *path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library ? 0 : dlerror();
}
static void call_configure(const char *name, const char *value) {
    ((void (*)(const char *, const char *))dlsym(library, "standin_configure"))(name, value);
}
static void call_plain(const char *f) { ((void (*)(void))dlsym(library, f))(); }
static void call_fail(const char *f, long n, int answer) { ((void (*)(const char *, long, int))dlsym(library, "standin_fail"))(f, n, answer); }
static uint64_t call_calls(const char *f) { return ((uint64_t (*)(const char *))dlsym(library, "standin_calls"))(f); }
static const char *call_text(const char *f) { return ((const char *(*)(void))dlsym(library, f))(); }
static uint64_t call_number(const char *f) { return ((uint64_t (*)(void))dlsym(library, f))(); }
static int call_contexts(void) { return ((int (*)(void))dlsym(library, "standin_contexts"))(); }
*/
import "C"

import (
	"fmt"
	"strconv"
	"unsafe"

	"github.com/gmemtop/gmemtop/capture/standin"
)

// Orders in which streams do their work.
const (
	// Late does only what a wait needs.
	Late uint64 = 0
	// Once does everything at once.
	Once uint64 = 1
	// Drawn and everything above it are seeds: a wait runs work that may run at random.
	Drawn uint64 = 2
)

// Control is the stand-in in this process, of which there is one.
type Control struct {
	path    string
	machine standin.Machine
}

// Open loads a library into this process, as a machine that other processes do not see.
func Open(lib *standin.Library, m standin.Machine) (*Control, error) {
	c := &Control{path: lib.Path()}
	name := C.CString(c.path)
	defer C.free(unsafe.Pointer(name))
	if why := C.control_open(name); why != nil {
		return nil, fmt.Errorf("load the stand-in GPU: %s", C.GoString(why))
	}
	c.Reset(m)
	return c, nil
}

// Path returns the path of the library, for code that opens the driver itself.
func (c *Control) Path() string { return c.path }

// Reset makes it a new machine: no allocations, calls or violations.
func (c *Control) Reset(m standin.Machine) {
	if m.Board == "" {
		m.Board = "private"
	}
	c.machine = m
	c.configure(m)
	plain("standin_reset")
}

func (c *Control) configure(m standin.Machine) {
	for name, value := range m.Settings() {
		n, v := C.CString(name), C.CString(value)
		C.call_configure(n, v)
		C.free(unsafe.Pointer(n))
		C.free(unsafe.Pointer(v))
	}
}

// Order sets the order of work from now on.
func (c *Control) Order(seed uint64) {
	switch seed {
	case Late:
		c.machine.Order = standin.Late
	case Once:
		c.machine.Order = standin.Once
	default:
		c.machine.Order = strconv.FormatUint(seed, 10)
	}
	c.configure(c.machine)
	plain("standin_apply")
}

// Fail makes the n-th call of a function from now on return the given answer and do nothing. "*" stands for
// all functions except those that only describe the machine. After an answer that is fatal on a device, all
// later calls return it too.
func (c *Control) Fail(function string, n, answer int) {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	C.call_fail(name, C.long(n), C.int(answer))
}

// Calls counts the calls of a function since the last Reset, "*" all but those that only describe the
// machine.
func (c *Control) Calls(function string) int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int(C.call_calls(name))
}

func plain(function string) {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	C.call_plain(name)
}

func text(function string) string {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.GoString(C.call_text(name))
}

func number(function string) int64 {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int64(C.call_number(name))
}

// Violation returns the first thing done that no program may do, "" for none.
func (c *Control) Violation() string { return text("standin_violation") }

// Held returns the bytes of device memory held now, without contexts.
func (c *Control) Held() int64 { return number("standin_held") }

// Peak returns the most bytes held since the last Reset.
func (c *Control) Peak() int64 { return number("standin_peak") }

// Leaks returns how many things contexts still held when they were destroyed, which, and how many contexts
// there are now.
func (c *Control) Leaks() (things int, what string, contexts int) {
	return int(number("standin_leaked")), text("standin_leaks"), int(C.call_contexts())
}
