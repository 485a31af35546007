"""The runtime and the driver through ctypes, for the laws in laws_test.go. Integers are passed as 64 bits,
the size of a register."""
import ctypes
import os
import subprocess
import sys

cuda = ctypes.CDLL("libcuda.so.1")
MiB = 1 << 20


def word(x):
    if isinstance(x, int):
        return ctypes.c_int64(x if x < 1 << 63 else x - (1 << 64))
    return x


def ask(function, *args):
    """Calls a function and returns its answer."""
    return getattr(cuda, function)(*map(word, args))


def call(function, *args):
    """Calls a function that must return 0."""
    answer = ask(function, *args)
    assert answer == 0, f"{function} answered {answer}"


def out(function, *args, kind=ctypes.c_uint64):
    """Calls a function whose first argument points to the result, and returns that."""
    result = kind()
    call(function, ctypes.byref(result), *args)
    return result.value


def memory(size):
    return out("cudaMalloc", size)


class Pinned:
    """Pinned host memory."""

    def __init__(self, size, fill=0):
        self.at, self.size = out("cudaHostAlloc", size, 0), size
        ctypes.memset(self.at, fill, size)

    def bytes(self):
        return ctypes.string_at(self.at, self.size)

    def free(self):
        call("cudaFreeHost", self.at)


def stream(flags=1):
    return out("cudaStreamCreateWithFlags", flags)


def event(flags=2):
    return out("cudaEventCreateWithFlags", flags)


def fill(at, value, size, s):
    call("cudaMemsetAsync", at, value, size, s)


def copy(to, source, size, s):
    call("cudaMemcpyAsync", to, source, size, 4, s)


def wait(s):
    call("cudaStreamSynchronize", s)


def wait_for_device():
    call("cudaDeviceSynchronize")


def after(s, e, before):
    """Makes a stream wait for the work that another has so far."""
    call("cudaEventRecord", e, before)
    call("cudaStreamWaitEvent", s, e, 0)


def read(at, size=4):
    """Reads device memory after everything on it is done."""
    wait_for_device()
    buffer = ctypes.create_string_buffer(size)
    call("cudaMemcpy", buffer, at, size, 2)
    return buffer.raw


def free(*things):
    for x in things:
        if isinstance(x, Pinned):
            x.free()
        else:
            call("cudaFree", x)


def close(*streams, events=()):
    for s in streams:
        call("cudaStreamDestroy", s)
    for e in events:
        call("cudaEventDestroy", e)


def free_memory():
    """What is free on the current device."""
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cudaMemGetInfo", ctypes.byref(available), ctypes.byref(total))
    return available.value


def child(code, **options):
    """Starts a Python process on the same machine that runs code."""
    return subprocess.Popen([sys.executable, "-c", "import sys; sys.path.insert(0, %r)\nfrom cuda import *\n%s" % (os.path.dirname(__file__), code)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
