"""The streams of a plan: the one it applies to, and two more for copies.

A CPU has no streams, so the training thread waits for each copy. On a GPU, freed memory goes back to the
plan's stream, which has waited for the copy to the host, and tensors that come back are allocated on it. If
an op on another stream reads such a tensor, it waits for the plan's stream, and the memory is marked as used
on the other stream.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .kinds import Device, Tensor
    from .values import Value


def capturing(torch: Any) -> bool:
    """Whether the current work is being captured into a CUDA graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Streams:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.main: Any = None  # the stream on which modules first ran
        self.out: Any = None
        self.back: Any = None

    def open(self, device: Device) -> None:
        """Make copies run beside compute from now on."""
        if device.type == "cuda":
            self.out, self.back = self.torch.cuda.Stream(device), self.torch.cuda.Stream(device)

    def close(self) -> None:
        self.out = self.back = None

    def elsewhere(self) -> bool:
        """Whether the current stream is not the plan's."""
        return self.main is not None and self.torch.cuda.current_stream(self.main.device) != self.main

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """Run the block on the plan's stream."""
        if not self.elsewhere():
            yield
        else:
            with self.torch.cuda.stream(self.main):
                yield

    def copy_out(self, host: Tensor, flat: Tensor) -> Any:
        """Copy to the host. Returns an event after the copy, None if it is already done."""
        if self.out is None:
            host.copy_(flat)
            return None
        self.out.wait_stream(self.main)
        with self.torch.cuda.stream(self.out):
            host.copy_(flat, non_blocking=True)
        return self.out.record_event()

    def copy_back(self, flat: Tensor, host: Tensor) -> Any:
        """Copy from the host. Returns an event after the copy, None if it is already done."""
        if self.back is None:
            flat.copy_(host)
            return None
        # main waited for the copy to the host when it gave the memory back
        self.back.wait_stream(self.main)
        with self.torch.cuda.stream(self.back):
            flat.copy_(host, non_blocking=True)
        return self.back.record_event()

    def release(self, value: Value) -> None:
        """Give memory back: the stream that owns it waits for the copy, and only then can reuse it."""
        self.main.wait_event(value.done)
        value.base = None

    def meet(self, value: Value) -> None:
        """Make the current stream wait for bytes that came back, and keep their memory until it has read
        them."""
        here = self.torch.cuda.current_stream(value.base.device)
        if value.arrived is not None:
            value.stream.wait_event(value.arrived)
            value.arrived = None
        if here != value.stream:
            if not capturing(self.torch):  # when a capture began, its stream waited for everything
                here.wait_stream(value.stream)
            value.base.record_stream(here)

    def follow(self) -> None:
        """Make the current stream wait for the plan's."""
        if self.elsewhere():
            self.torch.cuda.current_stream(self.main.device).wait_stream(self.main)
