//go:build cuda && linux && cgo

package libcuda

/*
#cgo LDFLAGS: -L${SRCDIR}/stub -ldl
#include <cuda.h>

int libcuda_open(const char *path, char *why, int size, int *missing);
void libcuda_close(void);
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"
)

// Name is the name of the driver's library; the dynamic linker knows where it is.
const Name = "libcuda.so.1"

// ErrNoLibrary is wrapped by Open's error if there is no library to open.
var ErrNoLibrary = errors.New("no library")

var (
	mu     sync.Mutex // the table belongs to the process
	users  int
	opened string
	absent int
)

// Open opens the driver's library at a path ("" for [Name]) and starts the driver. It returns how many of the
// functions that are called here this driver lacks; those answer CUDA_ERROR_NOT_FOUND (500). The error wraps
// ErrNoLibrary, or is a [Result], the driver's own. Every Open needs a [Close], and all must open the same
// library.
func Open(path string) (missing int, err error) {
	if path == "" {
		path = Name
	}
	mu.Lock()
	defer mu.Unlock()
	if users > 0 {
		if path != opened {
			return 0, fmt.Errorf("open %s: %s is in use already", path, opened)
		}
		users++
		return absent, nil
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var why [512]C.char
	var lacks C.int
	switch r := C.libcuda_open(name, &why[0], C.int(len(why)), &lacks); {
	case r < 0:
		return 0, fmt.Errorf("%w: %s", ErrNoLibrary, C.GoString(&why[0]))
	case r > 0:
		return 0, Result(r)
	}
	users, opened, absent = 1, path, int(lacks)
	return absent, nil
}

// Close releases the library. After the last Close every function answers CUDA_ERROR_NOT_FOUND again.
func Close() {
	mu.Lock()
	defer mu.Unlock()
	if users--; users == 0 {
		C.libcuda_close()
	}
}

// Result is a driver function's answer other than success (CUresult).
type Result int

// Error implements error: the driver's name of the result, if it has one.
func (r Result) Error() string {
	var name *C.char
	if C.cuGetErrorName(C.CUresult(r), &name) == C.CUDA_SUCCESS && name != nil {
		return C.GoString(name)
	}
	return fmt.Sprintf("CUDA error %d", int(r))
}

func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return Result(r)
}
