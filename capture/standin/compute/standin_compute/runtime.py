"""The functions of libstandin.so for Python. The library is preloaded, so they are found in the process."""

import ctypes

_process = ctypes.CDLL(None)


def _function(name, result, *arguments):
    try:
        f = getattr(_process, name)
    except AttributeError:
        raise RuntimeError(
            f"STANDIN_COMPUTE needs libstandin.so in this process, and {name} is missing: "
            "preload it with LD_PRELOAD"
        ) from None
    f.restype, f.argtypes = result, arguments
    return f


Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_enqueue = _function("standin_enqueue", ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_suppress = _function("standin_suppress", None, ctypes.c_int)
_order = _function("standin_order", ctypes.c_int)
_note = _function("standin_note_uncomputed", None, ctypes.c_char_p, ctypes.c_char_p)


def enqueue(stream, callback, ticket):
    """Make callback(ticket) work of a stream (a raw handle) of the current device."""
    _enqueue(stream, ctypes.cast(callback, ctypes.c_void_p), ticket)


def suppress(on):
    """Drop what this thread enqueues (kernels, and copies within the device), or stop dropping it."""
    _suppress(1 if on else 0)


def deferred():
    """Report whether a stream's work may run later than it is enqueued."""
    return _order() != 1


def note(op, why):
    """List an op in the process's report as not computed."""
    _note(op.encode(), why.encode())
