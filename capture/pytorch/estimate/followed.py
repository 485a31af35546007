"""Values on the pretended device that follow from the script's own.

Trainers pass flags, sizes, masks and counts through the device, and read them back: to pad what several
processes evaluate, say. Torch keeps the values of small tensors on the CPU as constants of fake tensors, but
gives them up when a tensor moves to a device. Here such a tensor keeps its values beside it. An op whose
inputs all have values is also run on these, and its result has values too. So have indices and small random
numbers, which are believed (believed.py). Views share the memory of their values, and a write that cannot be
followed ends them.

The other estimate does the same (values.py). Both follow tensors of floats of up to SMALL_BYTES, and others
of up to KNOWN_BYTES.
"""

from agent.compat import without_dispatch

from .believed import INDICES, choices, spread
from .tensors import _now_constant
from .training import OneThread, asked_as
from .truths import version_or_0

SMALL_BYTES = 1 << 20
KNOWN_BYTES = 64 << 20
DRAWN = [
    "aten::" + name
    for name in ("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "bernoulli")
]
DRAWN_INTO = ["aten::" + name for name in ("normal_", "uniform_", "random_", "bernoulli_", "exponential_")]
FILLED = [
    "aten::" + name for name in ("zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
]
OVERWRITE = ("aten::copy_", "aten::fill_", "aten::zero_")  # whatever was there before


class Followed:
    """Which tensors have known values."""

    def __init__(self, run):
        self.run, self.torch = run, run.torch
        torch = run.torch
        self.whole = {torch.int64, torch.int32, torch.bool, torch.uint8}
        self.floats = {torch.float32, torch.float64, torch.float16, torch.bfloat16}

    def values(self, t):
        """The values of a tensor, as a real one on the CPU; None if they are not known."""
        if not isinstance(t, self.run.fake):
            return t if t.device.type == "cpu" else None
        if t.constant is not None:
            return t.constant
        # Tensors that share memory share the list: it holds the version that their values are of.
        values, current = getattr(t, "known", (None, [-1]))
        return values if current[0] == version_or_0(t) else None

    def forget(self, t):
        """Something that torch does not see may have written to a tensor."""
        known = getattr(t, "known", None)
        if known is not None:
            known[1][0] = -1
        t.taken_for = None, -1

    def constant(self, real):
        """A fake tensor with the values of a real one on the CPU."""
        mode = self.run.mode
        return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)

    def follow(self, op, args, kwargs, out):
        """Run an op on the values of its inputs, and note what it gives, if it may be known. out is what it
        gave for fake tensors."""
        outs = out if isinstance(out, (list, tuple)) else (out,)
        if not any(self._may_be(t) for t in outs):
            return
        name = op.name
        if op.mutable:
            return self._written(op, args, kwargs) if out is args[0] else None
        if "empty" in name and out.device.type != "cpu" and self._drawn(name, (name,), out):
            # what a script writes to it part by part is known then
            return self.believe(out, lambda: self.torch.zeros(out.shape, dtype=out.dtype))
        if "empty" in name or op.drawn and not self._drawn(name, DRAWN, out):
            return self._indices(op, args, kwargs, outs)
        if name in FILLED:  # whatever is in the tensor that they follow
            shape = args[0].shape if name.endswith("_like") else (0,)
            with self.run.without():
                args = (self.torch.empty(shape, dtype=args[0].dtype), *args[1:])
        results = self._computed(op, args, kwargs, name in DRAWN)
        if results is None:
            return self._indices(op, args, kwargs, outs)
        results = results if isinstance(results, (list, tuple)) else (results,) * len(outs)
        known = getattr(args[0], "known", None) if args else None
        view = known is not None and op._schema.returns[0].alias_info is not None
        for t, values in zip(outs, results):
            if self._may_be(t) and values is not None:
                if view:  # torch gives it the version of what it is a view of only later
                    t.known = values, known[1]
                else:
                    self.keep(t, values)
                t.believed = name in DRAWN or self.believes((args, kwargs))

    def believes(self, of):
        """Whether values follow from ones that are only believed."""
        return any(getattr(x, "believed", False) for x in self._flat(of))

    def believe(self, t, values):
        """Give t values that were made up."""
        if self._may_be(t):
            with self.run.without():
                values = values()
            self.keep(t, values)
            t.believed = True

    def believe_each(self, t, shape):
        """Believe that t has the index of each place in something of that shape."""
        self.believe(t, lambda: self.torch.ones(shape, dtype=self.torch.bool).nonzero().view(t.shape))

    def _indices(self, op, args, kwargs, outs):
        """Believe the indices that an op returns."""
        short = op._schema.name.partition("::")[2]
        which = INDICES.get(short, INDICES.get("%s.%s" % (short, op._schema.overload_name)))
        if which is not None:
            t = outs[which]
            self.run.few.note(t, choices(op._schema, args, kwargs)[1])
            self.believe(t, lambda: spread(self.torch, op._schema, args, kwargs, t))

    def _drawn(self, name, names, t):
        return name in names and t.numel() * t.element_size() <= SMALL_BYTES

    def _written(self, op, args, kwargs):
        """An op writes to its first argument."""
        t, overwrites = args[0], op._schema.name in OVERWRITE
        values, current = self.values(t), getattr(t, "known", (None, None))[1]
        drawn = self._drawn(op._schema.name, DRAWN_INTO, t)
        if (
            values is None
            and (overwrites or drawn)
            and t.untyped_storage().nbytes() == t.numel() * t.element_size()
        ):
            with self.run.without():
                values, current = self.torch.empty(t.shape, dtype=t.dtype), None
        done = None
        if values is not None and (not op.drawn or drawn):
            done = self._computed(op, args[1:], kwargs, False, values)
        t.believed = drawn or self.believes((args[overwrites:], kwargs))
        if done is not None:
            self.keep(t, values, current, not t.is_inference())
        elif current is not None:
            current[0] = -1

    def answer(self, op, args, kwargs):
        """The result of an op that values decide: its size, or a number that the script reads. None if they
        are not known."""
        out = self._computed(op, args, kwargs)
        if out is not None and self.believes((args, kwargs)):
            self.run.made(asked_as(op._schema.name.partition("::")[2]))
            out = self.run.told(out) if isinstance(out, bool) else out
        if isinstance(out, (list, tuple)):
            return tuple(self._made(values, args[0]) for values in out)
        return self._made(out, args[0]) if isinstance(out, self.torch.Tensor) else out

    def count(self, mask):
        """How many elements of a mask are true: as many as there are, unless it is known."""
        values = self.values(mask)
        with self.run.without():
            return mask.numel() if values is None else int((values != 0).sum())

    def _made(self, values, like):
        t = self.torch.empty(values.shape, dtype=values.dtype, device=like.device)
        if self._may_be(t):
            self.keep(t, values)
        return t

    def keep(self, t, values, current=None, written=0):
        """Give a fake tensor values. An op that has just written to it will count in its version later."""
        if t.device.type == "cpu":
            return _now_constant(t, values)
        current = [0] if current is None else current
        current[0] = version_or_0(t) + written
        t.known = values, current

    def _computed(self, op, args, kwargs, alone=False, to=None):
        """What an op gives for the values of its inputs; None if one is not known, or if there is none and it
        may not run alone. It writes to `to`."""
        inputs = [x for x in self._flat((args, kwargs)) if isinstance(x, self.torch.Tensor)]
        if any(self.values(t) is None for t in inputs) or not (inputs or op.whole or alone or to is not None):
            return None
        # only real tensors run here, and leaving the modes one by one would take longer than most ops
        with without_dispatch(self.torch), OneThread(self.torch):
            on_host = [] if to is None else [to]
            on_host += [self._on_host(x) for x in args]
            try:
                return op.func(*on_host, **{key: self._on_host(x) for key, x in kwargs.items()})
            except (RuntimeError, NotImplementedError, TypeError, IndexError):
                return None  # the CPU has no such op, or cannot take what is believed

    def _may_be(self, t):
        return (
            isinstance(t, self.run.fake)
            and t.constant is None  # torch itself follows constants
            and (t.dtype in self.whole or t.dtype in self.floats)
            and t.numel() * t.element_size() <= (KNOWN_BYTES if t.dtype in self.whole else SMALL_BYTES)
        )

    def _flat(self, x):
        if isinstance(x, dict):
            x = x.values()
        elif not isinstance(x, (list, tuple)):
            return [x]
        return [z for y in x for z in self._flat(y)]

    def _on_host(self, x):
        if isinstance(x, (list, tuple)):
            return [self._on_host(y) for y in x]
        if isinstance(x, self.torch.device):
            return self.torch.device("cpu")
        return self.values(x) if isinstance(x, self.torch.Tensor) else x
