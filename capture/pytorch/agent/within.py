"""Device memory that belongs to none of the program's tensors.

An op takes memory for itself while it runs: a library's workspace (cuBLAS takes 32 MiB on an H100), a
kernel's temporaries. It comes from torch's allocator, and no Python storage stands for it. A plan that
ignores it does not fit.

The allocator counts all bytes it was ever asked for. The growth of that count while an op runs, minus the
storages allocated meanwhile, is what the op took for itself. Several blocks are added up as if they all
existed at once, so a plan never assumes too little. If the op keeps a block, as torch up to 2.11 keeps
cuBLAS's workspace, it stays from then on. What the allocator holds when the window begins, minus the storages
that exist then, is memory that these steps do not touch: an older workspace, an unused model, or the last
step's logits, which are freed when the program's variable gets this step's. Readings between ops show when
such bytes are freed.

Reading the allocator twice takes 30 microseconds per op, only while a step is described. Rejected: torch's
own rules for workspace sizes (they change with torch, card and environment, and no kernel's temporaries
follow them); the peak counter (it belongs to the program, and resetting it would change what the program
reads).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .compat import memory_stats

if TYPE_CHECKING:
    from .kinds import Look

# the address, on each device, of memory that the steps do not touch: below all made-up storage addresses
REST_ADDRESS = 1 << 12


class Within:
    """What a window knows about such bytes. Figures are the sizes asked for, before the allocator rounds
    them."""

    def __init__(self, torch: Any) -> None:
        # by device, what the allocator held when the window began
        self.stats: Any = None
        self.held: dict[str, int] = {}
        # by device, bytes of storages that were allocated and that were freed in the window
        self.came: dict[str, int] = {}
        self.gone: dict[str, int] = {}
        # by device, before each of its ops: number of rows, bytes held, bytes allocated minus bytes freed
        self.looks: dict[str, list[tuple[int, int, int]]] = {}
        try:
            if torch.cuda.is_initialized() and torch.cuda.get_allocator_backend() == "native":
                self.stats = memory_stats(torch)
                self.held = {"cuda:%d" % k: self.look(k)[1] for k in range(torch.cuda.device_count())}
        except Exception:  # an allocator that counts nothing
            self.stats = None

    def look(self, index: int) -> tuple[int, int]:
        """The bytes that a device's allocator was ever asked for, and those that it holds now."""
        requested = self.stats(index)["requested_bytes"]["all"]
        return requested["allocated"], requested["current"]

    def add(self, on: str, size: int) -> None:
        self.came[on] = self.came.get(on, 0) + size

    def remove(self, on: str, size: int) -> None:
        self.gone[on] = self.gone.get(on, 0) + size

    def before(self, inputs: Any, rows: int) -> Look | None:
        """The state before an op runs: the device, its figures, and the bytes allocated so far; None if the
        op does not run on a GPU."""
        if self.stats is not None:
            for t in inputs:
                if t.is_cuda:
                    index = t.device.index or 0
                    on = "cuda:%d" % index
                    asked, held = self.look(index)
                    came = self.came.get(on, 0)
                    self.looks.setdefault(on, []).append((rows, held, came - self.gone.get(on, 0)))
                    return on, index, asked, held, came
        return None

    def took(self, was: Look, now: tuple[int, int]) -> tuple[int, int]:
        """The bytes that an op took for itself, and how many of them it keeps."""
        on, _, asked, held, came = was
        shown = self.came.get(on, 0) - came
        took = now[0] - asked - shown
        return max(took, 0), min(max(now[1] - held - shown, 0), max(took, 0))

    def rest(self, on: str, there: int) -> tuple[int, list[tuple[int, int]]]:
        """The bytes that the allocator held at the window's start beyond its storages (`there` is their
        bytes). Returns the bytes that stay, and a list of pieces that are freed, each with the number of
        rows before that."""
        rest, pieces = max(self.held.get(on, 0) - there, 0), []
        for rows, held, net in self.looks.get(on, ()):
            now = max(held - net - there, 0)
            if now < rest:
                pieces.append((rows, rest - now))
                rest = now
        return rest, pieces
