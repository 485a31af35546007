"""What a script reads from the device when kernels compute nothing: what comes from its own small numbers is
correct, everything else is made up.

Trainers pass flags, sizes, masks and counts through the device: they copy an integer from the host, compare
it or add it up over the ranks, and read it back. A made-up 1 could mean "stop" there.

So we track where values come from. The values of a tensor are *known* if they were copied from the host,
filled in, or computed by one of the ops below from known values only. Such an op first runs its CUDA kernel,
which allocates as on the card, and then the CPU's kernel in the same memory, which the host can reach. What
depends on an op that is not listed, or on a large tensor of floats, as weights are, is not known. A number
read from it, by item() or by a copy to the host, is 1; a truth value is what follows from that (truths.py); a
result whose size depends on it is as large as possible. Indices that come from it, and small random numbers,
are believed (believed.py) and known from then on. All these answers are counted under the line of the script
that asked. Each listed op costs some microseconds and the CPU's work; other ops cost nothing.

Rejected: computing all ops (costs as much as training on a CPU); a TorchDispatchMode (the script's own modes
see it, and some of torch's choices change under one); answers that depend on the library that asks.

Source: PyTorch's dispatcher, torch.library.get_kernel (2.9 and newer; with older releases nothing is known).
"""

import functools
import warnings

from .believed import INDICES, Few, choices, spread
from .ranks import follow_ranks
from .training import OneThread, asked_as, sized_results, tensors_in
from .truths import truth_of, version_or_0

SMALL_BYTES = 1 << 20  # larger copies move nothing, and larger tensors of floats are not followed
KNOWN_BYTES = 64 << 20  # larger tensors are not followed

_FOLLOWED = """
    copy_ fill_.Scalar fill_.Tensor zero_ arange.start_out
    eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor eq.Scalar ne.Scalar lt.Scalar le.Scalar
    gt.Scalar ge.Scalar logical_and.out logical_or.out logical_xor.out logical_not.out bitwise_and.Tensor
    bitwise_or.Tensor bitwise_xor.Tensor bitwise_not any all any.dim all.dim max min amax amin
    sum.dim_IntList add.Tensor sub.Tensor mul.Tensor add_.Tensor sub_.Tensor mul_.Tensor neg abs
    maximum minimum remainder.Tensor cat cumsum cumsum.out where.self index.Tensor index_select gather
    masked_fill_.Scalar masked_fill_.Tensor
    div.Tensor div_.Tensor div.Tensor_mode floor_divide rsub.Tensor clamp clamp_ clamp_min clamp_max floor
    ceil round trunc sqrt exp log reciprocal sigmoid pow.Tensor_Scalar mean.dim prod flip roll tril triu
    isin.Tensor_Tensor searchsorted.Tensor bucketize.Tensor scatter_.value scatter_.src scatter_add_
    scatter_reduce_.two _index_put_impl_ index_copy_ index_fill_.int_Scalar masked_scatter_
    topk sort.stable argmax argmin max.dim min.dim median.dim multinomial
""".split()

_DRAWN = """
    normal_ uniform_ random_ random_.from random_.to bernoulli_.float bernoulli_.Tensor exponential_
    log_normal_
""".split()


class Known:
    """Which tensors on the device have known values."""

    def __init__(self, torch):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch, self.by, self.weak = torch, {}, StorageWeakRef
        torch_types = "int64 int32 bool uint8 float32 float64 float16 bfloat16"
        self.types = {getattr(torch, name) for name in torch_types.split()}
        self.few, self.parts = Few(), {}
        self.chance = torch.Generator()
        self.chance.manual_seed(0)
        self.truths = {}  # for tensors that are not known: the truth value assumed for all their elements
        self.drawn = {}  # tensors whose numbers were drawn at random
        keys = torch._C.DispatchKey
        self.above = torch._C._dispatch_keyset_full() - torch._C._dispatch_keyset_full_after(
            keys.ADInplaceOrView
        ) | torch._C.DispatchKeySet(keys.Python)

    def _may_be(self, t):
        """Whether t can be known: it is small enough to compute with."""
        if t.dtype not in self.types or t.layout != self.torch.strided or large(t):
            return False
        return t.untyped_storage().nbytes() <= (SMALL_BYTES if t.is_floating_point() else KNOWN_BYTES)

    def has(self, t):
        if t.device.type == "cpu":
            return self._may_be(t) if t.is_floating_point() else not t.is_complex()
        if t.device.type != "cuda" or large(t):
            return False
        weak, version, _ = self.by.get(t.untyped_storage()._cdata, (None, 0, False))
        if weak is None or weak.expired() or not self._may_be(t):
            return False
        return version_or_0(t) <= version + 1  # the version may count the op that wrote it only afterwards

    def believed(self, tensors):
        """Whether known values follow from ones that are only believed."""
        held = (self.by.get(t.untyped_storage()._cdata) for t in tensors if t.device.type == "cuda")
        return any(entry is not None and entry[2] for entry in held)

    def add(self, t, believed=False):
        """Note that the values of t are known: they were just computed."""
        if not self._may_be(t):
            return
        storage = t.untyped_storage()
        if storage.nbytes() != t.numel() * t.element_size() and not self.has(t):
            believed = self._written_in_parts(t, believed)
            if believed is None:
                return
        if len(self.by) > 4096:
            self.by = {key: held for key, held in self.by.items() if not held[0].expired()}
        # A weak reference to the storage keeps its key from being reused.
        self.by[storage._cdata] = (self.weak(storage), version_or_0(t), believed)

    def _written_in_parts(self, t, believed):
        """Only a part of t's storage was written. Return whether its values are believed, None as long as a
        part was not written."""
        storage = t.untyped_storage()
        weak, version, written, before = self.parts.get(storage._cdata, (None, 0, None, False))
        elements = storage.nbytes() // t.element_size()
        old = weak is None or weak.expired() or version_or_0(t) > version + 1
        if old or written.numel() != elements:
            if storage.nbytes() > SMALL_BYTES:
                return None
            weak, before = self.weak(storage), False
            with self.computing():
                written = self.torch.zeros(elements, dtype=self.torch.bool)
        with self.computing():
            written.as_strided(t.shape, t.stride(), t.storage_offset()).fill_(True)
            whole = bool(written.all())
        if len(self.parts) > 256:
            self.parts = {key: held for key, held in self.parts.items() if not held[0].expired()}
        self.parts[storage._cdata] = (weak, version_or_0(t), written, before or believed)
        return before or believed if whole else None

    def believe(self, t, values):
        """Give t values that the host made up."""
        if t.device.type == "cuda" and self._may_be(t) and not self.torch.cuda.is_current_stream_capturing():
            with self.computing():
                self.on_host(t).copy_(values())
            self.add(t, believed=True)

    def forget(self, t):
        self.by.pop(t.untyped_storage()._cdata, None)
        self.parts.pop(t.untyped_storage()._cdata, None)

    def suppose(self, name, args, into):
        """into is the result of an op on tensors that are not all known: assume what follows if every number
        in them is 1."""
        if into.dtype != self.torch.bool:
            if name == "copy_":
                self.few.copied(into, args[0])
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
        current = weak is not None and not weak.expired() and version_or_0(t) <= version + 1
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
        values[storage._cdata] = (self.weak(storage), version_or_0(t), value)

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
        """A block for the host's computing: it sees neither autograd nor a mode, and runs on one thread."""
        return _Below(self.torch, self.above)


class _Below:
    def __init__(self, torch, keys):
        self.torch, self.keys, self.threads = torch, keys, OneThread(torch)

    def __enter__(self):
        self.threads.__enter__()
        self.functions = self.torch._C.DisableTorchFunction()
        self.functions.__enter__()
        self.guard = self.torch._C._ExcludeDispatchKeyGuard(self.keys)
        self.guard.__enter__()

    def __exit__(self, *error):
        self.guard.__exit__(*error)
        self.functions.__exit__(*error)
        self.threads.__exit__(*error)


def large(t):
    """Whether t has too many floats to be known. To ask for its storage would count as a reference to that,
    and the backward engine then no longer sums gradients in place."""
    return t.is_floating_point() and t.numel() * t.element_size() > SMALL_BYTES


def answer_values(run):
    """Override the ops that pass values from the device to the host, and those that pass known values on."""
    torch = run.torch
    run.library = torch.library.Library("aten", "IMPL")
    run.known = Known(torch) if hasattr(torch.library, "get_kernel") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that an op is overridden
        answers = _answers(run)
        _keep_all_boxes(run, answers.pop("nms"))
        for name, made_up in answers.items():
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
            _draw_order(run)
    if run.known is not None and torch.distributed.is_available():
        follow_ranks(run)


def _keep_all_boxes(run, answer):
    """torchvision's nms keeps all boxes. Its kernel, which writes without telling torch, would keep none."""
    ops = run.torch.ops
    load = ops.load_library

    @functools.wraps(load)
    def loading(path):
        load(path)
        if run.boxes is None and hasattr(ops.torchvision, "nms"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run.boxes = run.torch.library.Library("torchvision", "IMPL")
                run.boxes.impl("nms", answer, "CUDA")

    run.boxes, ops.load_library = None, loading


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
    if of.device.type != "cuda" or run.torch.cuda.is_current_stream_capturing():
        return
    if known.has(of):
        if known.believed([of]):
            run.answered("copy to the host", "assumed values")
        if of.numel() * of.element_size() > SMALL_BYTES:
            with known.computing():
                to.copy_(known.on_host(of))
        return
    if to.untyped_storage().nbytes() > SMALL_BYTES:
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
        what, doubt = "as many elements as there can be", "too high"
        if name in ("bincount", "repeat_interleave"):  # numbers may be any
            what, doubt = "as many elements as if all numbers were 1", "too low"
        what += ", so the estimate may be " + doubt

        @functools.wraps(result)
        def answer(*args, **kwargs):
            run.answered(asked_as(name), what, sized=True, doubt=doubt)
            out = result(*args, **kwargs)
            if name in ("nonzero", "nms") and run.known is not None:  # each place
                ones = functools.partial(run.torch.ones, args[name == "nms"].shape, dtype=run.torch.bool)
                run.known.believe(out, lambda: ones().nonzero().view(out.shape))
            return out

        return answer

    few = Few() if run.known is None else run.known.few
    answers = {"_local_scalar_dense": scalar, "equal": equal}
    for name, result in sized_results(run.torch, few).items():
        answers[name + (".Tensor" if name == "repeat_interleave" else "")] = sized(name, result)
    return answers


def _op(torch, name):
    short, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, short), overload or "default")


def _reading(run, name, made_up):
    """Override an op that passes values to the host, so that it passes known ones."""
    torch, known, op = run.torch, run.known, _op(run.torch, name)
    original = torch.library.get_kernel(op, "CUDA")

    def device(t, at, believed):
        out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=at)
        known.on_host(out).copy_(t)
        known.add(out, believed)
        return out

    def answer(keys, *args, **kwargs):
        inputs = list(tensors_in(torch, args, kwargs))
        if name == "masked_select":  # only the mask decides how many are selected
            inputs = inputs[1:]
        if not all(known.has(t) for t in inputs) or torch.cuda.is_current_stream_capturing():
            return made_up(*args, **kwargs)
        believed = known.believed(inputs)
        if name in ("_local_scalar_dense", "masked_select"):
            out = original.call_boxed(keys, *args)
        else:
            with known.computing():
                at = next(t.device for t in inputs if t.device.type == "cuda")
                out = op(*known.on_host(args), **{k: known.on_host(x) for k, x in kwargs.items()})
                if isinstance(out, tuple):
                    out = tuple(device(t, at, believed) for t in out)
                elif isinstance(out, torch.Tensor):
                    out = device(out, at, believed)
        if not believed:
            return out
        if isinstance(out, bool):
            out = run.told(out)
        first = out[0] if isinstance(out, tuple) else out
        sized = isinstance(first, torch.Tensor)
        what = "%d elements, from assumed values" % first.numel() if sized else str(out)
        run.answered(asked_as(name), what, sized=sized)
        return out

    return answer


def _draw(run, name):
    """Override an op that fills a tensor with random numbers: draw small ones on the host."""
    torch, known, op = run.torch, run.known, _op(run.torch, name)
    original = torch.library.get_kernel(op, "CUDA")

    def call(keys, t, *args, **kwargs):
        out = original.call_boxed(keys, t, *args, **kwargs)
        known.draws(t)
        if t.numel() * t.element_size() <= SMALL_BYTES and all(
            known.has(x) for x in tensors_in(torch, args, kwargs)
        ):
            known.believe(t, lambda: op(known.on_host(t), *known.on_host(args), generator=known.chance))
        return out

    run.library.impl(name, call, "CUDA", with_keyset=True)


def _draw_order(run):
    """Likewise for randperm."""
    known, op = run.known, run.torch.ops.aten.randperm.generator_out
    original = run.torch.library.get_kernel(op, "CUDA")

    def call(keys, n, *, out, generator=None):
        original.call_boxed(keys, n, generator=generator, out=out)
        known.believe(out, lambda: run.torch.randperm(n, generator=known.chance))
        return out

    run.library.impl("randperm.generator_out", call, "CUDA", with_keyset=True)


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
        if not written and isinstance(out, torch.Tensor) and out.is_floating_point():  # most ops end here
            if isinstance(args[0], torch.Tensor) and not known.has(args[0]):
                return out
        outs = [x for i, x in enumerate(args) if i in written] + [x for k, x in kwargs.items() if k in names]
        into = outs[0] if outs else out[0] if isinstance(out, (list, tuple)) else out
        if name == "copy_" and into.device.type == "cpu":
            _to_host(run, into, args[1])
            return out
        if into.device.type != "cuda" or large(into):
            return out
        read = (
            [x for i, x in enumerate(args) if not (overwrites and i in written)],
            {k: x for k, x in kwargs.items() if not (overwrites and k in names)},
        )
        inputs = list(tensors_in(torch, *read))
        known_before = all(known.has(t) for t in inputs) and follows(into)
        if not (known_before and compute(args, kwargs, outs, out, inputs)):
            known.forget(into)
            known.suppose(short, read[0] if overwrites else args, into)
            if name in INDICES:
                index = out[INDICES[name]] if isinstance(out, (list, tuple)) else out
                known.few.note(index, choices(schema, args, kwargs)[1])
                known.believe(index, lambda: spread(torch, schema, args, kwargs, index))
        return out

    def compute(args, kwargs, outs, out, inputs):
        """Have the host compute. Returns whether it could."""
        believed = known.believed(inputs)
        with known.computing():
            try:
                result = op(*known.on_host(args), **{k: known.on_host(x) for k, x in kwargs.items()})
            except (RuntimeError, NotImplementedError, IndexError):
                return False  # the host has no such op, or cannot take what is believed
            pairs = zip(out, result) if isinstance(out, (list, tuple)) else [(out, result)]
            for to, value in [(to, None) for to in outs] or pairs:
                if known._may_be(to):
                    if value is not None:
                        known.on_host(to).copy_(value)
                    known.add(to, believed)
        return True

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
