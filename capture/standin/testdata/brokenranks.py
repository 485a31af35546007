"""Two ranks, one of which breaks NCCL's rules. They call the library directly: torch would end the
process."""
import ctypes, os, subprocess, sys, threading

mode = sys.argv[1]
so = ctypes.CDLL(None)
for f in ("ncclGetErrorString", "ncclGetLastError"):
    getattr(so, f).restype = ctypes.c_char_p
P, N = ctypes.c_void_p, ctypes.c_size_t



class Id(ctypes.Structure):
    _fields_ = [("b", ctypes.c_ubyte * 128)]


so.ncclCommInitRank.argtypes = [ctypes.POINTER(P), ctypes.c_int, Id, ctypes.c_int]
so.ncclAllReduce.argtypes = [P, P, N, ctypes.c_int, ctypes.c_int, P, P]
so.ncclSend.argtypes = so.ncclRecv.argtypes = [P, N, ctypes.c_int, ctypes.c_int, P, P]
so.ncclGetLastError.argtypes = so.ncclCommAbort.argtypes = so.cudaStreamSynchronize.argtypes = so.cudaFree.argtypes = so.cudaStreamDestroy.argtypes = [P]
so.ncclCommGetAsyncError.argtypes = [P, ctypes.POINTER(ctypes.c_int)]
FLOAT, DOUBLE, SUM = 7, 8, 0

# Rank 0 starts rank 1 as a separate process, sends it the unique ID, and closes the pipe when it is done.
id, rank, child = Id(), int("rank1" in sys.argv), None
if rank == 0:
    assert so.ncclGetUniqueId(ctypes.byref(id)) == 0
    child = subprocess.Popen([sys.executable, *sys.argv, "rank1"], stdin=subprocess.PIPE)
    child.stdin.write(bytes(id))
    child.stdin.flush()
else:
    ctypes.memmove(ctypes.byref(id), sys.stdin.buffer.read(128), 128)
stream = P()
assert so.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
x, y = P(), P()
assert so.cudaMalloc(ctypes.byref(x), 1 << 20) == 0 and so.cudaMalloc(ctypes.byref(y), 1 << 21) == 0
comm = P()
assert so.ncclCommInitRank(ctypes.byref(comm), 2, id, rank) == 0
if mode in ("never", "unsent"):  # only now: on a busy machine rank 1 takes longer than a second to get here
    os.environ["STANDIN_PATIENCE"] = "1"


def reduce(count=4, type=FLOAT):
    return so.ncclAllReduce(x, y, count, type, SUM, comm, stream)


assert reduce() == 0 and so.cudaStreamSynchronize(stream) == 0
if mode == "killed":
    if rank == 1:
        os.kill(os.getpid(), 9)
    child.wait()
    reduce()
elif mode == "count":
    reduce(4 + rank)
elif mode == "type":
    reduce(4, FLOAT + rank)
elif mode == "receive":
    if rank == 0:
        so.ncclSend(x, 5, FLOAT, 1, comm, stream)
    else:
        so.ncclRecv(y, 3, FLOAT, 0, comm, stream)
elif mode == "absent" and rank == 0:  # rank 1 never comes, and another thread ends the wait
    reduce()
    answers = []
    watchdog = threading.Timer(0.5, lambda: answers.append(so.ncclCommAbort(comm)))
    watchdog.start()
elif mode == "never" and rank == 0:  # and nothing ends the wait
    reduce()
elif mode == "unsent" and rank == 0:
    so.ncclRecv(y, 3, FLOAT, 1, comm, stream)
elif mode in ("absent", "never", "unsent"):
    sys.stdin.buffer.read()  # until rank 0 is done
assert so.cudaStreamSynchronize(stream) == 0
if mode == "absent" and rank == 0:
    watchdog.join()
    print("rank 0 goes on; the abort answered", answers, flush=True)
elif mode == "absent":
    pass
else:
    state = ctypes.c_int()
    so.ncclCommGetAsyncError(comm, ctypes.byref(state))
    print(f"rank {rank}: {so.ncclGetErrorString(state.value).decode()}: {so.ncclGetLastError(comm).decode()}", flush=True)
if rank == 0 and mode != "killed":
    child.stdin.close()
    child.wait()
for p in (x, y):
    so.cudaFree(p)
so.cudaStreamDestroy(stream)
