"""What a captured stretch of training keeps, and how it becomes text.

Rows are tuples, as small as possible while training runs. The sending thread, for which nobody waits, turns
them into the JSON lines that gmemtop's package traces/described documents; only then are categories, labels
and the device's times looked up.
"""

from __future__ import annotations

import bisect
import json
import os
import weakref
from typing import TYPE_CHECKING, Any, Iterator

from .compat import address_of
from .window import Window
from .within import REST_ADDRESS

if TYPE_CHECKING:
    from .kinds import Device, Row, UntypedStorage

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"
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


class Storage(weakref.ref):  # type: ignore[type-arg]  # Python 3.8 takes none here
    """A storage that is alive: where it is found and what it is called."""

    __slots__ = ("key", "number", "size", "address")
    key: int
    number: int
    size: int
    address: int


class Addresses:
    """Made-up addresses that stay with a storage from one window to the next, as far as its C++ address
    and its size say that it is the same."""

    def __init__(self) -> None:
        self.next = 1 << 20
        self.last: dict[int, tuple[int, int]] = {}
        # see Ops._held
        self.there: dict[int, Any] = {}
        self.look_again = 0

    def of(self, key: int, size: int) -> int:
        known = self.last.get(key)
        if known is not None and known[1] == size:
            return known[0]
        return self.fresh(size)

    def fresh(self, size: int) -> int:
        address = self.next
        self.next += (size + 511) & ~511 or 512
        return address


class Recording(Window):
    """The rows of a window, and what its storages are known to be. Ops fills it."""

    def __init__(self, torch: Any, now: int, addresses: Addresses) -> None:
        self.torch, self.addresses, self.start = torch, addresses, now
        self.rows: list[Row] = []
        self.before: list[Row] = []
        self.alive: dict[int, Storage] = {}
        self.born: list[str | None] = []
        self.category: dict[int, str] = {}
        self.label: dict[int, str] = {}
        self.gradient_of: dict[int, int] = {}
        self.device = "cpu"
        self.touched_forward: set[int] = set()
        self.changed_backward: set[int] = set()
        self.read_backward: set[int] = set()
        self.saved: set[int] = set()
        self.refilled: set[int] = set()
        # by number, storages whose bytes wait on the host and come back as others; whether they have gone
        self.away: dict[int, Storage | None] = {}
        self.where: dict[int, str] = {}
        self.timed: list[tuple[int, Device, Any, Any]] = []
        self.newest: dict[Any, Any] = {}
        self.within: Any = None
        self.cost = 0
        self.steps: list[tuple[int, int]] = []
        self.lost = 0
        self.stopped = False
        # when training went on after it was held up, and for how long it had been until then
        self.pauses: list[int] = []
        self.slept: list[int] = []
        self.costs: dict[
            str, Any
        ] = {}  # what carrying plans out was measured to take, where somebody plans by this window

    def paused(self, begin: int, end: int) -> None:
        """From begin to end training stood still for the agent's sake: no time passes there."""
        self.slept.append((self.slept[-1] if self.slept else 0) + end - begin)
        self.pauses.append(end)

    def _at(self, t: int) -> int:
        """Nanoseconds from the start to a moment, pauses left out."""
        k = bisect.bisect_right(self.pauses, t)
        return t - self.start - (self.slept[k - 1] if k else 0)

    def goes(self, storage: UntypedStorage) -> int | None:
        """The bytes of a storage are about to wait on the host. Returns the number by which to say what
        becomes of them; None where it is not known."""
        found = None if self.stopped else self.alive.get(address_of(storage))
        if found is None:
            return None
        self.away[found.number] = None
        return found.number

    def comes_back(self, number: int, storage: UntypedStorage) -> None:
        """They are in another storage from now on, and were there all the time."""
        was = self.away.pop(number, None)
        if was is None or self.stopped:
            return
        found = Storage(storage, self._gone)
        found.key, found.number, found.size, found.address = (
            address_of(storage),
            number,
            was.size,
            was.address,
        )
        self.alive[found.key] = found

    def let_go(self, number: int) -> None:
        """Nobody needs them any more."""
        was = self.away.pop(number, None)
        if was is not None and not self.stopped:
            self._freed(number)

    def _row(self, row: Row) -> None:
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        else:
            self.lost += 1
            self.stopped = True

    def settled(self) -> bool:
        """Whether the device has done all that was timed, so that times can be read without waiting for
        it."""
        return all(event.query() for event in self.newest.values())

    def _category(self, number: int) -> str:
        found, born = self.category.get(number), self.born[number]
        if found is not None:
            return found
        if born is None:
            if number in self.changed_backward and number not in self.touched_forward:
                return "gradient"  # a reducer's bucket
            if number in self.refilled:
                return "temporary"  # parameters that FSDP gathers for as long as they are used
            return "input"
        if number in self.saved or (born == FORWARD and number in self.read_backward):
            return "activation"
        return "autograd_detail" if born == BACKWARD else "temporary"

    def _device_times(self) -> list[tuple[int, int]]:
        """Give ops the device's times in place of the host's, and put all rows on one clock. Returns the
        bounds of the steps on it. Events must have settled."""
        origins: dict[Device, tuple[int, Any]] = {}
        ran = {}
        for at, device, begin, end in self.timed:
            # events of two devices have no time between them
            first, origin = origins.setdefault(device, (self.rows[at][1], begin))
            ran[at] = (
                device,
                first + int(origin.elapsed_time(begin) * 1e6),
                int(begin.elapsed_time(end) * 1e6),
            )
        self.timed, self.newest = [], {}
        return _one_clock(self.rows, ran, self.steps)

    def _untouched(self) -> None:
        """Add what was there when the window began and no storage showed, and say when it goes."""
        there: dict[str, int] = {}
        frees = []
        for _, number, size, _, _ in self.before:
            there[self.where[number]] = there.get(self.where[number], 0) + size
        for k, on in enumerate(sorted(self.within.held)):
            stays, pieces = self.within.rest(on, there.get(on, 0))
            for at, size, label in [(None, stays, "not touched by these steps")] * (stays > 0) + [
                (rows, n, "of the step before") for rows, n in pieces
            ]:
                number = len(self.born)
                self.born.append(None)
                self.where[number], self.category[number], self.label[number] = on, "unknown", label
                self.before.append(
                    (
                        "a",
                        number,
                        size,
                        0,
                        REST_ADDRESS * (k + 1) if at is None else self.addresses.fresh(size),
                    )
                )
                if at is not None:
                    frees.append((at, number))
        for at, number in sorted(frees, reverse=True):  # from behind, so that the places of the others stay
            row = self.rows[min(at, len(self.rows) - 1)]
            self.rows.insert(at, ("f", number, row[TIME_AT[row[0]]]))

    def _gone(self, storage: Storage) -> None:
        """What Ops does when a storage has gone."""
        raise NotImplementedError

    def _freed(self, number: int) -> None:
        """What Ops notes of that."""
        raise NotImplementedError

    def pieces(self, head: dict[str, Any]) -> Iterator[str]:
        """The window as text, some hundred kilobytes at a time."""
        steps = self._device_times() if self.timed else self.steps
        self._untouched()
        head = dict(
            head,
            gmemtop="described",
            version=1,
            torch=self.torch.__version__,
            device=self.device,
            pid=os.getpid(),
            rank=int(os.environ.get("RANK", -1)),
            world_size=int(os.environ.get("WORLD_SIZE", -1)),
            epoch_ns=self.start + head["epoch_ns"],
            steps=[[self._at(a), self._at(b)] for a, b in steps],
        )
        quoted, out = {}, [json.dumps(head, separators=(",", ":"))]

        def quote(s: str) -> str:
            if s not in quoted:
                quoted[s] = json.dumps(s)
            return quoted[s]

        for rows in (self.before, self.rows):
            for row in rows:
                if row[0] == "o":
                    _, t, d, name, phase, module, r, w, m, rerun, stream = row
                    out.append(
                        '{"k":"op","t":%d,"d":%d,"name":%s,"phase":"%s","module":%s,'
                        '"r":%s,"w":%s,"m":%s,"rerun":%s%s}'
                        % (
                            self._at(t),
                            d,
                            quote(name if "::" in name or name == "running_statistics" else "aten::" + name),
                            phase,
                            quote(module),
                            r,
                            w,
                            m,
                            "true" if rerun else "false",
                            ',"stream":%d' % stream if stream else "",
                        )
                    )
                elif row[0] == "f":
                    out.append('{"k":"free","id":%d,"t":%d}' % (row[1], self._at(row[2])))
                else:
                    number: int = row[1]
                    label = self.label.get(self.gradient_of.get(number, number))
                    out.append(
                        '{"k":"alloc","id":%d,"size":%d,"addr":%d,"t":%d,"category":"%s","on":"%s"%s}'
                        % (
                            row[1],
                            row[2],
                            row[4],
                            max(self._at(row[3]), 0),
                            self._category(row[1]),
                            self.where[row[1]],
                            "" if label is None else ',"label":' + quote(label),
                        )
                    )
                if len(out) >= 2000:
                    yield "\n".join(out) + "\n"
                    out = []
        yield "\n".join(out) + "\n"
