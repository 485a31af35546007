"""Draws that depend on the CUDA generator's seed and offset, and on nothing else.

On a GPU a random op takes Philox's (seed, offset) from the generator on the host, advances the offset by what
it will use, and launches. That host code really runs here, so the offset moves by CUDA's own rule. What the
op draws comes from a CPU generator seeded with a mix of the op's pair. So a recompute that restores the
generator's state draws the same numbers, and one that forgets to draws others, as on a GPU. The numbers are
not those of a GPU.

In a CUDA graph the pair is not known at capture: each replay takes a new one. A draw in a graph then depends
on the pair at the replay and on its position among the graph's draws.

Source: "Reproducibility" and torch.Generator in PyTorch's documentation; the mix is SplitMix64 (Steele, Lea
and Flood 2014).
"""

import weakref

import torch

_MASK = (1 << 64) - 1


def _mix(x):
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & _MASK
    return x ^ x >> 31


class Draw:
    """What a random op took from the CUDA generator: a seed and an offset."""

    __slots__ = ("seed", "offset")

    def __init__(self, seed, offset):
        self.seed, self.offset = seed & _MASK, offset & _MASK

    def generator(self):
        """Return a CPU generator that depends only on the pair."""
        g = torch.Generator("cpu")
        g.manual_seed(_mix(_mix(self.seed) ^ self.offset) >> 1)
        return g


class CapturedDraw:
    """A draw in a CUDA graph, which each replay resolves again."""

    __slots__ = ("base", "ordinal")

    def __init__(self, base, ordinal):
        self.base, self.ordinal = base, ordinal

    def _now(self):
        if self.base.draw is None:
            raise RuntimeError("a CUDA graph with random ops ran without CUDAGraph.replay")
        return Draw(self.base.draw.seed, _mix(self.base.draw.offset) ^ _mix(self.ordinal))

    seed = property(lambda self: self._now().seed)
    offset = property(lambda self: self._now().offset)

    def generator(self):
        return self._now().generator()


class _Base:
    """The pair at a graph's replay, and how many draws were captured for it."""

    def __init__(self):
        self.draw, self.count = None, 0


_bases = weakref.WeakKeyDictionary()  # torch.cuda.CUDAGraph -> _Base
_current = None  # the base of the current capture; captures do not overlap


def take(generator, device):
    """Return what the next random op on a device will take. Call it before the op's host code runs."""
    if generator is None:
        generator = torch.cuda.default_generators[device]
    if torch.cuda.is_current_stream_capturing():
        if _current is None:
            raise RuntimeError("a random op was captured outside of torch.cuda.CUDAGraph")
        _current.count += 1
        return CapturedDraw(_current, _current.count)
    return Draw(generator.initial_seed(), generator.get_offset())


def follow_graphs(enqueue):
    """Make replays of CUDA graphs note the (seed, offset) with which they begin. enqueue(f) makes f work of
    the current stream.
    """
    graph = torch.cuda.CUDAGraph
    # Replaced by a program that captures nothing, such as gmemtop estimate.
    if not hasattr(graph, "capture_begin"):
        return
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture_begin(self, *args, **kwargs):
        global _current
        _current = _bases[self] = _Base()
        return begin(self, *args, **kwargs)

    def capture_end(self, *args, **kwargs):
        global _current
        try:
            return end(self, *args, **kwargs)
        finally:
            _current = None

    def replay_(self, *args, **kwargs):
        base = _bases.get(self)
        if base is not None and base.count:
            g = torch.cuda.default_generators[torch.cuda.current_device()]
            draw = Draw(g.initial_seed(), g.get_offset())
            enqueue(lambda: setattr(base, "draw", draw))
        return replay(self, *args, **kwargs)

    for name, f in (("capture_begin", capture_begin), ("capture_end", capture_end), ("replay", replay_)):
        f.__doc__ = getattr(graph, name).__doc__
        f.__name__ = name
        setattr(graph, name, f)
