"""Which memory there is, and when it comes and goes.

A Python storage object lives exactly as long as the memory, so a weak reference to it says when the memory
goes. Its C++ address identifies it while it lives; later the address may be used again. A storage that is
resized in place (FSDP empties and refills gathered parameters this way) counts as one that goes and one that
comes.

What was there before. An op's output appears with the op. Data made from an array, a list or another
process's memory appears without one and is first seen where an op reads it, just like a table made years ago.
So a window begins by noting, weakly, the storages of all tensors that Python holds. What the forward pass
meets beyond those has come since; what only the backward pass or an optimizer meets (a reducer's buckets,
which C++ holds) was there.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from .compat import address_of, is_wrapper, local_shard, sparse_parts, without_functions
from .phases import FORWARD
from .rows import TIME_AT
from .says import Says
from .waiting import waits
from .within import REST_ADDRESS

if TYPE_CHECKING:
    from .kinds import Clock, Row, Tensor, UntypedStorage
    from .phases import Phases
    from .rows import Rows
    from .within import Within


LOOKS = 100  # looking for all tensors is done at most every LOOKS times as long as it takes

# What an argument of an op may be.
OTHER, PLAIN, WRAPPER, SEQUENCE, MAPPING = range(5)


class Storage(weakref.ref):  # type: ignore[type-arg]  # Python 3.8 takes none here
    """A storage that is alive: where it is found and what it is called."""

    __slots__ = ("key", "number", "size", "address")
    key: int
    number: int
    size: int
    address: int


class Addresses:
    """What one window knows from those before it: made-up addresses, which stay with a storage as far as its
    C++ address and its size say that it is the same; the storages that Python held, and the parameters of
    modules among them, weakly."""

    def __init__(self) -> None:
        self.next = 1 << 20
        self.last: dict[int, tuple[int, int]] = {}
        self.there: dict[int, Any] = {}
        # storages of parameters, by C++ address: not the parameters, since torch.utils.swap_tensors refuses
        # a tensor with weak references
        self.parameters: dict[int, weakref.ref[UntypedStorage]] = {}
        self.looked = self.cost = 0  # when that was done last, and how long it took

    def of(self, key: int, size: int) -> int:
        known = self.last.get(key)
        if known is not None and known[1] == size:
            return known[0]
        return self.fresh(size)

    def fresh(self, size: int) -> int:
        address = self.next
        self.next += (size + 511) & ~511 or 512
        return address

    def look(self, torch: Any, clock: Clock, share: int = LOOKS) -> dict[int, Any]:
        """Weak references to the storages of the tensors that Python holds, by C++ address. Looking through
        all objects takes tens of milliseconds: it is done at most every share times as long as it took, and
        what the windows since have seen is added."""
        now = clock()
        if self.looked and now < self.looked + share * self.cost:
            return self.there
        kinds, new, self.there = {torch.Tensor}, [torch.Tensor], {}
        self.parameters = {}
        while new:
            new = [k for kind in new for k in kind.__subclasses__() if k not in kinds]
            kinds.update(new)
        with without_functions(torch):
            for t in [o for o in gc.get_objects() if type(o) in kinds]:
                try:
                    storage = t.untyped_storage()
                    self.there[address_of(storage)] = weakref.ref(storage)
                    if isinstance(t, torch.nn.Parameter):
                        storage = local_shard(t).untyped_storage()
                        self.parameters[address_of(storage)] = weakref.ref(storage)
                except Exception:  # it has no storage of its own: its parts are tensors, or it has no memory
                    pass
        self.looked = clock()
        self.cost = self.looked - now
        return self.there

    def expire(self) -> None:
        """Have the next look look at once."""
        self.looked = 0

    def remember(self, alive: list[Storage]) -> None:
        """Keep what a window that ends knows."""
        held = [(s, s()) for s in alive]
        self.last = {s.key: (s.address, s.size) for s, _ in held}
        self.there.update((s.key, weakref.ref(storage)) for s, storage in held if storage is not None)


class Storages:
    """Numbers the storages of a window, notes when they come and go, and keeps what is known of each."""

    def __init__(self, torch: Any, rows: Rows, phases: Phases, addresses: Addresses, within: Within) -> None:
        self.torch, self.tensor = torch, torch.Tensor
        self.rows, self.phases, self.addresses, self.within = rows, phases, addresses, within
        self.alive: dict[int, Storage] = {}  # by C++ address
        self.before: list[Row] = []  # rows of what was there when the window began
        self.held: dict[int, Any] = {}  # what Python held then
        self.freed: set[int] = set()
        self.refilled: set[int] = set()  # numbers whose size changed
        self.idle: set[int] = set()  # numbers of parameters that no module had run when they came
        # by number, storages whose bytes wait on the host and come back as others; whether they have gone
        self.away: dict[int, Storage | None] = {}
        # by number: the phase that made it, None for none; where it lies; its category and name, as far as
        # they are known
        self.born: list[str | None] = []
        self.where: dict[int, str] = {}
        self.category: dict[int, str] = {}
        self.label: dict[int, str] = {}
        self.device = "cpu"  # where the newest lies that is not on the CPU
        self.kinds: dict[type, int] = {}  # what values of each type are

    # -- tensors ---------------------------------------------------------------------------------------------

    def kind(self, of: type) -> int:
        """What values of a type are. Types are few and ops are many: a question that Python answers slowly,
        such as whether a number is a tensor, is asked once for each type."""
        kind = self.kinds.get(of)
        if kind is None:
            if issubclass(of, self.tensor):
                kind = OTHER if waits(of) else WRAPPER if is_wrapper(of) else PLAIN
            elif issubclass(of, (list, tuple)):
                kind = SEQUENCE
            else:
                kind = MAPPING if issubclass(of, dict) else OTHER
            self.kinds[of] = kind
        return kind

    def tensors(self, tree: Any, out: list[Tensor]) -> list[Tensor]:
        """Add the tensors in some arguments or results to a list, and return it."""
        kinds = self.kinds
        for x in tree:
            kind = kinds.get(type(x))
            if kind is None:
                kind = self.kind(type(x))
            if kind == OTHER:
                continue
            if kind <= WRAPPER:
                out.append(x)
            else:
                self.tensors(x.values() if kind == MAPPING else x, out)
        return out

    def numbers(self, tensors: list[Tensor], **how: Any) -> list[int]:
        out = []
        for t in tensors:
            out += self.of(t, **how)
        return out

    def read(self, tensors: list[Tensor]) -> list[int]:
        """The numbers of the storages that an op is about to read. Nearly all of them are known, and cost
        no call of of()."""
        out, alive, kinds = [], self.alive, self.kinds
        for t in tensors:
            if kinds.get(type(t)) == PLAIN:
                try:
                    storage = t.untyped_storage()
                    found = alive.get(address_of(storage))
                    if found is not None and found.size == storage.nbytes():
                        out.append(found.number)
                        continue
                except (NotImplementedError, RuntimeError):
                    pass  # a sparse tensor, whose parts have storages
            out += self.of(t, known=True)
        return out

    def made(self, out: Any, read: list[int], at: int, born: str) -> list[int]:
        """The numbers of the storages that an op made, which are those of what it returned that it has not
        read. at is when it began, and born the phase that they belong to."""
        tensors = [out] if self.kinds.get(type(out)) == PLAIN else self.tensors((out,), [])
        if not tensors:
            return []
        fresh, made = len(self.born), []
        for t in tensors:
            for number in self.of(t, None, False, at, born):
                if (number >= fresh or number not in read) and number not in made:
                    made.append(number)
        return made

    def sizes(self, tensors: list[Tensor]) -> dict[int, int]:
        """The bytes of the storages of some tensors, by their numbers; of those alone that have one each."""
        found: dict[int, int] = {}
        for t in tensors:
            numbers = self.of(t, known=True)
            if t.layout == self.torch.strided and self.kind(type(t)) == PLAIN:
                found.update((number, t.untyped_storage().nbytes()) for number in numbers)
        return found

    def of(
        self,
        t: Tensor,
        category: str | None = None,
        known: bool = False,
        at: int = 0,
        born: str | None = None,
    ) -> list[int]:
        """The numbers of the storages of t: one, but for sparse ones and wrappers, whose parts have one
        each, and those without memory. known says that no op has just made it; otherwise it came at a time,
        in a phase."""
        try:
            if (self.kinds.get(type(t)) or self.kind(type(t))) != PLAIN:
                raise NotImplementedError
            storage = t.untyped_storage()
            key = address_of(storage)
        except (NotImplementedError, RuntimeError):
            return [n for part in self._parts(t) for n in self.of(part, category, known, at, born)]
        found = self.alive.get(key)
        if found is None:
            on = self.lies(t, storage)
            if on == "meta":
                return []
            found = self._new(storage, key, on)
            if known and (category is not None or not self.has_come(key, storage)):
                found.address = self.addresses.of(key, found.size)
                self.before.append(("a", found.number, found.size, 0, found.address))
                self.born.append(None)
                if category is None and t.grad_fn is not None:
                    category = "activation"  # of a step before, and kept: a loss that is looked at late
                elif category is None and self._of_parameter(key, storage):
                    self.idle.add(found.number)
            else:
                # memory that went while the op ran went before its outputs came
                now = at or self.rows.clock()
                if now > self.rows.last:
                    self.rows.last = now
                found.address = self.addresses.fresh(found.size)
                self.rows.came(found.number, found.size, found.address)
                self.born.append(None if known else born or self.phases.now())
                self.within.add(on, found.size)
        elif storage.nbytes() != found.size:
            self.resized(found, storage)
        if category is not None:
            self.category[found.number] = category
        return [found.number]

    def lies(self, t: Tensor, storage: UntypedStorage) -> str:
        """The device of a tensor's storage. A fake tensor's says meta where the tensor's own does not."""
        return "cpu" if t.is_cpu else str(storage.device)

    def has_come(self, key: int, storage: UntypedStorage) -> bool:
        """Whether a storage that an op reads and none made has come since the window began."""
        held = self.held.get(key)
        return (held is None or held() is not storage) and self.phases.now() == FORWARD

    def _of_parameter(self, key: int, storage: UntypedStorage) -> bool:
        """Whether a storage was a parameter's when Python's tensors were last looked for."""
        there = self.addresses.parameters.get(key)
        return there is not None and there() is storage

    def _new(self, storage: UntypedStorage, key: int, on: str) -> Storage:
        found = Storage(storage, self._gone)
        found.key, found.number, found.size = key, len(self.born), storage.nbytes()
        self.alive[key] = found
        self.where[found.number] = on
        if on != "cpu":
            self.device = on
        return found

    def _parts(self, t: Tensor) -> list[Tensor]:
        layout = t.layout
        torch = self.torch
        if layout == torch.sparse_coo:
            return sparse_parts(t)
        if layout in (torch.sparse_csr, torch.sparse_bsr):
            return [t.crow_indices(), t.col_indices(), t.values()]
        if layout in (torch.sparse_csc, torch.sparse_bsc):
            return [t.ccol_indices(), t.row_indices(), t.values()]
        flatten = getattr(t, "__tensor_flatten__", None)
        parts = [] if flatten is None else [getattr(t, name) for name in flatten()[0]]
        # a distributed tensor's mesh is named there as well
        return [part for part in parts if isinstance(part, self.tensor)]

    # -- coming and going ------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Note what Python holds before the window's first op."""
        self.held = self.addresses.look(self.torch, self.rows.clock)

    def end(self) -> None:
        """Forget every storage."""
        self.addresses.remember(list(self.alive.values()))
        self.alive.clear()

    def there(self) -> list[int]:
        """The numbers of those whose bytes still exist, if only on the host."""
        return [s.number for s in list(self.alive.values())] + list(self.away)

    def known(self, storage: UntypedStorage) -> Storage | None:
        """What is kept of a storage, None where nothing is noted of it."""
        return None if self.rows.stopped else self.alive.get(address_of(storage))

    def _gone(self, storage: Storage) -> None:
        rows = self.rows
        try:
            if rows.stopped or self.alive.get(storage.key) is not storage:
                return
            del self.alive[storage.key]
            number = storage.number
            if number in self.away:
                self.away[number] = storage
            else:
                self.within.remove(self.where[number], storage.size)
                self._frees(number)
        except Exception as e:
            rows.stop(e)

    def _frees(self, number: int) -> None:
        rows = self.rows
        rows.last = now = rows.clock()
        self.freed.add(number)
        rows.add(("f", number, now))

    def resized(self, found: Storage, storage: UntypedStorage) -> None:
        """A storage has, or may have, another size than before."""
        size, now = storage.nbytes(), self.rows.clock()
        self.rows.last = now
        if size != found.size:
            self.refilled.add(found.number)
            self.rows.list.append(("f", found.number, now))
            self.within.remove(self.where[found.number], found.size)
            found.size, found.address = size, self.addresses.fresh(size)
            self.rows.came(found.number, size, found.address)
            self.within.add(self.where[found.number], size)

    def workspace(self, op: str, on: str, size: int, kept: int) -> int:
        """Note bytes that an op took for itself, of which it keeps some, and return their number."""
        number = len(self.born)
        self.born.append(None)
        self.where[number], self.category[number] = on, "temporary"
        self.label[number] = Says("workspace", op)
        self.rows.came(number, kept or size, self.addresses.fresh(kept or size))
        if kept:
            self.within.add(on, kept)
        return number

    # -- bytes that wait on the host -------------------------------------------------------------------------

    def goes(self, storage: UntypedStorage) -> int | None:
        """The bytes of a storage are about to wait on the host. Returns the number by which to say what
        becomes of them; None where it is not known."""
        found = self.known(storage)
        if found is None:
            return None
        self.away[found.number] = None
        return found.number

    def comes_back(self, number: int, storage: UntypedStorage) -> None:
        """They are in another storage from now on, and were there all the time."""
        was = self.away.pop(number, None)
        if was is None or self.rows.stopped:
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
        if was is not None and not self.rows.stopped:
            self._frees(number)

    # -- at the end ------------------------------------------------------------------------------------------

    def untouched(self) -> None:
        """Add what was there when the window began and no storage showed, and say when it goes."""
        there: dict[str, int] = {}
        frees = []
        for _, number, size, _, _ in self.before:
            there[self.where[number]] = there.get(self.where[number], 0) + size
        for k, on in enumerate(sorted(self.within.held)):
            stays, pieces = self.within.rest(on, there.get(on, 0))
            for at, size, label in [(None, stays, Says("untouched"))] * (stays > 0) + [
                (rows, n, Says("of_step_before")) for rows, n in pieces
            ]:
                number = len(self.born)
                self.born.append(None)
                self.where[number], self.category[number], self.label[number] = on, "unknown", label
                address = REST_ADDRESS * (k + 1) if at is None else self.addresses.fresh(size)
                self.before.append(("a", number, size, 0, address))
                if at is not None:
                    frees.append((at, number))
        rows = self.rows.list
        for at, number in sorted(frees, reverse=True):  # from behind, so that the places of the others stay
            row = rows[min(at, len(rows) - 1)]
            rows.insert(at, ("f", number, row[TIME_AT[row[0]]]))
