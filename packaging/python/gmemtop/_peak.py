"""Measures the memory peak of tensors while a piece of code runs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from types import TracebackType


class TensorPeak(TorchDispatchMode):
    """Counts the bytes of the storages that ops make on the CPU, like gmemtop's agent in a captured step. A
    Python storage lives exactly as long as its memory, so a weak reference tells when it is freed. Storages
    that an op reads but no op has made are older and do not count, nor does memory that kernels take inside
    an op. Ops run as usual, with the same results."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, Any] = {}  # by address: weak references to storages, new and older ones

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if (
            func is not torch.ops.aten.lift_fresh.default
        ):  # its argument comes from torch.tensor(), so it is new
            for t in _tensors((args, kwargs)):
                self._note(t, 0)
        out = func(*args, **kwargs)
        for t in _tensors(out):
            self._note(t, None)
        return out

    def _note(self, t: Any, size: int | None) -> None:
        if t.device.type != "cpu" or t.layout is not torch.strided:
            return
        try:
            storage = t.untyped_storage()
        except Exception:  # a wrapper: its parts are tensors of their own
            return
        key = storage._cdata
        if key in self._alive:
            return
        size = storage.nbytes() if size is None else size

        def gone(_: Any) -> None:
            del self._alive[key]
            self.now -= size

        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def _tensors(tree: Any) -> Iterator[Any]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for x in tree:
            yield from _tensors(x)
    elif isinstance(tree, dict):
        for x in tree.values():
            yield from _tensors(x)


class Peak:
    """Measures a block of code: on each GPU, how far PyTorch's own peak rises above what was allocated at the
    beginning; on the CPU, by TensorPeak. It resets the peak counters of the GPUs."""

    def __init__(self) -> None:
        self.bytes: dict[str, int] = {}  # by device
        self._tensors = TensorPeak()
        self._before: dict[int, int] = {}

    def __enter__(self) -> Peak:
        for k in self._gpus():
            torch.cuda.synchronize(k)
            torch.cuda.reset_peak_memory_stats(k)
            self._before[k] = torch.cuda.memory_allocated(k)
        self._tensors.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tensors.__exit__(kind, e, trace)
        self.bytes["cpu"] = self._tensors.peak
        for k in self._gpus():
            self.bytes["cuda:%d" % k] = torch.cuda.max_memory_allocated(k) - self._before.get(k, 0)

    @staticmethod
    def _gpus() -> range:
        """The GPUs, if the process already uses them: measuring must not be the first to take their
        memory."""
        return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
