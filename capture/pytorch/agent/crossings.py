"""Which optimizers step while a graph waits for its backward pass.

In a GAN, the generator's graph is often made before the discriminator's optimizer steps, and its backward
pass runs after that. If steps ended at the discriminator's optimizer, each would hold half of the graph. But
a plan acts within a step, so steps should end where no graph waits.
"""

from __future__ import annotations


class Crossings:
    """Counts, for each optimizer, the bytes that were saved before it stepped and needed afterwards."""

    def __init__(self) -> None:
        self.stepped: list[int] = []  # ids of optimizers, as they stepped
        self.saved: dict[int, int] = {}  # by storage number: how many had stepped when it was last saved
        self.bytes: dict[int, int] = {}  # by the optimizer's id

    def step(self, optimizer: int) -> None:
        """An optimizer has stepped."""
        self.stepped.append(optimizer)
        self.bytes.setdefault(optimizer, 0)

    def save(self, number: int) -> None:
        self.saved[number] = len(self.stepped)

    def load(self, number: int, size: int) -> None:
        """A storage is needed; `size` is its bytes. Only the first time counts."""
        for optimizer in set(self.stepped[self.saved.pop(number, len(self.stepped)) :]):
            self.bytes[optimizer] += size
