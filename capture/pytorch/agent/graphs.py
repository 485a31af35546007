"""What a plan does where the program uses CUDA graphs.

A capture would repeat the plan's copies in every replay, and a replay reads and writes memory that no hook
sees. So before a graph is captured everything that has left comes back, and a plan that moves or drops
something ends with the step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable

from .compat import without_dispatch
from .patch import Patches
from .says import Says

if TYPE_CHECKING:
    from .carry import Carrier

REPLAYS = Says("graphs_replay")
CAPTURES = Says("graph_captured")


class Graphs:
    """Watches the graphs of the program for one plan."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier, self.patches = carrier, Patches()

    def stand(self) -> None:
        carrier, cuda = self.carrier, self.carrier.torch.cuda
        if not hasattr(cuda, "CUDAGraph"):
            return
        if carrier.entries:
            self.patches.put(cuda.CUDAGraph, "replay", self._replaying)
        if carrier.entries or carrier.offloads:
            self.patches.put(cuda.CUDAGraph, "capture_begin", self._capturing)

    def remove(self) -> None:
        self.patches.undo()

    def _replaying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        carrier = self.carrier

        @functools.wraps(original)
        def replay(*args: Any, **kwargs: Any) -> Any:
            carrier.end(carrier.now, REPLAYS)
            return original(*args, **kwargs)

        return replay

    def _capturing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        carrier, all_back = self.carrier, self._all_back

        @functools.wraps(original)
        def capture_begin(*args: Any, **kwargs: Any) -> Any:
            with without_dispatch(carrier.torch):
                all_back()
            return original(*args, **kwargs)

        return capture_begin

    def _all_back(self) -> None:
        """Bring back everything that has left before a graph is captured, or the copies would become part of
        it. If there is no memory for that, there would be none without the plan either."""
        carrier = self.carrier
        carrier.end(carrier.now, CAPTURES)
        carrier.rescue.moves = False
        for value, made in sorted(carrier.away.items(), key=lambda x: x[0].entry["save"]):
            it = made()
            if it is not None:
                with it.lock:
                    it.leaving = []
                    value.base = carrier.base_of(it, value, carrier.torch.uint8)
                    value.sum = value.host = None  # so it stays
