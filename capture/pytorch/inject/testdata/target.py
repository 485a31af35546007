# A program to attach to. It works until state["stop"] is set from outside, keeps checking that its results
# are right, and prints what it found as JSON. The first argument says what its main thread does.
import ctypes, json, math, os, select, signal, sys, threading, time, zlib

state = {"n": 0, "stop": False, "threads": []}
compile = exec = len_ = True  # training scripts have such globals
bad = []
libc = ctypes.CDLL(None, use_errno=True)
held = ctypes.PyDLL(None)  # keeps the interpreter lock during a call


def work():
    x, f = 1, 0.0
    for i in range(3000):
        x = (x * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        f = f * 0.999 + math.sin(x % 1000) * 1e-3
    values = [math.sqrt(i + 0.5) for i in range(2000)]
    return x, f, sum(values), zlib.crc32(b"gmemtop" * 20000), math.fsum(values)


expected = work()


def check(where):
    got = work()
    if got != expected:
        bad.append("%s computed %r, not %r" % (where, got, expected))


def until_stopped(name, once):
    while not state["stop"]:
        once()
    state.setdefault("ended", []).append(name)


def threads(n):
    all = [threading.Thread(target=until_stopped, args=("thread %d" % i, lambda: check("a thread")))
           for i in range(n)]
    for t in all:
        t.start()
    return all


def call(name, *args, want=0):
    ctypes.set_errno(0)
    rc = getattr(libc, name)(*args)
    if rc != want:
        bad.append("%s returned %d, errno %d, not %d" % (name, rc, ctypes.get_errno(), want))


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def nanosleep():
    start = time.monotonic()
    call("nanosleep", ctypes.byref(Timespec(0, 300000000)), None)
    if time.monotonic() - start < 0.299:
        bad.append("nanosleep was cut short")


def poll():
    start = time.monotonic()
    call("poll", None, 0, 300)
    if time.monotonic() - start < 0.299:
        bad.append("poll was cut short")


word = ctypes.c_int(0)


def futex():  # FUTEX_WAIT on a word that nobody wakes: times out
    ctypes.set_errno(0)
    rc = libc.syscall(202, ctypes.byref(word), 0, 0, ctypes.byref(Timespec(0, 300000000)), None, 0)
    if rc != -1 or ctypes.get_errno() != 110:
        bad.append("futex returned %d, errno %d" % (rc, ctypes.get_errno()))


def read():
    r, w = os.pipe()
    threading.Timer(0.3, os.write, (w, b"x")).start()
    call("read", r, ctypes.create_string_buffer(1), 1, want=1)
    os.close(r)
    os.close(w)


def mode_compute():
    all = threads(3)
    until_stopped("main", lambda: check("the main thread"))
    for t in all:
        t.join()


def mode_blocked():
    calls = [nanosleep, poll, futex, read]
    until_stopped("main", lambda: calls[state["n"] % len(calls)]())


def mode_asleep():  # long enough for the whole test, in small pieces of Python
    until_stopped("main", lambda: time.sleep(0.02))  # what is stopped is a call that sleeps


def mode_signals():
    state["timer"] = state["acked"] = 0

    def tick(n, f):
        state["timer"] += 1

    def ack(n, f):
        state["acked"] += 1
        os.write(1, b"ack\n")

    signal.signal(signal.SIGALRM, tick)
    signal.signal(signal.SIGUSR1, ack)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTRAP])
    signal.signal(signal.SIGTRAP, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    os.write(1, b"handlers set\n")
    all = threads(2)
    until_stopped("main", lambda: check("the main thread"))
    signal.setitimer(signal.ITIMER_REAL, 0)
    for t in all:
        t.join()
    if state["timer"] == 0:
        bad.append("the timer's handler never ran")
    if signal.getsignal(signal.SIGTRAP) != signal.SIG_IGN:
        bad.append("SIGTRAP is no longer ignored")
    if signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, []):
        bad.append("SIGUSR2 is no longer blocked")


class Interrupted(Exception):
    pass


def mode_raising():  # a handler that raises, as a timeout does; the main thread must see each one
    state["raised"] = state["seen"] = 0

    def alarm(n, f):
        state["raised"] += 1
        raise Interrupted()

    # CPython 3.10 to 3.13 may lose what a handler raises at the jump that ends a loop: the jump is not a part
    # of the try statement around it (python/cpython issue 108214). So the try statement holds a call.
    def loop():
        while not state["stop"]:
            check("the main thread")

    signal.signal(signal.SIGALRM, alarm)
    news = b"handlers set\n"
    while True:
        try:  # whoever reads this sends the next signal, so it is written in here
            if news:
                now, news = news, b""
                os.write(1, now)
            loop()
            return
        except Interrupted:
            state["seen"] += 1
            news = b"seen\n"


def mode_incall():  # one long call in C that keeps the interpreter lock
    def once():
        os.write(1, b"in call\n")
        held.usleep(1800000)
        check("the main thread")

    until_stopped("main", once)


def mode_forks():
    def once():
        pid = os.fork()
        if pid == 0:
            code = 0
            for _ in range(3):
                check("a child")
            if bad or state["n"] > n:
                code = 1
            os._exit(code)
        check("the main thread")
        if os.waitpid(pid, 0)[1] != 0:
            bad.append("a child failed")

    all = threads(1)
    while not state["stop"]:
        n = state["n"]
        once()
    for t in all:
        t.join()


def mode_exec():  # another thread replaces the program while the main one is in a call
    def replace():
        time.sleep(3)  # by then the main thread is stopped in its call
        os.execv(sys.executable, [sys.executable, "-c",
                                  # a moment in which it can be looked at
                                  "import time; time.sleep(1); print('{\"bad\": [], \"replaced\": true}')"])

    threading.Thread(target=replace).start()
    os.write(1, b"in call\n")
    libc.usleep(10000000)


def mode_undumpable():
    libc.prctl(4, 0, 0, 0, 0)
    os.write(1, b"undumpable\n")
    mode_asleep()


def mode_faulthandler():
    import faulthandler

    faulthandler.enable()
    mode_compute()


def mode_seccomp():  # a filter that kills the process if it makes a system call that does not exist
    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte),
                    ("k", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]

    code = (Filter * 4)(Filter(0x20, 0, 0, 0), Filter(0x25, 0, 1, 1000), Filter(0x06, 0, 0, 0x80000000),
                        Filter(0x06, 0, 0, 0x7FFF0000))
    call("prctl", 38, 1, 0, 0, 0)
    call("prctl", 22, 2, ctypes.byref(Program(4, code)), 0, 0)
    os.write(1, b"filtered\n")
    mode_compute()


before = (sorted(globals()), sorted(sys.modules), sys.gettrace(), sys.getprofile())
os.write(1, b"ready\n")
globals()["mode_" + sys.argv[1]]()
after = (sorted(globals()), sorted(sys.modules), sys.gettrace(), sys.getprofile())
new = [n for n in after[0] if n not in before[0] + ["before", "after", "new", "__warningregistry__"]]
if new:
    bad.append("names left in __main__: %s" % new)
if sys.argv[1] != "faulthandler" and before[1:] != after[1:]:
    bad.append("modules left: %s" % (set(after[1]) ^ set(before[1])))
del state["threads"]
print(json.dumps(dict(state, bad=bad)))
