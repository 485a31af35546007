"""Talks to a viewer: introduces the agent, sends what training produced, takes orders.

The agent connects, sends a hello and waits for the welcome. While nobody listens it tries again every second,
so a viewer that died can come back. Once everything is sent, the thread sleeps until a step ends, and then
sends it at once. After that it rests, so that many short steps go together. It also looks about twice a
second, and more often while a window is made. Everything that waits is bounded: steps by number (see Outbox),
windows by number, frames by bytes.
"""

from __future__ import annotations

import json
import time
import zlib
from typing import TYPE_CHECKING, Any, Iterator

from .axes import axes
from .hello import hello
from .recorded import RECORDED, allocator_rules
from .says import Says, told, why_of
from .wire import (
    ACCEPTED,
    ANSWER,
    BYE,
    DATA,
    DETACH,
    DONE,
    HELLO,
    LOST,
    ORDER,
    REFUSED,
    STEPS,
    VERSION,
    WELCOME,
    WHOLE,
    WINDOW,
)

if TYPE_CHECKING:
    from .link import Link
    from .manage import Manager
    from .outbox import Outbox
    from .totals import Totals
    from .window import Window
    from .windows import Windows
    from .wishes import Wishes

MAX_UNSENT = 8 << 20  # bytes that may wait for a viewer that does not read
SOON = 20  # milliseconds between two looks while something is expected
# milliseconds between two frames of steps: STEPS_SHARE times the processor time that one takes, within these
STEPS_SHARE, SOONEST, LATEST = 1000, 50, 2000


def number_of(told: dict[str, Any], name: str) -> int:
    """A number in an order, 0 if it is missing. Viewers read 64 bits."""
    n = int(told.get(name, 0))
    if not -(1 << 63) <= n < 1 << 63:
        raise ValueError("%s takes more than 64 bits" % name)
    return n


class Sender:
    """The agent's end of a conversation. All of it runs on the sending thread."""

    def __init__(
        self,
        torch: Any,
        epoch: int,
        link: Link,
        outbox: Outbox,
        wishes: Wishes,
        windows: Windows,
        manager: Manager,
        totals: Totals,
    ) -> None:
        self.torch, self.epoch, self.link, self.outbox = torch, epoch, link, outbox
        self.wishes, self.windows, self.manager, self.totals = wishes, windows, manager, totals
        self.welcome = False
        self.met = False  # a viewer has connected before
        self.told: Any = None  # the changing parts of the hello, as the viewer last got them
        self.sending: Iterator[bool] | None = None  # the window that is being sent
        self.hurry = 0.0  # a viewer waits until then to see whether a plan has begun
        self.sent = False  # the last look found steps to send
        self.spent = 0.0  # seconds of processor time that this thread had taken when it last went to sleep

    def connect(self) -> bool:
        if not self.link.connect():
            return False
        self.welcome, self.met = False, True
        self.link.gift = self.outbox.ring.fd
        self._introduce()
        self.manager.connected()
        return True

    def exchange(self, wait: int) -> None:
        """Write what can be written and read what comes, waiting at most `wait` milliseconds for it."""
        try:
            self.sent = self.outbox.tally.armed = False
            self._fill()
            if self.link.write():
                self.outbox.arrived()
                wait = min(wait, self._patience(), self._until_steps())
            if self.link.read(wait):
                self._hear()
        except OSError:
            self._lost_viewer()

    def last_word(self, end: dict[str, Any], last: float) -> None:
        """Say goodbye to the viewer. Even if something fails, it is told why."""
        try:
            self._part(end, last)
        except Exception as e:
            if self.link.sock is not None:
                lost = Says("last_words_lost", end["detail"], why_of(e))
                self.link.frame(BYE, {"reason": "disarmed", "detail": lost, "says": told(lost)})
                self.link.sock.settimeout(0.5)
                self.link.sock.sendall(self.link.out)

    def _part(self, end: dict[str, Any], last: float) -> None:
        """Send what waits, then the goodbye. Give up on a viewer that reads nothing for a second; one that
        reads has `last` seconds."""
        begin = time.monotonic()
        deadline, last = begin + 1.0, begin + last
        sent = False
        while self.link.sock is not None and time.monotonic() < deadline:
            if not sent and not self._pending():
                self.link.frame(BYE, end)
                sent = True
            elif sent and not self.link.out:
                break
            began, before = time.monotonic(), self.link.written
            self._fill()  # building a history may take seconds, which do not count against the viewer
            deadline = min(deadline + time.monotonic() - began, last)
            self.exchange(SOON)
            if self.link.written != before:
                deadline = min(time.monotonic() + 1.0, last)

    def _lost_viewer(self) -> None:
        self.link.close()
        self.wishes.viewer_left()
        self.outbox.viewer_left()
        if self.sending is not None:
            self.outbox.lose("windows", 1, Says("viewer_left"))
            self.sending = None

    def _patience(self) -> int:
        """How many milliseconds may pass until the next look."""
        if self.sending is not None:
            return 0
        if self.windows.busy() or time.monotonic() < self.hurry:
            return SOON
        if self.wishes.every:  # send a window before two more are ready
            return max(SOON, self.wishes.every * self.windows.lasted // 2000000)
        return 1 << 30

    def _until_steps(self) -> int:
        """How many milliseconds may pass until the next look for steps. If none wait, the end of one wakes
        this thread."""
        before, self.spent = self.spent, time.thread_time()
        if self.sent:
            return min(max(SOONEST, int(1000 * STEPS_SHARE * (self.spent - before))), LATEST)
        tally = self.outbox.tally
        tally.armed = self.welcome
        if not (tally.armed and tally.rows):
            return 1 << 30
        tally.armed = False  # one has just ended
        return 0

    # -- what comes ------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            for kind, payload in self.link.frames():
                if kind not in (WELCOME, ORDER, DETACH):
                    continue  # from a later version
                heard = json.loads(payload.decode() or "{}")
                if kind == WELCOME:
                    self.welcome = heard.get("version") == VERSION
                    if not self.welcome:
                        return self._lost_viewer()
                elif kind == ORDER:
                    self._order(heard)
                else:
                    self.wishes.leaving = True
            self.wishes.wake()
        except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
            self._lost_viewer()  # not a gmemtop viewer

    def _order(self, heard: dict[str, Any]) -> None:
        """Take an order. The training thread starts on it when the current step ends."""
        wishes, answer = self.wishes, self.outbox.answer
        number, steps = number_of(heard, "id"), number_of(heard, "steps")
        do, how = heard.get("do"), heard.get("how")
        if do == "describe":
            steps = min(max(steps, 1), 1000)
            answer([number], ACCEPTED)
            how = how if how in RECORDED else wishes.how
            wish = how, steps, bool(heard.get("saves")), str(heard.get("library", "")), [number]
            first = number_of(heard, "from")
            if first > 0:
                wishes.later.append((first, wish))
                return
            wishes.want.append(wish)
            self.outbox.state(Says("captures_next", steps), "asked")
        elif do == "every":
            wishes.every = max(steps, 0)
            answer([number], DONE)
        elif do == "depth" and how in ("ops", "history", "profile"):
            wishes.how = how
            answer([number], DONE)
        elif do in ("carry", "keep"):
            plan = heard.get("plan") if do == "carry" else None
            if plan is not None and not isinstance(plan, dict):
                raise TypeError("the plan is not a JSON object")
            of = number_of(heard, "number")
            if do == "carry" and plan is None and of not in (0, wishes.newest):
                return answer([number], DONE)  # another plan has already replaced the one to turn off
            answer([number], ACCEPTED)
            try:
                older = [wishes.plans.popleft()["order"]]
                answer(older, REFUSED, "superseded", Says("superseded"))
            except IndexError:
                pass  # none waits, or the training thread has just taken it
            wishes.carry(number, of, plan, do == "keep", bool(heard.get("stays")))
            self.hurry = time.monotonic() + 1.0
        else:
            answer([number], REFUSED, "unknown_order", Says("unknown_order", "%.20r" % (do,)))

    # -- what goes -------------------------------------------------------------------------------------------

    def _pending(self) -> bool:
        return self.welcome and bool(self.outbox or self.windows.ready or self.sending is not None)

    def _introduce(self) -> None:
        """Send the hello, and remember the parts of it that can change."""
        now = self._changing()
        totals, (how, offloads, waiting) = self.totals, now
        said = hello(self.torch, totals.device, how, offloads, totals.room, waiting)
        said["axes"] = axes(totals.optimizers.parameters())
        self.link.frame(HELLO, said)
        self.told = now

    def _changing(self) -> tuple[str, bool, bool]:
        return self.wishes.how, self.manager.offloads, self.outbox.produced == 0

    def _fill(self) -> None:
        """Build frames while there is room: notices, steps, and then a window, piece by piece."""
        if not self.welcome:
            return
        link, outbox = self.link, self.outbox
        if self.told != self._changing():
            self._introduce()
        while outbox.notices:
            link.frame(*outbox.notices.popleft())
        while outbox.answers:
            link.frame(ANSWER, outbox.answers.popleft())
        rows = outbox.take() if len(link.out) < MAX_UNSENT // 2 else ""
        self.sent = bool(rows)
        if rows:
            link.frame(STEPS, rows.encode())
        lost = outbox.lost()
        if lost:
            why = Says("viewer_late")
            link.frame(LOST, {"name": "steps", "n": lost, "detail": why, "says": told(why)})
        while len(link.out) < 1 << 18:
            if self.sending is None:
                window = self.windows.next_ready()
                if window is None:
                    return
                self.sending = self._frames_of(window)
            if next(self.sending, None) is None:
                self.sending = None

    def _frames_of(self, window: Window) -> Iterator[bool]:
        frame, device = self.link.frame, self.totals.device
        head = {
            "first": window.index,
            "last": window.index + max(len(window.steps) - 1, 0),
            "how": window.how,
            "partial": window.partial,
            "steps": [[self.epoch + a, self.epoch + b] for a, b in window.steps],
            "orders": [n for n in window.orders if n],
        }
        frame(WINDOW, head)
        yield True
        pack = zlib.compressobj(1)
        head = dict(window.facts, epoch_ns=self.epoch)
        if device is not None and device.type == "cuda":
            head["rules"] = allocator_rules(self.torch)
        try:
            for text in window.pieces(head):
                data = pack.compress(text.encode() if isinstance(text, str) else text)
                if data:
                    frame(DATA, data)
                yield True
        finally:
            self.windows.finished(window)  # even if the viewer has gone meanwhile
        frame(DATA, pack.flush())
        frame(WHOLE, {"cost": window.cost, "lost": window.lost})
        self.outbox.answer(window.orders, DONE)
        yield True
