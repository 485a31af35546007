"""The streams of a plan: the one that it speaks of, and two beside it for copies.

A CPU has no streams, and a copy is waited for. Freed memory goes back to the plan's stream, which
has waited for the copy to the host, and what returns is allocated on it. An op on another stream that reads
what returned waits for that stream, and the memory is marked as used there.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from .kinds import Device, Tensor
    from .values import Value


def capturing(torch: Any) -> bool:
    """Whether what is done now becomes part of a CUDA graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Streams:
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.main: Any = None  # the one on which modules first ran
        self.out: Any = None
        self.back: Any = None

    def open(self, device: Device) -> None:
        """Have copies made beside compute from now on."""
        if device.type == "cuda":
            self.out, self.back = self.torch.cuda.Stream(device), self.torch.cuda.Stream(device)

    def close(self) -> None:
        self.out = self.back = None

    def elsewhere(self) -> bool:
        """Whether the current stream is another than the one that the plan speaks of."""
        return self.main is not None and self.torch.cuda.current_stream(self.main.device) != self.main

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """On the plan's stream."""
        if not self.elsewhere():
            yield
        else:
            with self.torch.cuda.stream(self.main):
                yield

    def copy_out(self, host: Tensor, flat: Tensor) -> Any:
        """Copy to the host. Returns an event behind the copy, None where it is done."""
        if self.out is None:
            host.copy_(flat)
            return None
        self.out.wait_stream(self.main)
        with self.torch.cuda.stream(self.out):
            host.copy_(flat, non_blocking=True)
        return self.out.record_event()

    def copy_back(self, flat: Tensor, host: Tensor) -> Any:
        """Copy from the host. Returns an event behind the copy, None where it is done."""
        if self.back is None:
            flat.copy_(host)
            return None
        # which has waited for the copy to the host when it gave the memory back
        self.back.wait_stream(self.main)
        with self.torch.cuda.stream(self.back):
            flat.copy_(host, non_blocking=True)
        return self.back.record_event()

    def release(self, value: Value) -> None:
        """Give memory back: the stream whose it is waits for the copy before it can be used again."""
        self.main.wait_event(value.done)
        value.base = None

    def meet(self, value: Value) -> None:
        """Have the current stream wait for bytes that came back, and their memory for what reads them
        here."""
        here = self.torch.cuda.current_stream(value.base.device)
        if value.arrived is not None:
            value.stream.wait_event(value.arrived)
            value.arrived = None
        if here != value.stream:
            if not capturing(self.torch):  # where a capture began, its stream waited for all
                here.wait_stream(value.stream)
            value.base.record_stream(here)

    def follow(self) -> None:
        """Have the current stream wait for the plan's."""
        if self.elsewhere():
            self.torch.cuda.current_stream(self.main.device).wait_stream(self.main)
