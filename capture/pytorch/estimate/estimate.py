"""Takes over a training script once it has imported torch. The script then runs unchanged on tensors that
have sizes but no memory.

The goal is to find out how much memory a training will take on a device that is not present, without
computing anything. We enter torch's own FakeTensorMode for the whole process: each op computes shapes,
aliases and autograd's graph, and nothing else. Above it is the agent's dispatch mode (Ops, whose source
precedes this one), which describes each op as on a real device, with two differences. A fake tensor's storage
has no device, so we ask the tensor. And the clock is simulated: each op advances it by the time that it would
take. So the same script gives the same trace, to the byte and the nanosecond.

What cannot be known is made up and counted. A value that the script reads (a loss printed, a norm compared)
is 1, and a truth value is what follows from that (truths.py). If the values decide how many elements a result
has (nonzero, a boolean mask), it gets the most that it could have. Indices and small random numbers are
believed (believed.py). Small tensors that do not depend on these values keep theirs (followed.py).

We pretend that there is a CUDA device: the functions of torch.cuda that ask about it answer from the preset.
Two places below Python need the same. The guard that switches devices is one that torch has for this purpose.
The backward engine asks CUDA which devices have a context, which raises in a CUDA build without a device. So
we replace that function in the table of virtual functions in this process; the header that torch ships gives
its position.

Rejected: the meta device (the script would have to ask for it, and torch would not choose CUDA's ops);
tracing with torch.export (it refuses data-dependent Python, and leaves the optimizer out).

The script cannot overwrite existing files, since what it writes would be made up, and reaches no network.
"""

import atexit
import builtins
import contextlib
import json
import os
import re
import sys
import threading
import weakref

from agent.closures import around_closure
from agent.ops import Ops
from agent.phases import OPTIMIZER
from agent.storages import Addresses, Storages
from agent.within import Within

from .again import Again
from .alive import stay_with_gmemtop
from .believed import Few
from .convolution import EMPTIED, Convolutions, taken_by_copy
from .device import _cuda
from .engine import Sums
from .followed import Followed
from .kernels import leave_triton_out
from .pace import Clock, Pace
from .pretend import _attention, _distributed, _factories, _loading, _pretend_below
from .product import Products
from .recurrent import NETWORKS, Blocks, run_networks_without_cuda
from .reduction import Reductions
from .tensors import (
    MOST_KEPT,
    _copying,
    _made_of_tensors,
    _modules_move,
    _parameters_by_type,
    _refuse_traces,
    _tensors_answer,
    _threads_pretend,
    _threads_take_turns,
)
from .threads import Held
from .trackers import keep_trackers_offline
from .training import (
    LAUNCHED,
    Taken,
    Unsupported,
    asked_as,
    launches,
    leave_compiling_out,
    let_launch,
    profile_the_host_alone,
    sized_results,
    steps_by_hand,
)
from .truths import truth_of, version_or_0
from .weights import weights_without_memory
from .world import leave_files_alone, stay_offline

ALL_ROWS = 1500000  # the agent's limit is meant for a process that trains; here the rows are all there is
INDEXED = "index index_put index_put_ _index_put_impl_ _unsafe_index".split()
# ops whose CUDA code allocates another result first, and its index. The order decides which cached block each
# result gets (ATen/native/cuda/Dropout.cu)
ALLOCATED_FIRST = {"aten::native_dropout": 1}


class _Timed:
    """An op as Ops sees it: the real one, but its questions about values are answered and it advances the
    clock."""

    __slots__ = ("func", "_schema", "tags", "run", "flops", "whole", "name", "short", "mutable", "drawn")

    def __init__(self, func, run):
        self.func, self._schema, self.tags, self.run = func, func._schema, func.tags, run
        # what torch computes anew each time it is asked
        self.name, self.mutable = func._schema.name, func._schema.is_mutable
        self.short = self.name.partition("::")[2]
        self.drawn = run.torch.Tag.nondeterministic_seeded in func.tags  # its result is random
        self.flops = run.pace.flops(func)
        self.whole = run.factories.get(func._overloadpacket)

    def __call__(self, *args, **kwargs):
        out = self.run.answer(self, args, kwargs)
        self.run.takes(self, args, kwargs, out)
        self.run.clock.now += self.run.duration(self, args, kwargs, out)
        return out


class Nothing(Addresses):
    """Nothing is known about what existed before the training."""

    def look(self, torch, clock, share=0):
        return {}


class Pretended(Within):
    """Counts the bytes that the pretended device holds."""

    bytes, peak = 0, 0
    taking = ()  # what the running op takes for itself, one block after the other

    def before(self, inputs, rows):
        self.taking = ()
        return ("cuda:0", 0, 0, 0, 0) if any(t.device.type == "cuda" for t in inputs) else None

    def look(self, index):
        return 0, 0

    def took(self, was, now):
        return sum(max(taken, 0) for taken in self.taking), 0

    def add(self, on, size):
        if on != "cpu":
            self.bytes += size
            self.peak = max(self.peak, self.bytes)

    def remove(self, on, size):
        if on != "cpu":
            self.bytes -= size


class FakeStorages(Storages):
    """Storages of fake tensors, and of real ones on the CPU. Nothing is older than the recording: a storage
    first seen as an op's input has just been made without an op, as data is."""

    settled_below = 0

    def lies(self, t, storage):
        return str(getattr(t, "fake_device", storage.device))

    def has_come(self, key, storage):
        return True

    def of(self, t, category=None, known=False, at=0, born=None):
        return Storages.of(self, t, category, known and category is None, at, born)

    def settle(self):
        """A step ends: storages that have outlived a whole step count as older than the next steps, as for an
        agent that begins here."""
        for s in list(self.alive.values()):
            if s.number < self.settled_below and self.category.get(s.number) is None:
                self.born[s.number] = None
        self.settled_below = len(self.born)


class Recorder(Ops):
    """Ops over fake tensors."""

    make_storages, make_within = FakeStorages, Pretended

    def __init__(self, run):
        Ops.__init__(self, run.torch, run.clock, 0, Nothing(), [], run.broke)
        self.run, self.proxies = run, {}
        self.emptied, self.counted = [], (0, 0)
        self.rows.limit = ALL_ROWS

    def _op(self, func, args, kwargs):
        func = self.run.sums.in_place(func, args)
        proxy = self.proxies.get(func)
        if proxy is None:
            proxy = self.proxies[func] = _Timed(func, self.run)
        if (
            func in self.run.lifts and not self.stopped
        ):  # torch.tensor: the script never holds the tensor with the values
            out = proxy(*args, **kwargs)
            self.storages.of(out, at=self.clock())
            return out
        return Ops._op(self, proxy, args, kwargs)

    def _timer(self, inputs, kwargs):
        return None

    def empties(self):
        """The allocator's cache is returned to the driver: note after how many blocks."""
        at, blocks = self.counted
        for row in self.rows.list[at:]:
            blocks += row[0] == "a" and self.storages.where[row[1]] != "cpu"
        self.counted = len(self.rows.list), blocks
        self.emptied.append(blocks)

    def _own(self, info, looked):
        """Each block that the op takes for itself is freed before the next is allocated."""
        last = ()
        for taken in self.within.taking:
            if last:
                self.rows.add(("f", last[0], self.rows.last))
                last = ()
            if taken == EMPTIED:
                self.empties()
                continue
            last = (self.storages.workspace(info.name, looked[0][0], taken, 0),)
        return last, False  # the op in the next row has the last one


class Run(Taken):
    """The estimate of one process."""

    def __init__(self, torch, folder, config):
        Taken.__init__(self, torch, folder, config)
        self.clock, self.made_up, self.few = Clock(), {}, Few()
        self.turn = threading.RLock()  # of the thread whose op runs
        self.sized = sized_results(torch, self.few)
        self.pace, self.factories = Pace(torch, config["device"], self.note), {}
        self.recorder, self.mode, self.fake, self.open = None, None, None, builtins.open
        self.depth, self.first, self.steps, self.last = 0, None, 0, 0
        self.done, self.lifts, self.sums, self.followed = False, (), None, Followed(self)
        self.reductions = Reductions(config["device"]) if config["kind"] == "cuda" else None
        self.products = Products(torch, config["device"]) if config["kind"] == "cuda" else None
        self.convolutions, self.held, self.again = Convolutions(torch), None, None

    # -- notes -----------------------------------------------------------------------------------------------

    def made(self, what):
        recorder = self.recorder
        if recorder is None or recorder.phases.outside != OPTIMIZER:
            self.made_up[what] = self.made_up.get(what, 0) + 1

    def broke(self, error):
        self.error = self.error or "%s: %s" % (type(error).__name__, error)

    # -- ops -------------------------------------------------------------------------------------------------

    def answer(self, op, args, kwargs):
        """Run an op on fake tensors, or make up what it might return."""
        func = op.func
        if kwargs.get("pin_memory"):  # there is no device to pin it for
            kwargs = dict(kwargs, pin_memory=False)
        if op.whole is not None and self._small(op, args, kwargs):
            with self.without():
                real = func(*args, **kwargs)
            return self.followed.constant(real)
        network = NETWORKS.get(op.name)
        if network is not None and args[0].device.type == "cuda":
            return network(self.torch, Blocks(self.recorder, op.name), *args)
        if op.name == "aten::to" and getattr(args[0], "constant", None) is not None:
            # in inference mode; fake tensors would not decompose it, and would ask CUDA
            out = func.decompose(*args, **kwargs)
            self.followed.follow(op, args, kwargs, out)
            return out
        try:
            out = self.again.call(func, args, kwargs)
            self._suppose(op, args, out)
            self.followed.follow(op, args, kwargs, out)
            first = ALLOCATED_FIRST.get(op.name)
            if first is not None and out[first].device.type == "cuda":
                Blocks(self.recorder, op.name).makes(out[first])
            return out
        except self.dependent:
            out = self.followed.answer(op, args, kwargs)
            if out is not None:
                return out
            out = self._made(func, args, kwargs)
            if out is NotImplemented:
                raise
            self.made(asked_as(op.short))
            return out

    def _taken_for(self, x):
        """The number or truth value to assume for x in a comparison; None if there is none."""
        if not isinstance(x, self.torch.Tensor):
            return x if isinstance(x, (bool, int, float)) else None
        values = self.followed.values(x)
        if values is not None:
            with self.without():
                return values.item() if values.numel() == 1 else None
        value, version = getattr(x, "taken_for", (None, -1))
        if version == version_or_0(x):
            return value
        return None if x.dtype == self.torch.bool else 1

    def _suppose(self, op, args, out):
        """Note what to assume for the result of an op: a truth value, a number from the host, or nothing if
        it is drawn at random."""
        if not isinstance(out, self.torch.Tensor):
            return
        name, drawn = op.short, op.drawn
        if name == "_to_copy" and out.dtype != self.torch.bool:
            self.few.copied(out, args[0])
        if out.dtype == self.torch.bool and not drawn:
            value = truth_of(name, args, self._taken_for)
        elif name == "_to_copy" and getattr(args[0], "constant", None) is not None:
            value = self._taken_for(args[0])
        elif drawn:
            value = None
        else:
            return
        out.taken_for = value, version_or_0(out) + name.endswith("_")  # counted once the op has ended

    def _small(self, op, args, kwargs):
        device = kwargs.get("device")
        if device is not None and self.torch.device(device).type != "cpu":
            return False
        return op.whole(args) <= MOST_KEPT

    def _made(self, func, args, kwargs):
        torch = self.torch
        name = func._schema.name
        t = args[0]
        if name in ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero"):  # in inference mode
            value = self._taken_for(t)
            if t.dtype == torch.bool or name == "aten::is_nonzero":
                return self.told(bool(value))
            value = 1 if value is None else value
            kind = float if t.dtype.is_floating_point else complex if t.dtype.is_complex else int
            return kind(value)
        if name in ("aten::equal", "aten::allclose"):
            return True
        if name == "aten::masked_select" and args[1].shape == t.shape:
            return t.new_empty((self.followed.count(args[1]),))
        sized = self.sized.get(name.partition("::")[2])
        if sized is not None:
            out = sized(*args, **kwargs)
            if name in ("aten::nonzero", "torchvision::nms"):
                self.followed.believe_each(out, args[name != "aten::nonzero"].shape)
            return out
        if name.partition("::")[2] in INDEXED:
            indices = []
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    some = (self.followed.count(index),)
                    indices += [torch.empty(some, dtype=torch.int64, device=index.device)] * index.dim()
                else:
                    indices.append(index)
            return func(args[0], indices, *args[2:], **kwargs)
        return NotImplemented

    def takes(self, op, args, kwargs, out):
        """Note what the op takes for itself, as far as we know it."""
        tensor, name = self.torch.Tensor, op.name
        if self.reductions is None or not args or not isinstance(args[0], tensor):
            return
        taken = 0
        if isinstance(out, tensor):
            if out.device.type == "cuda":
                taken = self.reductions.taken(name, args[0], out)
                taken = taken or self.products.taken(name, args, kwargs, out)
            else:
                taken = taken_by_copy(name, args, out)
        self.recorder.within.taking = (taken,) if taken else self.convolutions.taken(name, args)

    def duration(self, op, args, kwargs, out):
        tensors = self.recorder.storages.tensors
        all = tensors((out,), tensors(kwargs.values(), tensors(args, [])))
        return self.pace.nanoseconds(op.func, op.flops, args, kwargs, out, all)

    # -- steps -----------------------------------------------------------------------------------------------

    def trained(self):
        return self.steps

    def pre(self, optimizer, args, kwargs):
        self.depth += 1
        self.recorder.entering_optimizer(optimizer)
        return around_closure(args, kwargs, self.recorder.in_closure)

    def post(self, optimizer, args, kwargs):
        self.depth -= 1
        if self.depth > 0:
            return
        recorder = self.recorder
        recorder.leaving_optimizer(optimizer)
        if self.first is None:
            self.first = weakref.ref(optimizer)
        if self.first() is not optimizer and self.first() is not None:
            return
        self.first = weakref.ref(optimizer)
        self.stepped()

    def phases(self):
        return self.recorder.phases

    def stepped(self):
        recorder = self.recorder
        self.steps += 1
        recorder.steps.append((self.last, self.clock.now))
        self.last = self.clock.now
        recorder.storages.settle()
        self.held.stepped()
        if self.steps >= self.config["steps"]:
            self.finish()

    def write(self):
        if self.done or os.getpid() != self.pid:
            return
        self.done = True
        recorder, report = self.recorder, os.path.join(self.folder, "report.json")
        if self.steps == 0 and not self.unsupported and os.path.exists(report):
            return  # the training was another process of the command
        with self.without() if self.mode is not None else contextlib.nullcontext():
            if recorder is not None:
                recorder.stop()
                with self.open(os.path.join(self.folder, "trace.jsonl"), "w") as f:
                    for text in recorder.pieces({"epoch_ns": 0, "empty": True}):
                        f.write(text)
            found = {
                "torch": str(self.torch.__version__),
                "steps": self.steps,
                "made_up": self.made_up,
                "notes": self.said(),
                "error": self.error,
                "unsupported": self.unsupported,
                "trains": self.trains(),
                "lost": 0 if recorder is None else recorder.rows.lost,
                "emptied": [] if recorder is None else recorder.emptied,
            }
            with self.open(report + ".part", "w") as f:
                json.dump(found, f)
            os.replace(report + ".part", report)

    def failed(self, kind, error, traceback):
        name = kind.__name__
        text = " ".join(str(error).split())
        if isinstance(error, Unsupported):
            self.unsupported = text
            sys.stderr.write("gmemtop: %s\n" % text)
            return
        if name in (
            "UnsupportedOperatorException",
            "DynamicOutputShapeException",
            "DataDependentOutputException",
            "UnsupportedFakeTensorException",
        ):
            self.unsupported = "%s cannot run on tensors without memory" % text
        elif (
            "FakeTensor" in text
            or "data pointer" in text
            or "no fake impl" in text
            or "'Meta' backend" in text
            or "Meta tensors" in text
        ):
            self.unsupported = "an op needs the memory of its tensors: " + text[:300]
        elif "Found no NVIDIA driver" in text or "CUDA error" in text or "CUDA driver version" in text:
            self.unsupported = (
                "something asked CUDA itself for the device that is only pretended: " + text[:200]
            )
        self.excepthook(kind, error, traceback)


def begin(torch, folder):
    """Take over the process. torch has just been imported."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    if LAUNCHED in os.environ and os.environ.get("RANK", "0") != "0":
        os._exit(0)  # the first process stands for all that the launcher starts
    run = Run(torch, folder, config)
    stay_with_gmemtop(run, launches())
    if launches():
        return let_launch(run)
    version = tuple(int(x) for x in re.findall(r"\d+", str(torch.__version__))[:2])
    if version < (2, 2):
        run.unsupported = "torch %s: this needs 2.2 or newer" % torch.__version__
        run.finish(1)
    try:
        _prepare(run)
    except Unsupported as e:
        run.unsupported = str(e)
        run.recorder = None
        run.finish(1)
    except Exception as e:  # a torch whose internals differ from those this was tested with
        run.broke(e)
        run.recorder = None
        run.finish(1)
    run.excepthook, sys.excepthook = sys.excepthook, run.failed
    atexit.register(run.write)
    run.importing = False


def _prepare(run):
    config = run.config
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import torch._subclasses.fake_tensor as fake
    import torch.utils.data
    from torch.optim import optimizer as optimizers
    from torch.utils import _foreach_utils, _python_dispatch

    run.fake = fake.FakeTensor
    run.dependent = (fake.DataDependentOutputException, fake.DynamicOutputShapeException)
    run.lifts = (
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten.lift_fresh_copy.default,
        torch.ops.aten.lift.default,
    )
    run.without = _python_dispatch._disable_current_modes
    fake.CONSTANT_NUMEL_LIMIT = MOST_KEPT
    _pretend_below(run)

    class Mode(fake.FakeTensorMode):
        @property
        def avoid_device_init(self):
            return True

        def __deepcopy__(self, memo):  # a copied tensor copies its mode too, but must keep this one
            return self

        def __torch_dispatch__(self, *args, **kwargs):
            with run.turn:
                return super().__torch_dispatch__(*args, **kwargs)

    run.mode = Mode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    run.again = Again(run)
    if hasattr(fake, "init_gpu_context"):
        fake.init_gpu_context = lambda device: None
    for module in (optimizers, _foreach_utils):
        known = getattr(module, "_foreach_supported_types", None)
        if isinstance(known, list):
            known.append(fake.FakeTensor)
    _modules_move(torch, fake.FakeTensor)
    _copying(run, fake.FakeTensor)
    _parameters_by_type(torch, fake.FakeTensor)
    _refuse_traces(torch)
    _threads_take_turns(run, fake.FakeTensor)
    _factories(run)
    _tensors_answer(run, fake.FakeTensor)
    _loading(run)
    leave_files_alone(run)
    stay_offline(run)
    keep_trackers_offline(run)
    profile_the_host_alone(run)
    leave_triton_out(run, run.followed.forget)
    leave_compiling_out(run, "compiled steps take other memory than eager ones")
    _distributed(run)
    _attention(run)
    _made_of_tensors(run)
    weights_without_memory(run)
    run_networks_without_cuda(run)
    run.recorder = Recorder(run)
    if config["kind"] == "cuda":
        _cuda(run)
    else:
        torch.cuda.is_available = lambda: False
    # The mode would not apply on the backward engine's own threads.
    run.alone = torch.autograd.set_multithreading_enabled(False)
    run.alone.__enter__()
    optimizers.register_optimizer_step_pre_hook(run.pre)
    optimizers.register_optimizer_step_post_hook(run.post)
    run.mode.__enter__()
    _threads_pretend(run)
    run.held = Held(run)
    run.sums = Sums(torch)  # this runs its own backward pass
    steps_by_hand(run, optimizers.Optimizer)
    run.recorder.begin()
