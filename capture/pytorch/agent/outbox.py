"""Holds steps and messages until they are sent.

The training thread and the sending thread put them in without a lock; the sending thread takes them out. The
queues are bounded: the oldest entries are dropped first. Dropped steps are counted, and the count is sent.
"""

from __future__ import annotations

import collections
from typing import Any

from .ring import Ring
from .says import told
from .tally import COUNTED, Tally
from .wire import LOST, NOTICE

AT_ONCE = 1000  # steps in a frame
# memory figures of a step for which they were not taken, and the finer ones
NOT_TAKEN = (-1,) * 7, (-1,) * 4
WITHOUT = (0,) * 7  # for a step without a plan: the plan's number, and what Carrier.next returns
UNTIMED = -1, 0, 0  # for a step whose processor time is unknown: that time, and the times of copies


class Outbox:
    def __init__(self, tally: Tally, epoch: int = 0) -> None:
        self.tally = tally
        self.epoch = epoch  # zero of the agent's clock, in nanoseconds of Unix time
        self.ring = Ring(tally, epoch)
        self.known: tuple[int, ...] = (-1, -1, -1)  # bytes of parameters, gradients, optimizer state
        self.taken = 0
        self.inflight = 0  # steps that were taken but may not be written yet
        self.missed = 0  # steps that went to a viewer who left
        self.notices: collections.deque[tuple[int, dict[str, Any]]] = collections.deque(maxlen=100)
        self.answers: collections.deque[dict[str, Any]] = collections.deque(maxlen=1000)

    def __bool__(self) -> bool:
        return bool(self.tally.rows or self.notices or self.answers)

    @property
    def produced(self) -> int:
        """How many steps were ever put in, which is the number of the next one."""
        return self.tally.produced

    def step(self, row: tuple[Any, ...]) -> None:
        self.tally.add(row)

    def say(self, text: str, key: str) -> None:
        """Show people a message. An empty text takes back the message with this key."""
        self.notices.append((NOTICE, {"text": text, "says": told(text), "key": key}))

    def state(self, text: str, key: str) -> None:
        """Say what the agent is waiting for or doing now."""
        self.notices.append((NOTICE, {"text": text, "says": told(text), "key": key, "state": True}))

    def lose(self, name: str, n: int, detail: str) -> None:
        self.notices.append((LOST, {"name": name, "n": n, "detail": detail, "says": told(detail)}))

    def answer(self, orders: list[int], state: str, reason: str = "", text: str = "", **more: Any) -> None:
        """Report the progress of some orders. Nobody wants answers to order 0."""
        told_of = {"state": state, "reason": reason, "text": text, "says": told(text), **more}
        self.answers.extend(dict(told_of, order=number) for number in orders if number)

    # -- the sending thread's --------------------------------------------------------------------------------

    def take(self) -> str:
        """The oldest steps, as many as fit into a frame, as its text; "" if there are none.

        Short steps are many, so their rows have only the columns that every row must have. All are formatted
        without an encoder: encoding took longer than everything else that the sending thread does.
        """
        untaken = ""
        rows: list[str] = []
        self.tally.trim()
        taken, epoch = self.tally.rows[:AT_ONCE], self.epoch
        del self.tally.rows[: len(taken)]
        for row in taken:
            if len(row) == COUNTED:
                index, begin, end, backward, optimizer, spent = row
                untaken = untaken or ",".join(map(str, NOT_TAKEN[0] + self.known))
                forward = max(end - begin - backward - optimizer, 0)
                times = f"{epoch + begin},{epoch + end},{forward},{backward},{optimizer}"
                rows.append(f"[{index},{times},{untaken},{spent},0]")
            else:
                rows.append("[%s]" % ",".join(map(str, row)))
        self.taken += len(rows)
        self.inflight += len(rows)
        return "[%s]" % ",".join(rows) if rows else ""

    def lost(self) -> int:
        """How many more steps no viewer will see, since the last call."""
        lost = self.produced - self.taken - len(self.tally.rows) + self.missed
        if lost <= 0:
            return 0
        self.taken += lost - self.missed
        self.missed = 0
        return lost

    def arrived(self) -> None:
        """Everything that was taken is written."""
        if self.inflight:
            self.ring.sent(self.taken)
        self.inflight = 0

    def viewer_left(self) -> None:
        self.answers.clear()
        self.ring.sent(self.taken)  # the next viewer is told how many went to this one
        self.missed, self.inflight = self.missed + self.inflight, 0
