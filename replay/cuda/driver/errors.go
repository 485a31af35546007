package driver

import (
	"errors"
	"fmt"
)

// What can go wrong, for errors.Is. Each text says what to do next.
var (
	// ErrNotBuilt says that this program was built without CUDA.
	ErrNotBuilt = errors.New("this program was built without CUDA: use make, which needs a C compiler and " +
		"no CUDA toolkit")
	// ErrNoDriver says that the machine has no NVIDIA driver.
	ErrNoDriver = errors.New("no NVIDIA driver on this machine: install one, or in a container start it " +
		"with --gpus all")
	// ErrNoDevice says that there is a driver and no GPU that it may use.
	ErrNoDevice = errors.New("no GPU: nvidia-smi -L and CUDA_VISIBLE_DEVICES say which ones this process " +
		"may use; of one in MIG mode name an instance (CUDA_VISIBLE_DEVICES=MIG-...)")
	// ErrTooOld says that the driver lacks a function that is needed.
	ErrTooOld = errors.New("the NVIDIA driver is too old: install 535 or newer")
	// ErrBusy says that another process has exclusive use of the device, or that the device accepts no
	// contexts.
	ErrBusy = errors.New("the GPU accepts no further process: end the one that has it, or set its compute " +
		"mode to default (nvidia-smi -c 0)")
	// ErrOutOfMemory says that the device does not have enough memory left.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrPinned says that the operating system or the driver refused to pin host memory.
	ErrPinned = errors.New("host memory could not be pinned: raise the memory limit (ulimit -l, the " +
		"container's), or plan with less swapping")
	// ErrECC says that the device's memory failed.
	ErrECC = errors.New("uncorrectable memory error of the GPU: it must be reset or replaced (nvidia-smi " +
		"-q -d ECC)")
	// ErrLost says that this process can no longer use the device.
	ErrLost = errors.New("the GPU was lost: dmesg and nvidia-smi say why; start again once it is back")
	// ErrAccess says that work on the device touched unmapped memory: a defect of the plan or of this
	// program.
	ErrAccess = errors.New("work on the GPU touched memory that it does not hold")
)

// Results of the driver that we distinguish (CUresult).
const (
	resultInvalidValue   = 1
	resultOutOfMemory    = 2
	resultDeinitialized  = 4
	resultStubLibrary    = 34
	resultUnavailable    = 46
	resultNoDevice       = 100
	resultInvalidDevice  = 101
	resultNotLicensed    = 102
	resultInvalidContext = 201
	resultNoBinary       = 209
	resultECC            = 214
	resultInvalidPTX     = 218
	resultNVLink         = 220
	resultPTXVersion     = 222
	resultContained      = 226
	resultNotFound       = 500
	resultNotReady       = 600
	resultIllegalAddress = 700
	resultTimeout        = 702
	resultAssert         = 710
	resultNotPermitted   = 800
	resultNotSupported   = 801
	resultNotReadySystem = 802
	resultMismatch       = 803
	resultCompatibility  = 804
	resultUnknown        = 999
)

// Error is the driver's answer to a failed call.
type Error struct {
	// Call is what was asked, in words; Code is the driver's answer (CUresult), Name its name.
	Call string
	Code int
	Name string
	kind error
}

// Error implements error.
func (e *Error) Error() string {
	if e.kind == nil {
		return fmt.Sprintf("%s: the driver answers %s (%d)", e.Call, e.Name, e.Code)
	}
	return fmt.Sprintf("%s: %v (%s)", e.Call, e.kind, e.Name)
}

// Unwrap returns the sentinel that the answer means, nil if none does.
func (e *Error) Unwrap() error { return e.kind }

// NewError returns the error for an answer other than success. Implementations of [Device] use it.
func NewError(call string, code int, name string) error {
	return &Error{Call: call, Code: code, Name: name, kind: kindOf(code)}
}

func kindOf(code int) error {
	switch code {
	case resultOutOfMemory:
		return ErrOutOfMemory
	case resultNoDevice, resultInvalidDevice:
		return ErrNoDevice
	case resultStubLibrary:
		return ErrNoDriver
	case resultUnavailable, resultNotLicensed:
		return ErrBusy
	case resultECC, resultContained:
		return ErrECC
	case resultNotFound, resultNotSupported, resultPTXVersion, resultInvalidPTX, resultNoBinary,
		resultCompatibility, resultMismatch:
		return ErrTooOld
	case resultIllegalAddress, resultAssert:
		return ErrAccess
	case resultDeinitialized, resultInvalidContext, resultNVLink, resultTimeout, resultUnknown,
		resultNotReadySystem:
		return ErrLost
	}
	if code > resultIllegalAddress && code <= 719 {
		// the faults of running work: all of them leave the context unusable
		return ErrLost
	}
	return nil
}
