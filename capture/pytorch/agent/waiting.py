"""Tensors whose bytes wait on the host while nobody uses them, mainly optimizer state.

A waiting tensor is the same object as before. Its bytes are on the host, and its type is Waiting, a subclass
of Tensor that torch calls before it does anything with the tensor. So its first user, the optimizer's step or
a checkpoint, finds it back on its device. Code that bypasses that call reads the right bytes on the host.

A tensor comes back without the agent.

Rejected: hooks around the optimizer's step alone, since programs look at optimizer state between steps; a
storage of size 0, which would crash code that bypasses torch's call; other tensors in the optimizer's
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

PLACE = "gmemtop_place"  # the attribute of a waiting tensor


class Place:
    """The place where the bytes of one tensor wait."""

    __slots__ = ("rack", "owner", "device", "host", "offset", "sum", "returned", "closed")

    def __init__(self, rack: Rack, device: Device, host: Tensor) -> None:
        self.rack, self.device, self.host = rack, device, host
        self.offset = 0  # the tensor's offset in its storage, in elements
        self.owner = 0  # the number of the parameter whose state it is
        self.sum: Tensor = None  # the sum of its bytes, if they are compared
        self.closed = False  # no tensor goes here any more
        self.returned = 0  # how often it came back since the last optimizer step ended


@functools.lru_cache(1)
def waiting_class(tensor: type) -> Any:
    """The one class for all waiting tensors. A class refers to itself, so only the garbage collector frees
    it; making more would leave garbage."""

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
    """Bring back the waiting tensors among some arguments."""
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
    """Bring a waiting tensor back to its device. If that fails, usually for lack of memory, free some and try
    again; the plan then ends with the step. If it fails for good, raise: the tensor stays on the host."""
    with _bringing:
        place = t.__dict__.get(PLACE)
        if place is None:  # another thread was faster
            return
        begin = place.rack.clock()
        place.rack.attempt(lambda serially: _bring(t, place))
        place.rack.returned(t, place, begin)


def _bring(t: Tensor, place: Place) -> None:
    torch = place.rack.torch
    with torch.inference_mode(False), torch.no_grad():
        with without_functions(torch):
            space = space_for(torch, place.host.numel(), t.dtype, place.device)
            with without_dispatch(torch):
                storage = space.untyped_storage()
                bytes_of(torch, storage, torch.uint8).copy_(place.host)
                t.data = _shown(torch, t, storage, place.offset)
        del t.__dict__[PLACE]
        t.__class__ = torch.Tensor


def send_away(t: Tensor, place: Place) -> None:
    """Move a tensor's bytes to a place on the host."""
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
    """A view of another storage with t's type, shape and strides."""
    return torch.empty(0, dtype=t.dtype, device=storage.device).set_(storage, offset, t.size(), t.stride())
