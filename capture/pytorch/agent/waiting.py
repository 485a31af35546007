"""Tensors whose bytes wait on the host while nobody uses them: optimizer state, above all.

A tensor that waits is the same object as before. Its bytes are on the host, and its type is Waiting, a
subclass of Tensor that torch asks before it does anything with it. So its first user, the optimizer's
step or a checkpoint, finds it back on its device. Code that does not ask reads the right bytes on the host.

It needs no agent to come back.

Rejected: hooks around the optimizer's step alone, since programs look at optimizer state between steps; a
storage of size 0, which is a crash where torch is not asked first; other tensors in the optimizer's
dictionary, since code that holds the old ones would not see them.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Iterable

from .compat import without_dispatch, without_functions
from .values import bytes_of, space_for

if TYPE_CHECKING:
    from .kinds import Device, Tensor
    from .parked import Rack

PLACE = "gmemtop_place"  # the attribute of a tensor that waits


class Place:
    """Where the bytes of one tensor wait."""

    __slots__ = ("rack", "owner", "device", "host", "offset", "sum", "returned", "closed")

    def __init__(self, rack: Rack, device: Device, host: Tensor) -> None:
        self.rack, self.device, self.host = rack, device, host
        self.offset = 0  # of the tensor in its storage, in elements
        self.owner = 0  # the number of the parameter whose state it is
        self.sum: Tensor = None  # of its bytes, where they are compared
        self.closed = False  # nothing goes here any more
        self.returned = 0  # how often it came back since the last step of an optimizer ended


@functools.lru_cache(1)
def waiting_class(tensor: type) -> Any:
    """One class for all: a class refers to itself, so only the garbage collector frees it."""

    class Waiting(tensor):  # type: ignore[misc]
        waits_on_host = True

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs if kwargs is not None else {}
            all_back(cls, (args, tuple(kwargs.values())))
            return func(*args, **kwargs)

    return Waiting


def waits(kind: type) -> bool:
    """Whether tensors of a type wait on the host."""
    return getattr(kind, "waits_on_host", False)


def all_back(kind: type, tree: Iterable[Any]) -> None:
    """Bring back what waits of some arguments."""
    used: list[Tensor] = []
    _collect(tree, used)
    waiting = [t for t in used if type(t) is kind]
    racks = []
    for t in waiting:
        rack = t.__dict__[PLACE].rack
        if rack not in racks:
            racks.append(rack)
            rack.make_room(waiting, used)
    for t in waiting:
        bring_back(t)


def _collect(tree: Iterable[Any], found: list[Tensor]) -> None:
    for x in tree:
        if isinstance(x, (list, tuple)):
            _collect(x, found)
        elif isinstance(x, dict):
            _collect(x.values(), found)
        elif hasattr(type(x), "untyped_storage"):
            found.append(x)


_bringing = threading.RLock()


def bring_back(t: Tensor) -> None:
    """Have a tensor that waits on its device again. What it raises is out of memory: then it waits on."""
    with _bringing:
        place = t.__dict__.get(PLACE)
        if place is None:  # another thread was first
            return
        torch = place.rack.torch
        with torch.inference_mode(False), torch.no_grad():
            begin = place.rack.clock()
            with without_functions(torch):
                space = space_for(torch, place.host.numel(), t.dtype, place.device)
                with without_dispatch(torch):
                    storage = space.untyped_storage()
                    bytes_of(torch, storage, torch.uint8).copy_(place.host)
                    t.data = _shown(torch, t, storage, place.offset)
            del t.__dict__[PLACE]
            t.__class__ = torch.Tensor
            place.rack.returned(t, place, begin)


def send_away(t: Tensor, place: Place) -> None:
    """Have a tensor wait at a place."""
    torch = place.rack.torch
    with torch.inference_mode(False), torch.no_grad(), without_dispatch(torch):
        storage = t.untyped_storage()
        place.host.copy_(bytes_of(torch, storage, torch.uint8))
        place.offset = t.storage_offset()
        begins = place.host.storage_offset() // t.element_size()
        t.data = _shown(torch, t, place.host.untyped_storage(), begins + place.offset)
    t.__dict__[PLACE] = place
    t.__class__ = waiting_class(torch.Tensor)


def _shown(torch: Any, t: Tensor, storage: Any, offset: int) -> Tensor:
    """A tensor that looks at another storage as t does at its own."""
    return torch.empty(0, dtype=t.dtype, device=storage.device).set_(storage, offset, t.size(), t.stride())
