"""Which optimizers step while a graph waits for its backward pass.

The generator's graph of a GAN is often made before the discriminator's optimizer steps, and goes through its
backward pass behind that. Steps that ended there would each hold half of the graph, and a plan acts within a
step: they are to end where no graph waits.
"""

from __future__ import annotations


class Crossings:
    """Counts, for each optimizer, the bytes that were saved before it stepped and needed behind that."""

    def __init__(self) -> None:
        self.stepped: list[int] = []  # ids of optimizers, as they stepped
        self.saved: dict[int, int] = {}  # how many had when a storage was saved last, by its number
        self.bytes: dict[int, int] = {}  # by the optimizer's id

    def step(self, optimizer: int) -> None:
        """An optimizer has stepped."""
        self.stepped.append(optimizer)
        self.bytes.setdefault(optimizer, 0)

    def save(self, number: int) -> None:
        self.saved[number] = len(self.stepped)

    def load(self, number: int, size: int) -> None:
        """A storage of so many bytes is needed. Only the first time counts."""
        for optimizer in set(self.stepped[self.saved.pop(number, len(self.stepped)) :]):
            self.bytes[optimizer] += size
