"""What a script reads from the device when kernels compute nothing: its own small integers are correct,
everything else is made up.

Trainers pass flags, sizes, masks and counts through the device: they copy an integer from the host, compare
it or add it up over the ranks, and read it back. A made-up 1 could mean "stop" there.

So we track where values come from. The values of an integer or boolean tensor are *known* if they were copied
from the host, filled in, or computed by one of the ops below from known values only. Such an op first runs
its CUDA kernel, which allocates as on the card, and then the CPU's kernel in the same memory, which the host
can reach. What depends on a float, or on an op that is not listed, is not known. A number read from it, by
item() or by a copy to the host, is 1; a truth value is what follows from that (truths.py); a result whose
size depends on it is as large as possible (one element, for unique values). These answers are counted under
the line of the script that asked. Each listed op costs some microseconds; other ops cost nothing.

Rejected: computing all ops (costs as much as training on a CPU); a TorchDispatchMode (the script's own modes
see it, and some of torch's choices change under one); answers that depend on the library that asks.

Source: PyTorch's dispatcher, torch.library.get_kernel (2.9 and newer; with older releases nothing is known).
"""

import functools
import warnings

KNOWN_BYTES = 1 << 20  # larger tensors are not followed: copies and collectives of them move nothing

_FOLLOWED = """
    copy_ fill_.Scalar fill_.Tensor zero_ arange.start_out
    eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Scalar ne.Scalar lt.Scalar le.Scalar
    gt.Scalar ge.Scalar logical_and.out logical_or.out logical_xor.out logical_not.out bitwise_and.Tensor
    bitwise_or.Tensor bitwise_xor.Tensor bitwise_not any all any.dim all.dim max min amax amin
    sum.dim_IntList add.Tensor sub.Tensor mul.Tensor add_.Tensor sub_.Tensor mul_.Tensor neg abs
    maximum minimum remainder.Tensor cat cumsum where.self index.Tensor index_select gather
    masked_fill_.Scalar masked_fill_.Tensor
""".split()

_DRAWN = """
    normal_ uniform_ random_ random_.from random_.to bernoulli_.float bernoulli_.Tensor exponential_
    log_normal_
""".split()


class Known(object):
    """Which tensors on the device have known values."""

    def __init__(self, torch):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch, self.by, self.weak = torch, {}, StorageWeakRef
        self.truths = {}  # for tensors that are not known: the truth value assumed for all their elements
        self.drawn = {}  # tensors whose numbers were drawn at random
        keys = torch._C.DispatchKey
        self.above = torch._C._dispatch_keyset_full() - torch._C._dispatch_keyset_full_after(
            keys.ADInplaceOrView
        ) | torch._C.DispatchKeySet(keys.Python)

    def _may_be(self, t):
        """Whether t can be known: it is small and holds whole numbers."""
        return (
            t.dtype in (self.torch.int64, self.torch.int32, self.torch.bool, self.torch.uint8)
            and t.layout == self.torch.strided
            and t.untyped_storage().nbytes() <= KNOWN_BYTES
        )

    def has(self, t):
        if t.device.type == "cpu":
            return not t.is_floating_point() and not t.is_complex()
        if t.device.type != "cuda" or not self._may_be(t):
            return False
        storage = t.untyped_storage()
        weak, version = self.by.get(storage._cdata, (None, 0))
        if weak is None or weak.expired():
            return False
        return version_of(t) <= version + 1  # the version may count the op that wrote it only afterwards

    def add(self, t):
        """Note that the values of t are known: they were just computed."""
        if not self._may_be(t):
            return
        storage = t.untyped_storage()
        if storage.nbytes() != t.numel() * t.element_size() and not self.has(t):
            return  # only a part of the storage was written
        if len(self.by) > 4096:
            self.by = {key: held for key, held in self.by.items() if not held[0].expired()}
        # A weak reference to the storage keeps its key from being reused.
        self.by[storage._cdata] = (self.weak(storage), version_of(t))

    def forget(self, t):
        self.by.pop(t.untyped_storage()._cdata, None)

    def suppose(self, name, args, into):
        """into is the result of an op on tensors that are not all known: assume what follows if every number
        in them is 1."""
        if into.dtype != self.torch.bool:
            return
        self.truths.pop(into.untyped_storage()._cdata, None)
        truth = truth_of(name, args, self._taken_for)
        if truth is not None:
            self._hold(self.truths, into, truth)

    def truth(self, t):
        """The truth value assumed for the elements of a tensor that is not known, None if there is none."""
        return self._held(self.truths, t)

    def _held(self, values, t):
        weak, version, value = values.get(t.untyped_storage()._cdata, (None, 0, None))
        current = weak is not None and not weak.expired() and version_of(t) <= version + 1
        return value if current else None

    def draws(self, t):
        """Note that the numbers in t were drawn at random."""
        self.forget(t)
        self._hold(self.drawn, t, True)

    def _hold(self, values, t, value):
        if len(values) > 4096:
            for key in [key for key, held in values.items() if held[0].expired()]:
                del values[key]
        storage = t.untyped_storage()
        values[storage._cdata] = (self.weak(storage), version_of(t), value)

    def _taken_for(self, x):
        if not isinstance(x, self.torch.Tensor):
            return x if isinstance(x, (bool, int, float)) else None
        if x.device.type == "cpu":
            return x.item() if x.numel() == 1 else None
        if x.dtype == self.torch.bool and not self.has(x):
            return self.truth(x)
        if not self.has(x):
            return None if self._held(self.drawn, x) else 1
        with self.computing():
            return self.on_host(x).item() if x.numel() == 1 else None

    def on_host(self, x):
        """x with each device tensor replaced by a host tensor in the same memory."""
        torch = self.torch
        if isinstance(x, (list, tuple)):
            return [self.on_host(y) for y in x]
        if isinstance(x, torch.device):
            return torch.device("cpu")
        if not isinstance(x, torch.Tensor) or x.device.type != "cuda":
            return x
        storage = x.untyped_storage()
        if storage.nbytes() == 0:
            return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cpu")
        make = torch._C._construct_storage_from_data_pointer
        out = torch.empty(0, dtype=x.dtype, device="cpu")
        out.set_(
            make(storage.data_ptr(), torch.device("cpu"), storage.nbytes()),
            x.storage_offset(),
            x.shape,
            x.stride(),
        )
        return out

    def computing(self):
        """A block whose code sees neither autograd nor a mode."""
        return _Below(self.torch, self.above)


class _Below(object):
    def __init__(self, torch, keys):
        self.torch, self.keys = torch, keys

    def __enter__(self):
        self.functions = self.torch._C.DisableTorchFunction()
        self.functions.__enter__()
        self.guard = self.torch._C._ExcludeDispatchKeyGuard(self.keys)
        self.guard.__enter__()

    def __exit__(self, *error):
        self.guard.__exit__(*error)
        self.functions.__exit__(*error)


def _tensors(torch, args, kwargs):
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            for y in x:
                if isinstance(y, torch.Tensor):
                    yield y


def answer_values(run):
    """Override the ops that pass values from the device to the host, and those that pass known values on."""
    torch = run.torch
    run.library = torch.library.Library("aten", "IMPL")
    run.known = Known(torch) if hasattr(torch.library, "get_kernel") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that an op is overridden
        for name, made_up in _answers(run).items():
            if run.known is not None:
                made_up = _reading(run, name, made_up)
                run.library.impl(name, made_up, "CUDA", with_keyset=True)
            else:
                run.library.impl(name, made_up, "CUDA")
        if run.known is not None:
            for name in _FOLLOWED:
                _follow(run, name)
            for name in _DRAWN:
                _draw(run, name)
    if run.known is not None and torch.distributed.is_available():
        _follow_ranks(run)


def _made_up(run, t):
    """The value that is read from a tensor whose values are not known."""
    dtype = t.dtype
    if dtype == run.torch.bool:
        return run.told(run.known is not None and bool(run.known.truth(t)))
    return 1.0 if dtype.is_floating_point else complex(1.0) if dtype.is_complex else 1


def _to_host(run, to, of):
    """`of` was copied to the host, as by tolist() and cpu(): make up its unknown values there. Large copies
    moved nothing, and filling them would take the host's memory. Byte tensors stay as they are: ranks send
    pickled objects in them, in pieces of a buffer that is not tracked."""
    known = run.known
    if to.dtype in (run.torch.uint8, run.torch.int8):
        return
    if of.device.type != "cuda" or known.has(of) or run.torch.cuda.is_current_stream_capturing():
        return
    if to.untyped_storage().nbytes() > KNOWN_BYTES:
        run.answered("copy to the host", "what the host's memory held")
        return
    what = _made_up(run, of)
    run.answered("copy to the host", str(what))
    with known.computing():
        to.fill_(what)


def _answers(run):
    def scalar(t):
        what = _made_up(run, t)
        run.answered("item", str(what))
        return what

    def equal(a, b):
        run.answered("equal", "True")
        return True

    def sized(name, result):
        what = "as many elements as there can be, so the estimate may be too high"
        if "unique" in name:
            what = "one element where there may be many, so the estimate may be too low"

        @functools.wraps(result)
        def answer(*args, **kwargs):
            run.answered(asked_as(name), what)
            return result(*args, **kwargs)

        return answer

    answers = {"_local_scalar_dense": scalar, "equal": equal}
    for name, result in sized_results(run.torch).items():
        answers[name + (".Tensor" if name == "repeat_interleave" else "")] = sized(name, result)
    return answers


def _op(torch, name):
    short, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, short), overload or "default")


def _reading(run, name, made_up):
    """Override an op that passes values to the host, so that it passes known ones."""
    torch, known, op = run.torch, run.known, _op(run.torch, name)
    original = torch.library.get_kernel(op, "CUDA")

    def device(t):
        out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=at)
        known.on_host(out).copy_(t)
        known.add(out)
        return out

    def answer(keys, *args, **kwargs):
        nonlocal at
        inputs = list(_tensors(torch, args, kwargs))
        if name == "masked_select":  # only the mask decides how many are selected
            inputs = inputs[1:]
        if not all(known.has(t) for t in inputs) or torch.cuda.is_current_stream_capturing():
            return made_up(*args, **kwargs)
        if name in ("_local_scalar_dense", "masked_select"):
            return original.call_boxed(keys, *args)
        with known.computing():
            at = next(t.device for t in inputs if t.device.type == "cuda")
            out = op(*known.on_host(args), **{k: known.on_host(x) for k, x in kwargs.items()})
            if isinstance(out, tuple):
                return tuple(device(t) for t in out)
            return device(out) if isinstance(out, torch.Tensor) else out

    at = None
    return answer


def _draw(run, name):
    """Override an op that fills a tensor with random numbers."""
    original = run.torch.library.get_kernel(_op(run.torch, name), "CUDA")

    def call(keys, t, *args, **kwargs):
        out = original.call_boxed(keys, t, *args, **kwargs)
        run.known.draws(t)
        return out

    run.library.impl(name, call, "CUDA", with_keyset=True)


def _follow(run, name):
    """Override an op whose result is known if its arguments are."""
    torch, known, op = run.torch, run.known, _op(run.torch, name)
    schema = op._schema
    written = [
        i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
    ]
    names = {schema.arguments[i].name for i in written}
    takes = {i for i, a in enumerate(schema.arguments) if str(a.type) == "Tensor"}
    short = name.partition(".")[0]
    overwrites = short in ("copy_", "fill_", "zero_") or name.endswith("out")
    original = torch.library.get_kernel(op, "CUDA")

    def call(keys, *args, **kwargs):
        if any(i in takes and not isinstance(x, torch.Tensor) for i, x in enumerate(args)):
            args = numbers(args)
        out = original.call_boxed(keys, *args, **kwargs)
        outs = [x for i, x in enumerate(args) if i in written] + [x for k, x in kwargs.items() if k in names]
        into = outs[0] if outs else out[0] if isinstance(out, (list, tuple)) else out
        if name == "copy_" and into.device.type == "cpu":
            _to_host(run, into, args[1])
            return out
        if into.is_floating_point() or into.is_complex() or into.device.type != "cuda":
            return out
        read = (
            [x for i, x in enumerate(args) if not (overwrites and i in written)],
            {k: x for k, x in kwargs.items() if not (overwrites and k in names)},
        )
        if not all(known.has(t) for t in _tensors(torch, *read)) or not follows(into):
            known.forget(into)
            known.suppose(short, read[0] if overwrites else args, into)
            return out
        with known.computing():
            result = op(*known.on_host(args), **{k: known.on_host(x) for k, x in kwargs.items()})
            if outs:
                known.add(into)
            else:
                pairs = zip(out, result) if isinstance(out, (list, tuple)) else [(out, result)]
                for to, value in pairs:
                    known.on_host(to).copy_(value)
                    known.add(to)
        return out

    def follows(into):
        return known._may_be(into) and not torch.cuda.is_current_stream_capturing()

    def numbers(args):
        """The kernel wants tensors, but the dispatcher passes the numbers that they were made from."""
        like = next((x for x in args if isinstance(x, torch.Tensor)), None)
        with known.computing():
            return [
                torch.scalar_tensor(x, dtype=torch.result_type(like, x), device="cpu")
                if i in takes and not isinstance(x, torch.Tensor)
                else x
                for i, x in enumerate(args)
            ]

    run.library.impl(name, call, "CUDA", with_keyset=True)


def _follow_ranks(run):
    """Collectives carry small tensors between ranks: the result of known ones is known."""
    torch, known = run.torch, run.known
    ranks = torch.distributed.distributed_c10d

    def carry(name, into, of):
        original = getattr(ranks, name)

        @functools.wraps(original)
        def call(*args, **kwargs):
            inputs = list(_tensors(torch, *of(args, kwargs)))
            sent = all(known.has(t) for t in inputs)
            out = original(*args, **kwargs)
            for t in _tensors(torch, *into(args, kwargs)):
                if t.device.type == "cuda":
                    known.add(t) if sent else known.forget(t)
            return out

        setattr(ranks, name, call)
        if hasattr(torch.distributed, name):
            setattr(torch.distributed, name, call)

    def first(args, kwargs):
        return (args[:1], {} if args else dict(list(kwargs.items())[:1]))

    def second(args, kwargs):
        return (args[1:2], {k: x for k, x in kwargs.items() if k in ("tensor", "input_tensor")})

    carry("all_gather", first, second)
    carry("all_gather_into_tensor", first, second)
    broadcast = ranks.broadcast

    @functools.wraps(broadcast)
    def broadcasting(tensor, src=None, *args, **kwargs):
        out = broadcast(tensor, src, *args, **kwargs)
        if tensor.device.type == "cuda" and src != ranks.get_rank():
            known.add(tensor)  # an assumption: a rank sends what it knows
        return out

    ranks.broadcast = torch.distributed.broadcast = broadcasting
