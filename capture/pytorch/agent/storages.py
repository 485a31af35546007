"""Tracks which memory exists, and when it is allocated and freed.

A Python storage object lives exactly as long as its memory, so a weak reference to it tells when the memory
is freed. Its C++ address identifies it while it lives; later the address may be reused. A storage that is
resized in place (FSDP empties and refills gathered parameters this way) counts as a free and an allocation.

Which storages are older than the window? An op's output appears with the op. But data made from an array, a
list or another process's memory appears without one, and is first seen when an op reads it, just like a table
made years ago. So a window begins with weak references to the storages of all tensors that Python holds. Any
other storage that the forward pass meets is newer; one that only the backward pass or an optimizer meets is
older (a reducer's buckets, which C++ holds).
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


LOOKS = 100  # finding all tensors takes t: it is done at most once every LOOKS * t

# The kinds of arguments of an op.
OTHER, PLAIN, WRAPPER, SEQUENCE, MAPPING = range(5)


class Storage(weakref.ref):  # type: ignore[type-arg]  # Python 3.8 takes none here
    """A weak reference to a live storage, with its address and number."""

    __slots__ = ("key", "number", "size", "address")
    key: int
    number: int
    size: int
    address: int


class Addresses:
    """What windows pass on to later ones: made-up addresses, which a storage keeps as long as its C++ address
    and size stay the same; and weak references to the storages that Python held, with the parameters of
    modules among them."""

    def __init__(self) -> None:
        self.next = 1 << 20
        self.last: dict[int, tuple[int, int]] = {}
        self.there: dict[int, Any] = {}
        # storages of parameters, by C++ address. Not the parameters themselves: torch.utils.swap_tensors
        # refuses a tensor with weak references
        self.parameters: dict[int, weakref.ref[UntypedStorage]] = {}
        self.looked = self.cost = 0  # when look() last ran, and how long it took

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
        """Weak references to the storages of the tensors that Python holds, by C++ address. Going through all
        objects takes tens of milliseconds, so after taking t it is done again only after share * t. Until
        then, what later windows have seen is added."""
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
                except Exception:  # no storage of its own: its parts are tensors, or it has no memory
                    pass
        self.looked = clock()
        self.cost = self.looked - now
        return self.there

    def expire(self) -> None:
        """Make the next look() search again."""
        self.looked = 0

    def remember(self, alive: list[Storage]) -> None:
        """A window ends: keep what it knows."""
        held = [(s, s()) for s in alive]
        self.last = {s.key: (s.address, s.size) for s, _ in held}
        self.there.update((s.key, weakref.ref(storage)) for s, storage in held if storage is not None)


class Storages:
    """Numbers the storages of a window, and notes when they come and go and what is known about each."""

    def __init__(self, torch: Any, rows: Rows, phases: Phases, addresses: Addresses, within: Within) -> None:
        self.torch, self.tensor = torch, torch.Tensor
        self.rows, self.phases, self.addresses, self.within = rows, phases, addresses, within
        self.alive: dict[int, Storage] = {}  # by C++ address
        self.before: list[Row] = []  # rows of storages that existed when the window began
        self.held: dict[int, Any] = {}  # the storages that Python held then
        self.freed: set[int] = set()
        self.refilled: set[int] = set()  # numbers whose size changed
        self.idle: set[int] = set()  # numbers of parameters that were seen before any module ran them
        # by number: storages whose bytes wait on the host and come back in another storage; None until freed
        self.away: dict[int, Storage | None] = {}
        # by number: the phase that made it, None for none; its device; its category and name, if known
        self.born: list[str | None] = []
        self.where: dict[int, str] = {}
        self.category: dict[int, str] = {}
        self.label: dict[int, str] = {}
        self.device = "cpu"  # the device of the newest storage that is not on the CPU
        self.kinds: dict[type, int] = {}  # the kind of each type

    # -- tensors ---------------------------------------------------------------------------------------------

    def kind(self, of: type) -> int:
        """The kind of a type. Types are few and ops are many, so slow checks, such as whether a type is a
        tensor's, are made once for each type."""
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
        """The numbers of the storages that an op is about to read. Nearly all of them are known, which saves
        the call of of()."""
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
                    pass  # a sparse tensor: its parts have storages
            out += self.of(t, known=True)
        return out

    def made(self, out: Any, read: list[int], at: int, born: str) -> list[int]:
        """The numbers of the storages that an op made: those that it returned without having read them. at is
        when it began, and born is the phase that they belong to."""
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
        """The sizes of the storages of some tensors, by number. Only for tensors with exactly one storage."""
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
        """The numbers of the storages of t: one for a plain tensor, one per part for a sparse tensor or a
        wrapper, none without memory. known says that no op has just made it; otherwise it was made at time
        `at`, in phase `born`."""
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
                    category = "activation"  # kept from an earlier step, such as a loss that is read late
                elif category is None and self._of_parameter(key, storage):
                    self.idle.add(found.number)
            else:
                # memory freed while the op ran was freed before its outputs were allocated
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
        """The device of a tensor's storage. A fake tensor's storage says meta; the tensor itself does not."""
        return "cpu" if t.is_cpu else str(storage.device)

    def has_come(self, key: int, storage: UntypedStorage) -> bool:
        """Whether a storage that an op reads, but no op made, is newer than the window's start."""
        held = self.held.get(key)
        return (held is None or held() is not storage) and self.phases.now() == FORWARD

    def _of_parameter(self, key: int, storage: UntypedStorage) -> bool:
        """Whether a storage was a parameter's at the last search for tensors."""
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
        # the names include a distributed tensor's mesh
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
        """The numbers of storages whose bytes still exist, even if only on the host."""
        return [s.number for s in list(self.alive.values())] + list(self.away)

    def known(self, storage: UntypedStorage) -> Storage | None:
        """What is known about a storage, None if nothing is recorded about it."""
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
        """The size of a storage may have changed."""
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
        """Note bytes that an op took for itself, and return their number. It keeps `kept` of them."""
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
        """The bytes of a storage are about to move to the host. Returns the number to pass to comes_back() or
        let_go(), None if the storage is not known."""
        found = self.known(storage)
        if found is None:
            return None
        self.away[found.number] = None
        return found.number

    def comes_back(self, number: int, storage: UntypedStorage) -> None:
        """The bytes are in another storage from now on. The window shows them as if they had never left."""
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
        """Nobody needs the bytes any more."""
        was = self.away.pop(number, None)
        if was is not None and not self.rows.stopped:
            self._frees(number)

    # -- at the end ------------------------------------------------------------------------------------------

    def untouched(self) -> None:
        """Add the memory that was allocated when the window began but belongs to no storage, and when it is
        freed."""
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
        for at, number in sorted(frees, reverse=True):  # from the end, so the other positions stay valid
            row = rows[min(at, len(rows) - 1)]
            rows.insert(at, ("f", number, row[TIME_AT[row[0]]]))
