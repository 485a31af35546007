package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// PEP 768: in CPython 3.14, _Py_DebugOffsets, the first member of _PyRuntime, says where a debugger writes
// the path of a script for the interpreter to run. Sources: PEP 768; Doc/howto/remote_debugging.rst and
// Include/internal/pycore_debug_offsets.h of 3.14.
//
// The offsets' own layout is private to each minor version: only 3.14's is known here, any other is refused.
const (
	offsetsMinor = 14
	offsetsSize  = 95 * 8

	atInterpretersHead = 5 * 8
	atInterpreterID    = 7 * 8
	atInterpreterNext  = 8 * 8
	atThreadsMain      = 10 * 8
	atNativeThreadID   = 28 * 8
	atEvalBreaker      = 89 * 8
	atSupport          = 90 * 8
	atEnabled          = 91 * 8
	atPendingCall      = 92 * 8
	atScriptPath       = 93 * 8
	atScriptPathSize   = 94 * 8

	pleaseStop      = 1 << 5 // _PY_EVAL_PLEASE_STOP_BIT of a thread's eval_breaker
	maxInterpreters = 1024
)

var errRemoteDebugOff = errors.New("remote debugging is switched off in this interpreter")

// remoteDebug has the addresses through which we tell the main thread of a 3.14 interpreter to run a script.
type remoteDebug struct {
	evalBreaker uint64
	pending     uint64 // int32
	path        uint64
	pathSize    uint64 // bytes, with the terminating NUL
	thread      uint64 // native id of the main thread
}

// findRemoteDebug reads _Py_DebugOffsets at runtime and follows it to the main thread.
func findRemoteDebug(mem io.ReaderAt, runtime uint64) (remoteDebug, error) {
	var r remoteDebug
	b, err := readBytes(mem, runtime, offsetsSize)
	if err != nil {
		return r, err
	}
	le := binary.LittleEndian
	if string(b[:8]) != debugCookie {
		return r, errors.New("the cookie of _Py_DebugOffsets is missing")
	}
	if v := le.Uint64(b[8:]); v>>24 != 3 || v>>16&0xff != offsetsMinor {
		return r, fmt.Errorf("_Py_DebugOffsets is of version %#x, and only 3.%d is known", v, offsetsMinor)
	}
	offset := func(at int) uint64 { return le.Uint64(b[at:]) }
	for _, at := range []int{atInterpretersHead, atInterpreterID, atInterpreterNext, atThreadsMain,
		atNativeThreadID, atEvalBreaker,
		atSupport, atEnabled, atPendingCall, atScriptPath, atScriptPathSize} {
		if offset(at) > 1<<24 {
			return r, errors.New("_Py_DebugOffsets holds offsets that make no sense")
		}
	}
	word := func(addr uint64) uint64 {
		if err != nil {
			return 0
		}
		var v []byte
		if v, err = readBytes(mem, addr, 8); err != nil {
			return 0
		}
		return le.Uint64(v)
	}
	interp := word(runtime + offset(atInterpretersHead))
	for range maxInterpreters { // the main one has id 0 and is the last of the list
		if err != nil || interp == 0 || word(interp+offset(atInterpreterID)) == 0 {
			break
		}
		interp = word(interp + offset(atInterpreterNext))
	}
	if err != nil {
		return r, err
	}
	if interp == 0 {
		return r, errors.New("it has no main interpreter yet")
	}
	enabled := word(interp + offset(atEnabled))
	thread := word(interp + offset(atThreadsMain))
	if err != nil {
		return r, err
	}
	if uint32(enabled) == 0 {
		return r, errRemoteDebugOff
	}
	if thread == 0 {
		return r, errors.New("its interpreter has no main thread")
	}
	r = remoteDebug{
		evalBreaker: thread + offset(atEvalBreaker),
		pending:     thread + offset(atSupport) + offset(atPendingCall),
		path:        thread + offset(atSupport) + offset(atScriptPath),
		pathSize:    offset(atScriptPathSize),
		thread:      word(thread + offset(atNativeThreadID)),
	}
	if r.pathSize < 64 || r.pathSize > 1<<16 {
		return r, errors.New("_Py_DebugOffsets holds a path size that makes no sense")
	}
	return r, err
}
