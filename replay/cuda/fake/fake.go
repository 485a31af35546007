//go:build cuda && linux && cgo

package fake

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void *library;

static const char *fake_open(const char *path) {
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return library ? 0 : dlerror();
}
static void call_reset(uint64_t capacity, uint64_t outside, uint64_t seed) {
    ((void (*)(uint64_t, uint64_t, uint64_t))dlsym(library, "fake_reset"))(capacity, outside, seed);
}
static void call_schedule(uint64_t seed) { ((void (*)(uint64_t))dlsym(library, "fake_schedule"))(seed); }
static void call_machine(int driver, int devices, int mode) { ((void (*)(int, int, int))dlsym(library, "fake_machine"))(driver, devices, mode); }
static void call_fail(const char *f, long n, int answer) { ((void (*)(const char *, long, int))dlsym(library, "fake_fail"))(f, n, answer); }
static long call_calls(const char *f) { return ((long (*)(const char *))dlsym(library, "fake_calls"))(f); }
static const char *call_text(const char *f) { return ((const char *(*)(void))dlsym(library, f))(); }
static uint64_t call_bytes(const char *f) { return ((uint64_t (*)(void))dlsym(library, f))(); }
static long call_leaked(void) { return ((long (*)(void))dlsym(library, "fake_leaked"))(); }
static int call_contexts(void) { return ((int (*)(void))dlsym(library, "fake_contexts"))(); }
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"
)

// Schedules of work that has been given to streams.
const (
	// Lazy does no more than what is waited for needs.
	Lazy uint64 = 0
	// AtOnce does everything when it is given.
	AtOnce uint64 = 1
	// Drawn and everything above it are seeds of orders in which, when something is waited for, whatever may run runs.
	Drawn uint64 = 2
)

// Library is the compiled library. The process has one.
type Library struct{ path string }

// ErrNoCompiler says that there is no C compiler to compile the library with.
var ErrNoCompiler = errors.New("no C compiler (cc)")

// Build compiles the library into a folder, under the name that the driver's has, and opens it. The working directory must lie
// within the module.
func Build(folder string) (*Library, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, ErrNoCompiler
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(root, "replay", "cuda")
	sources, err := filepath.Glob(filepath.Join(home, "fake", "src", "*.c"))
	if err != nil || len(sources) == 0 {
		return nil, fmt.Errorf("find the fake driver's sources below %s: %w", home, err)
	}
	l := &Library{filepath.Join(folder, "libcuda.so.1")}
	args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden",
		"-I" + filepath.Join(home, "driver", "libcuda", "include"), "-o", l.path}
	if out, err := exec.Command(cc, append(args, sources...)...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the fake driver: %w\n%s", err, out)
	}
	name := C.CString(l.path)
	defer C.free(unsafe.Pointer(name))
	if why := C.fake_open(name); why != nil {
		return nil, fmt.Errorf("open the fake driver: %s", C.GoString(why))
	}
	l.Reset(1<<30, 0)
	return l, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = up
	}
	return "", err
}

// Path is where the library lies.
func (l *Library) Path() string { return l.path }

// Reset makes it a new device of capacity bytes, of which other processes hold outside.
func (l *Library) Reset(capacity, outside int64) {
	C.call_reset(C.uint64_t(capacity), C.uint64_t(outside), 0)
}

// Schedule says in which order work is done.
func (l *Library) Schedule(seed uint64) { C.call_schedule(C.uint64_t(seed)) }

// Machine says what the driver is: the newest CUDA that it supports, its number of devices and their compute mode.
func (l *Library) Machine(version, devices, mode int) {
	C.call_machine(C.int(version), C.int(devices), C.int(mode))
}

// Fail makes the n-th call of a function from now on, "*" for any, answer what is given instead of doing anything. Answers that
// are fatal on a device (214, and 700 and above) are answered by all later calls, too.
func (l *Library) Fail(function string, n, answer int) {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	C.call_fail(name, C.long(n), C.int(answer))
}

// Calls counts the calls of a function, "*" for all, since the last Reset.
func (l *Library) Calls(function string) int {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int(C.call_calls(name))
}

func text(function string) string {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return C.GoString(C.call_text(name))
}

func bytes(function string) int64 {
	name := C.CString(function)
	defer C.free(unsafe.Pointer(name))
	return int64(C.call_bytes(name))
}

// Violation says what was done first that no program may do; "" for nothing.
func (l *Library) Violation() string { return text("fake_violation") }

// Held returns the bytes held now, Peak the most that were held since the last Reset.
func (l *Library) Held() int64 { return bytes("fake_held") }

// Peak returns the most bytes that were held.
func (l *Library) Peak() int64 { return bytes("fake_peak") }

// Leaks returns how many things contexts still held when they were destroyed, and says which; and how many contexts there are now.
func (l *Library) Leaks() (things int, what string, contexts int) {
	return int(C.call_leaked()), text("fake_leaks"), int(C.call_contexts())
}
