"""What training produced and the agent has to say, until it is sent.

The training thread and the sending thread put in, without a lock; the sending thread takes out. What waits is
bounded: the oldest is dropped first. Dropped steps are counted, and the count is sent.
"""

from __future__ import annotations

import collections
import json
from typing import Any

from .says import told
from .tally import COUNTED, Tally
from .wire import LOST, NOTICE

AT_ONCE = 1000  # steps in a frame
# the figures of a step that were not taken: of memory, and finer
NOT_TAKEN = (-1,) * 7, (-1,) * 4
WITHOUT = (0,) * 7  # of a step without a plan: its number, and what Carrier.next tells
UNTIMED = -1, 0, 0  # of a step whose processor time is not known: that, and of copies


class Outbox:
    def __init__(self, tally: Tally, epoch: int = 0) -> None:
        self.tally = tally
        self.epoch = epoch  # of the agent's clock, in nanoseconds of Unix time
        self.known: tuple[int, ...] = (-1, -1, -1)  # bytes of parameters, gradients, optimizer state
        self.taken = 0
        self.inflight = 0  # steps that were taken and may not have been written yet
        self.missed = 0  # steps that went to a viewer who left
        self.notices: collections.deque[tuple[int, dict[str, Any]]] = collections.deque(maxlen=100)
        self.answers: collections.deque[dict[str, Any]] = collections.deque(maxlen=1000)

    def __bool__(self) -> bool:
        return bool(self.tally.rows or self.notices or self.answers)

    @property
    def produced(self) -> int:
        """Steps that were ever put in: the number of the next one."""
        return self.tally.produced

    def step(self, row: tuple[Any, ...]) -> None:
        self.tally.add(row)

    def say(self, text: str, key: str) -> None:
        """Tell people. An empty text takes back what was said under the key."""
        self.notices.append((NOTICE, {"text": text, "says": told(text), "key": key}))

    def state(self, text: str, key: str) -> None:
        """Say what the agent waits for or does now."""
        self.notices.append((NOTICE, {"text": text, "says": told(text), "key": key, "state": True}))

    def lose(self, name: str, n: int, detail: str) -> None:
        self.notices.append((LOST, {"name": name, "n": n, "detail": detail, "says": told(detail)}))

    def answer(self, orders: list[int], state: str, reason: str = "", text: str = "", **more: Any) -> None:
        """Say how far some orders have come. Nobody wants answers to order 0."""
        told_of = {"state": state, "reason": reason, "text": text, "says": told(text), **more}
        self.answers.extend(dict(told_of, order=number) for number in orders if number)

    # -- the sending thread's --------------------------------------------------------------------------------

    def take(self) -> str:
        """The oldest steps, as many as fit into a frame, as the text of one; "" where there are none.

        Of a short step, of which there are many, the row has only the columns that every row must have, and
        is put together without an encoder: that took longer than all else that the sending thread does.
        """
        untaken = ",".join(map(str, NOT_TAKEN[0] + self.known))
        rows: list[str] = []
        self.tally.trim()
        taken, epoch = self.tally.rows[:AT_ONCE], self.epoch
        del self.tally.rows[: len(taken)]
        for row in taken:
            if len(row) == COUNTED:
                index, begin, end, backward, optimizer, spent = row
                forward = max(end - begin - backward - optimizer, 0)
                times = f"{epoch + begin},{epoch + end},{forward},{backward},{optimizer}"
                rows.append(f"[{index},{times},{untaken},{spent},0]")
            else:
                rows.append(json.dumps(row, separators=(",", ":")))
        self.taken += len(rows)
        self.inflight += len(rows)
        return "[%s]" % ",".join(rows) if rows else ""

    def lost(self) -> int:
        """How many steps no viewer will see, beyond those that were counted before."""
        lost = self.produced - self.taken - len(self.tally.rows) + self.missed
        if lost <= 0:
            return 0
        self.taken += lost - self.missed
        self.missed = 0
        return lost

    def arrived(self) -> None:
        """All that was taken is written."""
        self.inflight = 0

    def viewer_left(self) -> None:
        self.answers.clear()
        self.missed, self.inflight = self.missed + self.inflight, 0
