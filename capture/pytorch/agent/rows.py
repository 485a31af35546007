"""The rows of a window and their times.

Rows are tuples, as small as possible while training runs:

    "a", number, size, time, address                                 a storage was allocated
    "f", number, time                                                a storage was freed
    "o", time, duration, name, phase, module, reads, makes, writes, whether it can run again, stream, whether
        a checkpoint runs it again here, whether gradients are off

Reads, makes and writes are numbers of storages. Times are the host's, in nanoseconds, until device_times puts
them on the device's clock.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .kinds import Clock, Device, Row, Timer

# Rows of one window. A step of a model with a hundred layers has some ten thousand; rows beyond the limit are
# counted as lost.
MAX_ROWS = 300000
TIME_AT = {"a": 3, "f": 2, "o": 1}  # where a row of each kind holds its time


def _one_clock(
    rows: list[Row], ran: dict[int, tuple[Device, int, int]], steps: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Put rows and steps on one clock that never runs backwards, in the order in which the host issued them.
    Changes rows in place and returns the steps' new bounds.

    rows are in the host's order and hold its times. ran has the device, start and duration of each op that a
    device timed, by the index of its row; steps are pairs of host times. All times are in nanoseconds.

    A device runs an op later than the host issues it, by however far the host is ahead: when the host ends
    a step, half of the step may not have run yet. If ops were placed where the device ran them, and
    everything else where the host was, an op could come after the free of what it reads, or fall into the
    next step. The allocator, and so memory, follows the host's order. So we keep the host's order and use
    the clock of the stream with the most ops: what is issued between two of its ops is placed between them,
    and a step ends when its last op has ended. Ops of other streams keep their durations but not their
    starting times.
    """
    streams: dict[Device, dict[int, int]] = {}
    for at, (device, _, _) in ran.items():
        counts = streams.setdefault(device, {})
        counts[rows[at][10]] = counts.get(rows[at][10], 0) + 1
    main = {device: max(counts, key=counts.__getitem__) for device, counts in streams.items()}
    bounds = [t for step in steps for t in step]
    placed: list[int] = []
    now, ends = -1, 0

    def place() -> int:
        """The next bound, later than all before it; a step begins where the previous one ends."""
        k = len(placed)
        return placed[-1] if k > 0 and bounds[k] == bounds[k - 1] else max(now + 1, ends, bounds[k])

    for k, row in enumerate(rows):
        host = row[TIME_AT[row[0]]]
        while len(placed) < len(bounds) and bounds[len(placed)] <= host:
            placed.append(place())
            now = placed[-1]
        on, start, took = ran.get(k, (None, host, None))
        if on is not None and row[10] != main[on]:
            start = host
        now = max(now, start)
        if took is None:
            rows[k] = row[: TIME_AT[row[0]]] + (now,) + row[TIME_AT[row[0]] + 1 :]
            continue
        rows[k] = (row[0], now, took) + row[3:]
        if on is not None and row[10] == main[on]:
            ends = max(ends, now + max(took, 1))
    while len(placed) < len(bounds):
        placed.append(place())
        now = placed[-1]
    return list(zip(placed[::2], placed[1::2]))


class Rows:
    """What a window records, row by row."""

    limit = MAX_ROWS

    def __init__(self, clock: Clock, start: int, broke: Callable[[BaseException], None]) -> None:
        self.clock, self.start, self.broke = clock, start, broke
        self.list: list[Row] = []
        self.lost = 0  # rows for which there was no room
        self.stopped = False  # recording has stopped
        self.last = start  # when memory was last allocated or freed
        # ops timed by a device: their row, device and two events. newest has the last event of each stream.
        self.timed: list[tuple[int, Device, Any, Any]] = []
        self.newest: dict[Any, Any] = {}
        # when training continued after each pause, and the total length of all pauses until then
        self.pauses: list[int] = []
        self.slept: list[int] = []

    def stop(self, error: BaseException) -> None:
        """Stop recording, because of an error of ours."""
        self.stopped = True
        self.broke(error)

    def add(self, row: Row) -> None:
        """Add a row. The window stops at the first row that does not fit."""
        if len(self.list) < self.limit:
            self.list.append(row)
        else:
            self.lost += 1
            self.stopped = True

    def came(self, number: int, size: int, address: int) -> None:
        """Memory was allocated at the time in rows.last. Added even if the rows are full: other rows refer to
        it."""
        self.list.append(("a", number, size, self.last, address))

    def timing(self, timer: Timer) -> None:
        """The op of the next row has a timer."""
        if len(self.list) < self.limit:
            self.timed.append((len(self.list), timer[2].device, timer[0], timer[1]))
            self.newest[timer[2]] = timer[1]

    def paused(self, begin: int, end: int) -> None:
        """The agent held training up from begin to end: that time does not count."""
        self.slept.append((self.slept[-1] if self.slept else 0) + end - begin)
        self.pauses.append(end)

    def at(self, t: int) -> int:
        """Nanoseconds from the start to a time, without pauses."""
        k = bisect.bisect_right(self.pauses, t)
        return t - self.start - (self.slept[k - 1] if k else 0)

    def settled(self) -> bool:
        """Whether the device has finished all timed ops, so their times can be read without waiting."""
        return all(event.query() for event in self.newest.values())

    def device_times(self, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Replace the host's times of ops with the device's, and put all rows on one clock. Returns the
        bounds of the steps on it. Events must have settled."""
        if not self.timed:
            return steps
        origins: dict[Device, tuple[int, Any]] = {}
        ran = {}
        for at, device, begin, end in self.timed:
            # torch cannot measure the time between events of two devices
            first, origin = origins.setdefault(device, (self.list[at][1], begin))
            ran[at] = (
                device,
                first + int(origin.elapsed_time(begin) * 1e6),
                int(begin.elapsed_time(end) * 1e6),
            )
        self.timed, self.newest = [], {}
        return _one_clock(self.list, ran, steps)
