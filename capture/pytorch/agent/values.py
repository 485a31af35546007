"""The stand-ins for a saved tensor until it is needed: where its bytes are, and how the tensor views them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from .compat import version_of, without_dispatch, without_versions

if TYPE_CHECKING:
    from .carry import Iteration
    from .kinds import DType, Tensor, UntypedStorage
    from .spare import Spare

CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a "
    "saved tensor of shape %s is at version %d; expected version %d instead"
)


UNCOUNTED = -2  # in the place of a saved tensor's number: it does not count among those of the step


def expect_unchanged(witness: Tensor, version: int, shape: Any) -> None:
    """Raise the error that autograd raises without hooks if a saved tensor was changed."""
    if version >= 0 and version_of(witness) != version:
        raise RuntimeError(CHANGED % (list(shape), version_of(witness), version))


def movable(t: Tensor, plain: tuple[type, ...], strided: Any) -> bool:
    """Whether a tensor is nothing but its bytes, so another tensor with the same bytes can replace it."""
    return (
        type(t) in plain
        and t.layout == strided
        and not t.is_conj()
        and not t.is_neg()
        and not t.is_inference()
    )


def bytes_of(torch: Any, storage: UntypedStorage, dtype: DType) -> Tensor:
    """A storage as a flat tensor."""
    with without_dispatch(torch):
        return torch.empty(0, dtype=dtype, device=storage.device).set_(storage)


def space_for(torch: Any, size: int, dtype: DType, device: Any) -> Tensor:
    """A flat tensor of `size` bytes. Its type is dtype if size is a multiple of its item size, else uint8."""
    each = dtype.itemsize if hasattr(dtype, "itemsize") else torch.empty(0, dtype=dtype).element_size()
    if size % each == 0:
        return torch.empty(size // each, dtype=dtype, device=device)
    return torch.empty(size, dtype=torch.uint8, device=device)


class Kept:
    """A saved tensor that stays. It is kept detached: torch may pass in the output of an op, which refers to
    its autograd node, and the node to what it saved. If the graph never ran backward, such a cycle would
    never be freed."""

    __slots__ = ("iteration", "save", "tensor", "version", "__weakref__")

    def __init__(self, iteration: Iteration, tensor: Tensor, save: int = -1) -> None:
        self.iteration = iteration
        self.save = save  # its number in the planned step, if places give it; UNCOUNTED if it has none
        if type(tensor) in iteration.carrier.plain:
            with without_dispatch(iteration.carrier.torch):
                self.tensor = tensor.detach()
        else:
            self.tensor = tensor.detach()
        self.version = -1 if tensor.is_inference() else version_of(tensor)


class Handle:
    """A tensor whose bytes are in a Value."""

    __slots__ = ("iteration", "value", "dtype", "size", "stride", "offset", "witness", "version", "save")

    def __init__(self, iteration: Iteration | None, value: Value, t: Tensor) -> None:
        self.iteration: Any = iteration  # None if a call holds this handle: calls do not outlive an iteration
        self.value = value
        self.save = -1  # as in Kept
        self.dtype = t.dtype
        self.size = t.size()
        self.stride = t.stride()
        self.offset = t.storage_offset()
        self.witness: Tensor = None
        self.version = -1

    def watch(self, torch: Any, t: Tensor) -> Handle:
        """Keep a saved tensor's version counter, but not its bytes."""
        with without_dispatch(torch):
            self.witness = t.detach()
            with without_versions(torch):
                self.witness.set_()
        self.version = version_of(t)
        return self

    def seen_in(self, torch: Any, base: Tensor) -> Tensor:
        """The tensor as a view of base, its bytes that have come back."""
        if base.dtype == self.dtype:
            return base.as_strided(self.size, self.stride, self.offset)
        with without_dispatch(torch):
            return torch.empty(0, dtype=self.dtype, device=base.device).set_(
                base.untyped_storage(), self.offset, self.size, self.stride
            )


class Value:
    """The bytes of one storage: on the device, on the host, or to be recomputed."""

    __slots__ = (
        "storage",
        "base",
        "bytes",
        "entry",
        "groups",
        "readers",
        "spoiled",
        "host",
        "done",
        "arrived",
        "stream",
        "sum",
        "unwritten",
        "shown",
        "spare",
        "left",
        "witness",
        "copied",
        "__weakref__",
    )

    def __init__(self, storage: UntypedStorage) -> None:
        self.storage = weakref.ref(storage)
        self.base: Tensor = None
        self.bytes = storage.nbytes()
        # groups: the ones whose calls make it, if the calls were noted; readers: those whose calls read it,
        # although they do not make it
        self.entry: Any = None  # what the plan says about it
        self.groups: list[int] | None = None
        self.readers: set[int] = set()
        self.spoiled = False
        self.unwritten = False  # the op that made it did not write its bytes, so two runs need not agree
        # stream: the stream that owns base's memory, if another stream may read it
        self.host: Tensor = None
        self.done: Any = None
        self.arrived: Any = None
        self.stream: Any = None
        self.sum: Tensor = None
        self.spare: Spare | None = None  # a copy on the host, in case it cannot be recomputed
        self.shown: set[Any] | None = None  # the views that were saved of bytes changed in place
        self.left = -1  # its version when an outermost module had been given or had returned it
        self.witness: Tensor = None  # shares its version counter, if calls read base again
        self.copied = False  # base is a copy, in case the program changes the tensor

    def stale(self, t: Tensor) -> bool:
        """Whether the program has changed the tensor between two outermost modules."""
        return self.left >= 0 and self.left != version_of(t)

    def overwritten(self) -> bool:
        """Whether the program has changed, outside of modules, bytes that a noted call reads again."""
        return self.witness is not None and self.base is not None and self.stale(self.witness)

    def changed(self, t: Tensor) -> bool:
        """Whether the bytes of a tensor that is saved now may have changed since its storage was first saved.
        Views without a common version counter (torch.unsafe_chunk, with which torch's LSTM makes its gates)
        change one after the other, each saved before the next one changes. A counter of 0 means no change;
        and a view that was already saved with the same count still has the same bytes."""
        version = version_of(t)
        if version == 0:
            return False
        view = t.storage_offset(), t.size(), t.stride(), t.dtype, version
        if self.shown is None:
            self.shown = set()
        if view in self.shown:
            return False
        self.shown.add(view)
        return True

    def __del__(self) -> None:
        # fetched but never used: the next user of the memory has to wait for the copy
        if self.arrived is not None:
            self.stream.wait_event(self.arrived)
