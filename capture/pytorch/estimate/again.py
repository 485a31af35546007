"""Results of ops that have run before on tensors of the same sizes.

A script of many small ops, such as one that generates text, asks torch's fake tensors for the same results
again and again. They keep results too, but make the key and the tensor anew at several times the cost of the
op on a real device. So what they answer from their cache is kept here as well, under a cheaper key: they have
decided by then that the op's results follow from the sizes of its arguments.

Source: torch/_subclasses/fake_tensor.py, FakeTensorMode._cached_dispatch_impl and what it calls.
"""

SIMPLE = {int, float, bool, str, type(None)}
MOST_AGAIN = 200000  # results that are kept


class _Different(Exception):
    """The arguments of an op have no key."""


def _is_simple(torch, dtype):
    return dtype == torch.bool or not (dtype.is_complex or str(dtype).startswith(("torch.q", "torch.bits")))


class Again:
    """What ops gave for arguments of some sizes."""

    def __init__(self, run):
        torch = run.torch
        self.torch, self.kind, self.mode, self.known = torch, run.fake, run.mode, {}
        self.settings = torch.dtype, torch.device, torch.layout, torch.memory_format
        self.dtypes = {x for x in vars(torch).values() if type(x) is torch.dtype and _is_simple(torch, x)}
        self.counts = type(run.mode).__mro__[1]  # torch's own mode counts what its cache answers
        if not all(hasattr(self.counts, name) for name in ("cache_hits", "cache_misses", "cache_bypasses")):
            self.call = self._call

    def call(self, func, args, kwargs):
        """Run an op on fake tensors, or tell what it gave before."""
        torch = self.torch
        try:
            key = (
                func,
                torch.is_inference_mode_enabled(),
                torch.get_default_dtype(),
                self._key(args),
                self._key(tuple(kwargs.items())) if kwargs else None,
            )
        except (_Different, RuntimeError, NotImplementedError):
            return self._call(func, args, kwargs)
        made = self.known.get(key)
        if made is not None:
            return made(args)
        before = self._answered()
        out = func(*args, **kwargs)
        hits, others = self._answered()
        if (hits, others) == (before[0] + 1, before[1]) and len(self.known) < MOST_AGAIN:
            made = self._maker(args, kwargs, out)
            if made is not None:
                self.known[key] = made
        return out

    def _call(self, func, args, kwargs):
        """Run an op on fake tensors. torch's cache would keep a storage that the op is given, as a part of
        its key, and the memory would never count as freed. So such an op is not looked up there."""
        if self.torch.UntypedStorage not in map(type, args):
            return func(*args, **kwargs)
        mode = self.mode
        was, mode.cache_enabled = getattr(mode, "cache_enabled", False), False
        try:
            return func(*args, **kwargs)
        finally:
            mode.cache_enabled = was

    def _answered(self):
        """How many ops torch's cache has answered, and how many it has not."""
        counts = self.counts
        return counts.cache_hits, counts.cache_misses + sum(counts.cache_bypasses.values())

    def _key(self, args):
        key, plain, kind = [], SIMPLE, self.kind
        for x in args:
            of = type(x)
            if of is kind:
                if x.constant is not None or x.dispatch_keys is not None or x.dtype not in self.dtypes:
                    raise _Different
                key.append(
                    (
                        x.shape,
                        x.stride(),
                        x.storage_offset(),
                        x.dtype,
                        x.fake_device,
                        x.requires_grad,
                        x.is_inference(),
                        x.is_neg(),
                    )
                )
            elif of in plain:
                key.append((of, x))  # 1 and 1.0 are equal, and give results of different types
            elif of is list or of is tuple:
                key.append((of, self._key(x)))
            elif of in self.settings:
                if of is self.torch.device and x.type != "cpu" and x.index is None:
                    raise _Different
                key.append(x)
            else:
                raise _Different
        return tuple(key)

    def _maker(self, args, kwargs, out):
        """A function that makes a result like this one; None if there is none that is simple enough."""
        if out is None:
            return lambda args: None
        if isinstance(out, self.torch.Tensor):
            return self._tensor(args, kwargs, out)
        if type(out) is not tuple or not all(x is None or isinstance(x, self.torch.Tensor) for x in out):
            return None
        each = [self._maker(args, kwargs, x) for x in out]
        if any(make is None for make in each):
            return None
        return lambda args: tuple([make(args) for make in each])

    def _tensor(self, args, kwargs, out):
        torch, mode, kind = self.torch, self.mode, self.kind
        if type(out) is not kind or out.requires_grad or out.constant is not None or out.is_neg():
            return None
        for k, x in enumerate(args):
            if x is out:
                return lambda args: args[k]
        below, empty = torch._C._DisableTorchDispatch, torch.empty_strided
        shape, stride, dtype, device = tuple(out.shape), out.stride(), out.dtype, out.fake_device
        shared = self._sharing(args, kwargs, out)
        if not shared:

            def make(args):
                with below():
                    return kind(mode, empty(shape, stride, dtype=dtype, device="meta"), device)

            return make
        if shared == [None] or len(shared) > 1:
            return None
        of, offset = shared[0], out.storage_offset()

        def view(args):
            storage = args[of].untyped_storage()
            with below():
                meta = empty((), (), dtype=dtype, device="meta")
                meta.set_(storage, offset, shape, stride)
                return kind(mode, meta, device)

        return view

    def _sharing(self, args, kwargs, out):
        """The arguments that a tensor shares its memory with; None stands for one in a list or with a
        name."""
        storage = out.untyped_storage()._cdata

        def shares(x):
            if isinstance(x, (list, tuple)):
                return any(shares(y) for y in x)
            return isinstance(x, self.torch.Tensor) and x.untyped_storage()._cdata == storage

        found = [k if isinstance(x, self.torch.Tensor) else None for k, x in enumerate(args) if shares(x)]
        return found + [None for x in kwargs.values() if shares(x)]
