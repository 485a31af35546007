"""The functions that libstandin.so offers to Python. The library is preloaded, so the process itself has
them.
"""

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
    """Switch off, or on again, what this thread enqueues: kernels, and copies within the device."""
    _suppress(1 if on else 0)


def deferred():
    """Tell whether work of a stream may run later than it is enqueued."""
    return _order() != 1


def note(op, why):
    """List an op in the process's report as not computed."""
    _note(op.encode(), why.encode())
