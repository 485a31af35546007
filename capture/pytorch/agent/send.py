"""The thread that sends what training produced and takes the viewer's orders.

The agent connects, says who it is and waits for the welcome. While nobody listens it tries again every
second, so a viewer that died can come back. The thread looks for something to send about twice a second, at
once after the first step, and more often while a window is made. What waits is bounded: steps by number (the
oldest are dropped first), windows by number, frames by bytes. What was dropped is counted, and the count is
sent.
"""

from __future__ import annotations

import collections
import json
import os
import select
import socket
import struct
import sys
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any, Iterator, Mapping

from .recorded import RECORDED, allocator_rules
from .settings import settings
from .totals import SHARE
from .wire import (
    ACCEPTED,
    ANSWER,
    BYE,
    DATA,
    DETACH,
    DONE,
    HELLO,
    LOST,
    MAX_FRAME,
    NOTICE,
    ORDER,
    REFUSED,
    STEPS,
    VERSION,
    WELCOME,
    WHOLE,
    WINDOW,
)

if TYPE_CHECKING:
    from .kinds import Device, Wish
    from .window import Window


MAX_GPUS = 64  # that are described
MAX_UNSENT = 8 << 20  # bytes that wait for a viewer that does not read
MAX_STEPS = 20000  # steps that wait for a viewer to come, about 5 MiB
# milliseconds between two looks at what there is to send: SHARE times what the last one took, within these
TICK, SLOWEST = 500, 2000
LAST = 60.0  # seconds that a process which ends waits at most for a viewer that reads
ALONE = 60  # seconds after which an agent that was brought in and has met nobody goes
WAITING = "waiting for the first optimizer step"


def number_of(told: dict[str, Any], name: str) -> int:
    """A number of an order, 0 where it has none. Viewers read 64 bits."""
    n = int(told.get(name, 0))
    if not -(1 << 63) <= n < 1 << 63:
        raise ValueError("%s takes more than 64 bits" % name)
    return n


class Sender:
    """The half of the agent that runs on a thread of its own. Agent is the other half."""

    # What the others have.
    torch: Any
    launched: bool
    epoch: int
    index: int
    hooks: list[Any]
    window: Any
    carrier: Any
    orders: collections.deque[dict[str, Any]]
    device: Device
    room: int
    statm: int

    if TYPE_CHECKING:

        def _arm(self) -> None: ...
        def _caught(self, error: BaseException) -> bool: ...
        def _importing(self) -> bool: ...
        def _stepping(self) -> bool: ...
        def _undo(self) -> None: ...

    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = os.getpid()
        self.dead = self.leaving = self.gone = False
        self.why = ""
        self.exit: dict[str, Any] | None = None
        self.left: list[str] = []
        self.steps: collections.deque[tuple[Any, ...]] = collections.deque(maxlen=MAX_STEPS)
        self.produced = 0
        self.taken = 0
        self.missed = 0
        self.notices: collections.deque[tuple[int, dict[str, Any]]] = collections.deque(maxlen=100)
        self.answers: collections.deque[dict[str, Any]] = collections.deque(maxlen=1000)
        self.ready: collections.deque[Window] = collections.deque()
        # what is asked for is taken up by the training thread, and nothing between is lost
        self.want: collections.deque[Wish] = collections.deque(maxlen=100)
        self.every = 0
        self.unfinished: Window | None = None
        # how windows are captured, whether saved tensors wait on the host, and whether the viewer
        # knows
        self.how, self.offloads, self.told_who = settings.depth, False, True
        self.lasted = 0  # nanoseconds of the newest step
        self.thread: threading.Thread | None = None
        self.bell: Any = None
        self.sock: Any = None
        self.welcome = False
        self.out = bytearray()
        self.unread = bytearray()
        self.inflight = 0
        self.sending: Iterator[bool] | None = None
        self.hello: Any = None
        self.poll: Any = None
        self.markers: list[str] = []
        self.hurry = 0.0
        self.alone = 0
        self.written = 0

    def _start(self) -> None:
        self.bell = os.pipe()
        for end in self.bell:
            os.set_blocking(end, False)
        self.thread = threading.Thread(target=self._run, name="gmemtop", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            if not self.hooks and not self.launched:
                while self._importing():
                    time.sleep(0.02)
                while self._stepping():
                    time.sleep(0.001)
                self._arm()
            self._mark()
            wait = TICK
            while not (
                self.dead
                or self.leaving
                and self.window is None
                and self.carrier is None
                or self.exit is not None
            ):
                if self.sock is None and not self._connect():
                    self.alone += 1
                    self.leaving = (
                        self.leaving or self.alone > ALONE and self.hello is None and not self.launched
                    )
                    self._sleep(1000)
                else:
                    begin = time.thread_time()
                    self._exchange(wait)
                    wait = min(max(TICK, int(1000 * SHARE * (time.thread_time() - begin))), SLOWEST)
        except BaseException as e:  # on this thread nobody else would hear of one that is no Exception
            self._caught(e)
            self.sending = None
            self._drop()
        try:
            inside = self.dead and self.exit is None and (self.window is not None or self.carrier is not None)
            if inside:
                self._last_word()
                while self.exit is None and (self.window is not None or self.carrier is not None):
                    time.sleep(0.02)  # until a step ends, on whose thread the window's mode is left
            try:
                if self.exit is None:
                    self._undo()
            except Exception as e:
                self._caught(e)
            if not inside:
                self._unmark()  # a viewer that reads the goodbye may attach again at once
                self._last_word()
        except Exception:
            pass
        finally:
            self.gone = True
            if self.exit is None:
                self._drop()
            self._unmark()
            # a process that ends may ring still
            ends = [] if self.bell is None or self.exit is not None else list(self.bell)
            for there, close, what in [
                (self.sock, socket.socket.close, self.sock),
                (self.statm >= 0, os.close, self.statm),
            ] + [(True, os.close, end) for end in ends]:
                try:
                    if there:
                        close(what)
                except OSError:
                    pass
            self.sock, self.statm, self.ready, self.thread = None, -1, collections.deque(), None

    def _ring(self) -> None:
        """Have the thread look at once."""
        try:
            os.write(self.bell[1], b"!")
        except OSError:
            pass  # it rings already

    def _sleep(self, wait: int) -> None:
        poll = select.poll()
        poll.register(self.bell[0], select.POLLIN)
        if poll.poll(wait):
            os.read(self.bell[0], 4096)

    def _last_word(self) -> None:
        """Part from the viewer, who hears why whatever stands in the way."""
        try:
            self._part()
        except Exception as e:
            if self.sock is not None:
                self._frame(
                    BYE,
                    {
                        "reason": "disarmed",
                        "detail": "%s; its last words were lost: %s: %s" % (self.why, type(e).__name__, e),
                    },
                )
                self.sock.settimeout(0.5)
                self.sock.sendall(self.out)

    def _part(self) -> None:
        """Send what waits and the last word. A viewer that takes nothing for a second is given up. One
        that reads has five seconds, or LAST where the process ends and waits for this: its last window may
        be large, and says what it died of."""
        begin = time.monotonic()
        deadline, last = begin + 1.0, begin + (5.0 if self.exit is None else LAST)
        if self.sock is None:
            return
        if self.dead and self.why:
            self._say("the agent met an error and has gone, training goes on: " + self.why, "disarmed")
        end = self.exit or {"reason": "detached" if self.leaving else "disarmed", "detail": self.why}
        if self.left:
            end = dict(end, left=self.left)
        sent = False
        while time.monotonic() < deadline and self.sock is not None:
            if not sent and not self._pending():
                self._frame(BYE, end)
                sent = True
            elif sent and not self.out:
                break
            began, before = time.monotonic(), self.written
            self._fill()  # a history may take seconds to put together, in which nobody waits for the viewer
            deadline = min(deadline + time.monotonic() - began, last)
            self._exchange(20)
            if self.written != before:
                deadline = min(time.monotonic() + 1.0, last)

    def _mark(self) -> None:
        """Leave word of where a viewer finds the agent, in folders that only its user can enter: one of
        its own, and the one that the socket is in."""
        own = os.path.join(os.environ.get("XDG_RUNTIME_DIR") or "/tmp", "gmemtop-%d" % os.getuid())
        for folder in sorted({own, os.path.dirname(self.path)}):
            try:
                if folder == own and not os.path.isdir(folder):
                    os.mkdir(folder, 0o700)  # the other is the viewer's to make
                if os.lstat(folder).st_uid != os.getuid() or os.path.islink(folder):
                    continue
                path = os.path.join(folder, "%d.json" % self.pid)
                with open(path + ".part", "w") as f:
                    json.dump(
                        {"version": VERSION, "pid": self.pid, "start": self._started(), "socket": self.path},
                        f,
                    )
                os.replace(path + ".part", path)
                self.markers.append(path)
            except OSError:
                pass  # without it the agent is not found again; it is no reason to trouble the training

    def _unmark(self) -> None:
        """Remove the markers: viewers no longer find this agent, and another may start in this process."""
        threading.current_thread().name = "gmemtop, leaving"
        while self.markers:
            try:
                os.unlink(self.markers.pop())
            except OSError:
                pass

    def _started(self) -> int:
        try:
            with open("/proc/self/stat") as f:
                return int(f.read().rpartition(")")[2].split()[19])
        except (OSError, ValueError, IndexError):
            return 0

    def _connect(self) -> bool:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(1.0)
            sock.connect(self.path)
            sock.setblocking(False)
        except OSError:
            sock.close()
            return False
        self.sock, self.out, self.unread, self.welcome, self.inflight = (
            sock,
            bytearray(),
            bytearray(),
            False,
            0,
        )
        self.poll = select.poll()
        self.poll.register(sock, select.POLLIN)
        self.poll.register(self.bell[0], select.POLLIN)
        self.hello = self._who()
        self._frame(HELLO, self.hello)
        return True

    def _who(self) -> dict[str, Any]:
        env, torch = os.environ, self.torch

        def number(*names: str) -> int:
            for name in names:
                if env.get(name, "").isdigit():
                    return int(env[name])
            return -1

        rank = number("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
        world = number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
        dist = sys.modules.get("torch.distributed")
        if dist is not None and dist.is_available() and dist.is_initialized():
            rank, world = dist.get_rank(), dist.get_world_size()
        return {
            "version": VERSION,
            "pid": self.pid,
            "start": self._started(),
            "host": socket.gethostname(),
            "argv": list(getattr(sys, "orig_argv", sys.argv))[:64],
            "python": sys.version.split()[0],
            "torch": str(torch.__version__),
            "device": "" if self.device is None else str(self.device),
            "rank": rank,
            "local_rank": number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
            "world_size": world,
            "capabilities": ["steps", "ops"]
            + (["history"] if self.device is not None and self.device.type == "cuda" else [])
            + ["profile", "events", "plans"],
            "depth": self.how,
            "offloads": self.offloads,
            "room": max(self.room, 0),
            "devices": self._gpus(),
            "waiting": WAITING if self.index == 0 else "",
        }

    def _frame(self, kind: int, payload: bytes | bytearray | Mapping[str, Any] | list[Any]) -> None:
        if not isinstance(payload, (bytes, bytearray)):
            payload = json.dumps(payload, separators=(",", ":")).encode("utf-8", "replace")
        self.out += struct.pack("<IB", len(payload) + 1, kind) + payload

    def _say(self, text: str, key: str) -> None:
        self.notices.append((NOTICE, {"text": text, "key": key}))

    def _state(self, text: str, key: str) -> None:
        """Say what the agent waits for or does now."""
        self.notices.append((NOTICE, {"text": text, "key": key, "state": True}))

    def _answer(self, orders: list[int], state: str, reason: str = "", text: str = "") -> None:
        """Say how far some orders have come, by their numbers; 0 is that of an order whose answers nobody
        wants."""
        for number in orders:
            if number:
                self.answers.append({"order": number, "state": state, "reason": reason, "text": text})

    def _lose(self, name: str, n: int, detail: str) -> None:
        self.notices.append((LOST, {"name": name, "n": n, "detail": detail}))

    def _exchange(self, wait: int) -> None:
        """Write what can be written and read what comes, waiting for it at most so many milliseconds."""
        try:
            self._fill()
            while self.out:
                # A copy: a view that somebody holds who goes through all objects there are (gc.get_objects)
                # would keep what is left from being cut.
                n = self.sock.send(self.out[: 1 << 18])
                del self.out[:n]
                self.written += n
            self.inflight = 0
            if self.sending is not None:
                wait = 0
            elif self.window is not None or self.want or self.ready:
                wait = min(wait, 20)  # a window is to be sent before the next is made
            elif time.monotonic() < self.hurry:
                wait = min(wait, 20)  # somebody looks whether a plan has begun
            elif self.every:
                # and be found before two more are
                wait = min(wait, max(20, self.every * self.lasted // 2000000))
        except (BlockingIOError, InterruptedError):
            pass  # the viewer does not read as fast as we write
        except OSError:
            return self._lost_viewer()
        self.poll.modify(self.sock, select.POLLIN | (select.POLLOUT if self.out else 0))
        for fd, event in self.poll.poll(wait):
            if fd == self.bell[0]:
                os.read(fd, 4096)
            elif event & ~select.POLLOUT:
                try:
                    got = self.sock.recv(1 << 16)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    got = b""
                if not got:
                    return self._lost_viewer()
                self.unread += got
                self._hear()

    def _lost_viewer(self) -> None:
        self.sock.close()
        self.sock, self.every = None, 0
        self.want.clear()
        self.answers.clear()
        self.missed += self.inflight
        if self.sending is not None:
            self._lose("windows", 1, "the viewer went while it was sent")
            self.sending = None
        self.out, self.inflight = bytearray(), 0

    def _hear(self) -> None:
        while len(self.unread) >= 5:
            size, kind = struct.unpack_from("<IB", self.unread)
            if size < 1 or size > MAX_FRAME:
                return self._lost_viewer()
            if len(self.unread) < 4 + size:
                return
            payload = bytes(self.unread[5 : 4 + size])
            del self.unread[: 4 + size]
            if kind not in (WELCOME, ORDER, DETACH):
                continue  # of a later version
            try:
                told = json.loads(payload.decode() or "{}")
                if kind == WELCOME:
                    self.welcome = told.get("version") == VERSION
                    if not self.welcome:
                        return self._lost_viewer()
                elif kind == ORDER:
                    self._order(told)
                else:
                    self.leaving = True
            except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
                return self._lost_viewer()  # not a gmemtop viewer

    def _order(self, told: dict[str, Any]) -> None:
        """Take an order. The training thread starts on it when the current step ends."""
        number, do, how, steps = (
            number_of(told, "id"),
            told.get("do"),
            told.get("how"),
            number_of(told, "steps"),
        )
        if do == "describe":
            steps = min(max(steps, 1), 1000)
            self._answer([number], ACCEPTED)
            self.want.append(
                (
                    how if how in RECORDED else self.how,
                    steps,
                    bool(told.get("saves")),
                    str(told.get("library", "")),
                    [number],
                )
            )
            self._state("waiting for the step's end, then capturing %d" % steps, "asked")
        elif do == "every":
            self.every = max(steps, 0)
            self._answer([number], DONE)
        elif do == "depth" and how in ("ops", "history", "profile"):
            self.how, self.told_who = how, False
            self._answer([number], DONE)
        elif do in ("carry", "keep"):
            plan = told.get("plan") if do == "carry" else None
            if plan is not None and not isinstance(plan, dict):
                raise TypeError("the plan is not a JSON object")
            self._answer([number], ACCEPTED)
            try:
                self._answer(
                    [self.orders.popleft()["order"]],
                    REFUSED,
                    "superseded",
                    "a newer order came before it was begun",
                )
            except IndexError:
                pass  # none waits, or the training thread has just taken it
            self.orders.append(
                {"order": number, "id": number_of(told, "number"), "plan": plan, "keep": do == "keep"}
            )
            self.hurry = time.monotonic() + 1.0
        else:
            self._answer([number], REFUSED, "unknown_order", "this agent knows no order %.20r" % (do,))

    def _pending(self) -> bool:
        return self.welcome and bool(
            self.steps or self.ready or self.notices or self.answers or self.sending is not None
        )

    def _fill(self) -> None:
        """Put frames together while there is room: notices, steps, and then a window, piece by piece."""
        if not self.welcome:
            return
        if self.index > 0 and self.hello.get("waiting") or not self.told_who:
            self.told_who = True
            self.hello = self._who()
            self._frame(HELLO, self.hello)
        while self.notices:
            self._frame(*self.notices.popleft())
        while self.answers:
            self._frame(ANSWER, self.answers.popleft())
        rows: list[tuple[Any, ...]] = []
        while self.steps and len(rows) < 1000 and len(self.out) < MAX_UNSENT // 2:
            rows.append(self.steps.popleft())
            self.taken += 1
        if rows:
            self._frame(STEPS, rows)
            self.inflight += len(rows)
        lost = self.produced - self.taken - len(self.steps) + self.missed
        if lost > 0:
            self.taken += lost - self.missed
            self.missed = 0
            self._frame(LOST, {"name": "steps", "n": lost, "detail": "they waited too long for a viewer"})
        while len(self.out) < 1 << 18 and (
            self.sending is not None or self.ready and self.ready[0].settled()
        ):
            if self.sending is None:
                self.sending = self._frames_of(self.ready.popleft())
            if next(self.sending, None) is None:
                self.sending = None

    def _gpus(self) -> list[dict[str, Any]]:
        """The GPUs that the process sees, for planning; none before it has used one."""
        try:
            cuda = self.torch.cuda
            if not cuda.is_initialized():
                return []
            every = [(k, cuda.get_device_properties(k)) for k in range(min(cuda.device_count(), MAX_GPUS))]
            return [{"ordinal": k, "name": p.name, "bytes": p.total_memory} for k, p in every]
        except Exception:  # a device that is lost
            return []

    def _finished(self, window: Window) -> None:
        """A window is taken out, or nobody wants it any more: the allocator records no longer for it."""
        try:
            if window.how == "history":
                window.unhook()
        except Exception:
            pass  # a device that is lost
        if self.unfinished is window:
            self.unfinished = None

    def _drop(self) -> None:
        """Give up the windows that wait."""
        while self.ready:
            self._finished(self.ready.popleft())

    def _frames_of(self, window: Window) -> Iterator[bool]:
        head = {
            "first": window.index,
            "last": window.index + max(len(window.steps) - 1, 0),
            "how": window.how,
            "partial": window.partial,
            "steps": [[self.epoch + a, self.epoch + b] for a, b in window.steps],
            "orders": [n for n in window.orders if n],
        }
        self._frame(WINDOW, head)
        yield True
        pack = zlib.compressobj(1)
        head = dict(window.costs, epoch_ns=self.epoch)
        if self.device is not None and self.device.type == "cuda":
            head["rules"] = allocator_rules(self.torch)
        try:
            for text in window.pieces(head):
                data = pack.compress(text.encode() if isinstance(text, str) else text)
                if data:
                    self._frame(DATA, data)
                yield True
        finally:
            self._finished(window)  # also where the viewer has gone meanwhile
        self._frame(DATA, pack.flush())
        self._frame(WHOLE, {"cost": window.cost, "lost": window.lost})
        self._answer(window.orders, DONE)
        yield True
