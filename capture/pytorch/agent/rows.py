"""The rows of a window and their times.

Rows are tuples, as small as possible while training runs:

    "a", number, size, time, address                                 a storage came
    "f", number, time                                                a storage went
    "o", time, duration, name, phase, module, reads, makes, writes, whether it can run again, stream, whether
        a checkpoint runs it again here

Reads, makes and writes are numbers of storages. Times are the host's, in nanoseconds, until device_times puts
them on the device's clock.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .kinds import Clock, Device, Row, Timer

# Rows of one window. A step of a model of a hundred layers has some ten thousand; what would go beyond is
# counted as lost.
MAX_ROWS = 300000
TIME_AT = {"a": 3, "f": 2, "o": 1}  # where a row of each kind holds its time


def _one_clock(
    rows: list[Row], ran: dict[int, tuple[Device, int, int]], steps: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Put rows and steps on one clock that never steps back, in the order in which the host issued them.
    Changes rows in place and returns the steps' new bounds.

    rows are in the host's order and hold its times. ran has device, start and duration of the ops that a
    device timed, by the index of their row; steps are pairs of host times. All times are in nanoseconds.

    A device runs an op later than the host issues it, by however far the host is ahead: at a step's end
    half of the step may still be to come. If ops stood where the device ran them and everything else where
    the host was, an op would come after the free of what it reads, or fall into the next step. Memory goes
    by the host's order, as the allocator does. So the order is the host's, and the clock is that of the
    stream with the most ops: what is issued between two of its ops lies between them, and a step ends when
    its last op has ended. Ops of other streams keep their durations and lose the moment at which they
    began.
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
        """The next bound, behind all before it; a step begins where the one before it ends."""
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
    """What a window notes, row by row."""

    limit = MAX_ROWS

    def __init__(self, clock: Clock, start: int, broke: Callable[[BaseException], None]) -> None:
        self.clock, self.start, self.broke = clock, start, broke
        self.list: list[Row] = []
        self.lost = 0  # rows for which there was no room
        self.stopped = False  # nothing is noted any more
        self.last = start  # when memory came or went last
        # ops that a device times: their row, device and two events. newest has the last event of each stream.
        self.timed: list[tuple[int, Device, Any, Any]] = []
        self.newest: dict[Any, Any] = {}
        # when training went on after it was held up, and for how long it had been until then
        self.pauses: list[int] = []
        self.slept: list[int] = []

    def stop(self, error: BaseException) -> None:
        """Note nothing more, because of an error of ours."""
        self.stopped = True
        self.broke(error)

    def add(self, row: Row) -> None:
        """Add a row. With the first one that finds no room, the window stops."""
        if len(self.list) < self.limit:
            self.list.append(row)
        else:
            self.lost += 1
            self.stopped = True

    def came(self, number: int, size: int, address: int) -> None:
        """Memory comes, when rows.last says. It is noted even if the rows are full: others name it."""
        self.list.append(("a", number, size, self.last, address))

    def timing(self, timer: Timer) -> None:
        """The op of the next row has a timer."""
        if len(self.list) < self.limit:
            self.timed.append((len(self.list), timer[2].device, timer[0], timer[1]))
            self.newest[timer[2]] = timer[1]

    def paused(self, begin: int, end: int) -> None:
        """From begin to end training stood still for the agent's sake: no time passes there."""
        self.slept.append((self.slept[-1] if self.slept else 0) + end - begin)
        self.pauses.append(end)

    def at(self, t: int) -> int:
        """Nanoseconds from the start to a moment, pauses left out."""
        k = bisect.bisect_right(self.pauses, t)
        return t - self.start - (self.slept[k - 1] if k else 0)

    def settled(self) -> bool:
        """Whether the device has done all that it times, so that times can be read without waiting for it."""
        return all(event.query() for event in self.newest.values())

    def device_times(self, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Give ops the device's times in place of the host's, and put all rows on one clock. Returns the
        bounds of the steps on it. Events must have settled."""
        if not self.timed:
            return steps
        origins: dict[Device, tuple[int, Any]] = {}
        ran = {}
        for at, device, begin, end in self.timed:
            # events of two devices have no time between them
            first, origin = origins.setdefault(device, (self.list[at][1], begin))
            ran[at] = (
                device,
                first + int(origin.elapsed_time(begin) * 1e6),
                int(begin.elapsed_time(end) * 1e6),
            )
        self.timed, self.newest = [], {}
        return _one_clock(self.list, ran, steps)
