"""Runs a schedule on the virtual clock: reads one instruction a line, prints the times of marks in
nanoseconds.

op S FLOPS BYTES [NAME]   one kernel, of an op with that much work
kernel S                  a kernel outside any op
in S BYTES, out S BYTES   a copy of pinned memory to the device, or from it
wait S T                  stream S waits for the work that T has so far
record NAME S             notes the work that S has so far
await S NAME              stream S waits for the work that was noted under the name
sync S                    the host waits for S
mark NAME S               prints when the work that S has so far ends
beside S N                another thread, which gives no work, queries S so often
poll S                    queries S until it is done, and prints how often
host                      prints the host's clock
"""
import collections
import ctypes
import sys
import threading

from cuda import Pinned, after, ask, call, cuda, event, memory, stream, wait

MOST = 1 << 20
cuda.standin_op_end.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
cuda.standin_op_end.argtypes += [ctypes.c_double, ctypes.c_double, ctypes.c_int]
cuda.standin_op_end.restype = cuda.standin_now.restype = ctypes.c_uint64


class Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def kernel(s):
    one = Dim(1, 1, 1)
    none = ctypes.c_size_t(0)
    assert not cuda.cudaLaunchKernel(ctypes.c_void_p(1), one, one, None, none, ctypes.c_void_p(s))


device, host = memory(MOST), Pinned(MOST)
streams = collections.OrderedDict((name, stream()) for name in "abc")
waits, marks, notes = [event(2) for _ in range(8)], [], {}
origin = event(0)
began = cuda.standin_now()  # reading the clock takes 25
call("cudaEventRecord", origin, streams["a"])
for line in open(sys.argv[1]):
    word, *rest = line.split() or ["#"]
    s = streams.get(rest[0]) if rest else None
    if word == "op":
        cuda.standin_op_begin()
        kernel(s)
        name = rest[3] if len(rest) > 3 else "test::op"
        cuda.standin_op_end(s, name.encode(), b"", float(rest[1]), float(rest[2]), 0)
    elif word == "kernel":
        kernel(s)
    elif word == "in":
        call("cudaMemcpyAsync", device, host.at, int(rest[1]), 1, s)
    elif word == "out":
        call("cudaMemcpyAsync", host.at, device, int(rest[1]), 2, s)
    elif word == "wait":
        after(s, waits.pop(), streams[rest[1]])
    elif word == "record":
        notes[rest[0]] = event(2)
        call("cudaEventRecord", notes[rest[0]], streams[rest[1]])
    elif word == "await":
        call("cudaStreamWaitEvent", s, notes[rest[1]], 0)
    elif word == "sync":
        wait(s)
    elif word == "mark":
        e = event(0)
        call("cudaEventRecord", e, streams[rest[1]])
        marks.append((rest[0], e))
    elif word == "poll":
        asked = 1
        while ask("cudaStreamQuery", s):
            asked += 1
        print("asked", asked)
    elif word == "beside":
        thread = threading.Thread(target=lambda: [ask("cudaStreamQuery", s) for _ in range(int(rest[1]))])
        thread.start()
        thread.join()
    elif word == "host":
        print("host", cuda.standin_now() - began - 25)
    else:
        assert word == "#", line
call("cudaDeviceSynchronize")
ms = ctypes.c_float()
for name, e in marks:
    call("cudaEventElapsedTime", ctypes.byref(ms), origin, e)
    print(name, round(ms.value * 1e6))
