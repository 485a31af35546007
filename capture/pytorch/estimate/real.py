"""Runs inside a training process while PyTorch's own allocator shows how much memory the training takes.

The script runs unchanged on a stand-in GPU: PyTorch's CUDA code allocates as on the card, kernels compute
nothing, and large copies move nothing. Little is left to do here:

- Record: the caching allocator's history, from the device's first use to the last step, unless only peaks
  are wanted; its peaks of allocated and reserved memory; each out-of-memory error, with the request and the
  script line that made it.
- Answer: device memory holds no results, so most of what a script reads from it is made up (values.py).
- Write nothing: existing files stay as they are, no checkpoint is written, the network is not used.
- Stop: after the wanted number of steps the process ends without running the rest of the script, which would
  save a model that was never trained. If a file for managers is wanted, two more steps are described first
  (steps.py).

Rejected: computing the results of kernels on the CPU. That costs as much as training on a CPU.
"""

import atexit
import functools
import json
import os
import pickle
import sys
import weakref

from agent.closures import around_closure

from .alive import stay_with_gmemtop
from .flex import take_flex_attention
from .kernels import leave_triton_out
from .steps import Described
from .threads import Held
from .trackers import keep_trackers_offline
from .training import (
    Taken,
    Unsupported,
    launches,
    leave_compiling_out,
    let_launch,
    pretend_ranks,
    profile_the_host_alone,
    scale_without_infinities,
    steps_by_hand,
)
from .values import answer_values
from .world import leave_files_alone, stay_offline

LARGE = 1 << 20  # bytes: a CPU tensor of this size is not worth filling with made-up values


class Rehearsal(Taken):
    """One process of the training."""

    def __init__(self, torch, folder, config):
        Taken.__init__(self, torch, folder, config)
        self.replace, self.answers = os.replace, {}
        self.steps, self.depth, self.first, self.seen = [], 0, None, {}
        self.out_of_memory, self.snapshot, self.died, self.written = [], None, False, False
        self.final, self.described, self.undescribed = None, None, ""  # set after the steps that count
        self.no_kernels, self.oldest = None, (0, 0)  # compute capabilities
        self.held = None

    def answered(self, op, what, sized=False, doubt=""):
        """Note an answer to the line being run. sized says that the values decide how many elements the
        result has, doubt that the estimate may therefore be "too high" or "too low"."""
        key = (op, self.line())
        count = self.answers[key]["count"] if key in self.answers else 0
        self.answers[key] = {"count": count + 1, "answer": what, "sized": sized, "doubt": doubt}

    # Steps

    def entering(self, optimizer, args, kwargs):
        self.depth += 1
        self.seen[id(optimizer)] = weakref.ref(optimizer)
        if self.described is None:
            return None
        self.described.entering_optimizer(optimizer)
        return around_closure(args, kwargs, self.described.in_closure)

    def leaving(self, optimizer, args, kwargs):
        self.depth -= 1
        if self.depth:
            return
        if self.described is not None:
            self.described.leaving_optimizer(optimizer)
        # several optimizers make one step: it ends with the first one's, as long as that one exists
        if self.first is None or self.first() is None:
            self.first = weakref.ref(optimizer)
        if self.first() is not optimizer:
            return
        self.stepped()

    def phases(self):
        return None if self.described is None else self.described.phases

    def known_optimizers(self):
        return [o for o in (weak() for weak in self.seen.values()) if o is not None]

    def trained(self):
        return len(self.steps)

    def stepped(self):
        if self.described is not None:
            if self.described.stepped():
                self.finish()
            return
        self.steps.append(self.books())
        self.held.stepped()
        if len(self.steps) < self.config["steps"]:
            return
        if not self.config["describe"]:
            self.finish()
        self.close_books()
        self.held.by.clear()
        try:
            self.described = Described(self)
        except Exception as e:
            self.undescribed = "%s: %s" % (type(e).__name__, e)
            self.finish()

    def card_serves(self):
        """End the estimate if this torch has no kernels for the card, since it could not train there."""
        capability = tuple(self.torch.cuda.get_device_capability(0))
        built = [
            int(name[3:].rstrip("af")) for name in self.torch.cuda.get_arch_list() if name.startswith("sm_")
        ]
        if built:
            self.oldest = divmod(min(built), 10)
        if capability < self.oldest:
            self.no_kernels = capability
            self.finish(1)

    # Books

    def books(self):
        """The peaks of allocated and reserved memory so far, by device."""
        cuda, found = self.torch.cuda, []
        if not cuda.is_initialized():
            return found
        for device in range(cuda.device_count()):
            stats = cuda.memory_stats(device)
            if not stats.get("allocation.all.allocated"):
                continue
            found.append(
                {
                    "device": device,
                    "allocated": stats["allocated_bytes.all.peak"],
                    "requested": stats.get("requested_bytes.all.peak", 0),
                    "reserved": stats["reserved_bytes.all.peak"],
                    "retries": stats.get("num_alloc_retries", 0),
                }
            )
        return found

    def ran_out(self, device, request, limit, free):
        """Called by the allocator before it raises: what is alive now filled the card."""
        if self.described is not None:
            return
        line = self.line()
        if line == "?":  # a thread of the backward pass, which the main thread started
            line = self.main_line()
        self.out_of_memory.append(
            {"device": device, "request": request, "line": line, "step": len(self.steps) + 1}
        )
        if self.snapshot is None and self.config["history"]:
            self.snapshot = self.torch.cuda.memory._snapshot()

    # The end

    def close_books(self):
        """Nothing after this counts in the figures."""
        if self.final is None:
            self.final = self.books()
            if self.final and self.config["history"] and (self.snapshot is None or not self.died):
                self.snapshot = self.torch.cuda.memory._snapshot()

    def write(self):
        if self.written or os.getpid() != self.pid:
            return
        self.written = True
        self.close_books()
        books, name = self.final, "%d" % self.pid
        if self.described is not None:
            path = os.path.join(self.folder, name + ".jsonl")
            try:
                self.undescribed = self.described.keep(path, self.open)
            except Exception as e:
                self.undescribed = "%s: %s" % (type(e).__name__, e)
        if books and self.config["history"]:
            with self.open(os.path.join(self.folder, name + ".pickle"), "wb") as f:
                pickle.dump(self.snapshot, f)
        found = {
            "torch": str(self.torch.__version__),
            "python": sys.executable,
            "rank": int(os.environ.get("RANK", "0")),
            "steps": self.steps,
            "books": books,
            "answers": [dict(x, op=op, line=line) for (op, line), x in self.answers.items()],
            "notes": self.said(),
            "described": self.described is not None and not self.undescribed,
            "undescribed": self.undescribed,
            "out_of_memory": self.out_of_memory,
            "died": self.died,
            "error": self.error,
            "unsupported": self.unsupported,
            "no_kernels": self.no_kernels,
            "oldest": self.oldest,
            "trains": self.trains(),
        }
        path = os.path.join(self.folder, name + ".json")
        with self.open(path + ".part", "w") as f:
            json.dump(found, f)
        self.replace(path + ".part", path)

    def failed(self, kind, error, traceback):
        if isinstance(error, Unsupported):
            self.unsupported = str(error)
            sys.stderr.write("gmemtop: %s\n" % error)
            return
        cause = error if self.final is None else None
        while cause is not None and not self.died:  # a trainer may have raised its own error from it
            self.died = isinstance(cause, self.torch.cuda.OutOfMemoryError)
            cause = cause.__cause__ or cause.__context__
        self.excepthook(kind, error, traceback)


def begin(torch, folder):
    """Take over the process. torch has just been imported."""
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    run = Rehearsal(torch, folder, config)
    if config["torch"] not in ("", str(torch.__version__)):
        run.finish(1)  # this reports where torch is: the stand-in here fits another torch
    _as_many_cards(torch)
    stay_with_gmemtop(run, launches())
    if launches():
        return let_launch(run)
    try:
        _prepare(run)
    except Exception as e:  # a torch whose internals differ from those this was tested with
        run.error = "%s: %s" % (type(e).__name__, e)
        run.finish(1)
    run.excepthook, sys.excepthook = sys.excepthook, run.failed
    atexit.register(run.write)
    run.importing = False


def _as_many_cards(torch):
    """Give the machine a card for each process that a launcher started on it, and for each that the
    environment names: scripts refuse to train with fewer. The stand-in reads its settings on first use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    wanted = [os.environ.get("STANDIN_DEVICES", "1"), str(visible.count(",") + 1)]
    wanted += [os.environ.get(name, "1") for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")]
    os.environ["STANDIN_DEVICES"] = str(max(int(number) for number in wanted))
    # torch would look up the numbers in CUDA_VISIBLE_DEVICES among all cards of a machine, but the stand-in
    # has only the ones that the command may use.
    torch.cuda._device_count_nvml = lambda: -1


def _prepare(run):
    torch = run.torch
    from torch.optim import optimizer as optimizers

    record = torch.cuda.memory._record_memory_history

    # Recording begins with the script's own first use of the device: starting CUDA earlier would break
    # scripts that fork before it.
    def begun():
        run.card_serves()
        if run.config["history"]:
            record(enabled="all", context="all", stacks="python")
        torch._C._cuda_attach_out_of_memory_observer(run.ran_out)

    torch.cuda._lazy_call(begun)
    # If the script recorded the history itself, that would end this recording.
    torch.cuda.memory._record_memory_history = lambda *args, **kwargs: run.note(
        "the script records its memory itself: that was left out"
    )
    optimizers.register_optimizer_step_pre_hook(run.entering)
    optimizers.register_optimizer_step_post_hook(run.leaving)
    steps_by_hand(run, optimizers.Optimizer)
    run.held = Held(run)
    answer_values(run)
    import torch.amp.grad_scaler as scalers

    scale_without_infinities(scalers.GradScaler)
    take_flex_attention(run)
    leave_triton_out(run, lambda t: run.known.forget(t) if run.known is not None else None)
    _filling(run)
    leave_files_alone(run)
    stay_offline(run)
    keep_trackers_offline(run)
    profile_the_host_alone(run)
    leave_compiling_out(run, "compiled kernels need a GPU")
    _distributed(run)


def _filling(run):
    """Do not fill large tensors on the CPU, since no op computes with their values. Their memory stays
    untouched, so a model that is made on the CPU first costs nothing there."""
    torch = run.torch

    def lazily(function):
        @functools.wraps(function)
        def fill(tensor, *args, **kwargs):  # the name by which torch.nn.init passes it
            t = tensor
            if (
                isinstance(t, torch.Tensor)
                and t.device.type == "cpu"
                and t.is_floating_point()
                and t.numel() * t.element_size() > LARGE
            ):
                return t
            return function(t, *args, **kwargs)

        return fill

    for name in ("normal_", "uniform_", "zero_", "fill_", "trunc_normal_"):
        if hasattr(torch.Tensor, name):
            setattr(torch.Tensor, name, lazily(getattr(torch.Tensor, name)))
    for name in (
        "trunc_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "orthogonal_",
    ):
        setattr(torch.nn.init, name, lazily(getattr(torch.nn.init, name)))


def _distributed(run):
    """One process of many: torch's fake process group stands in for the others."""
    torch = run.torch
    if not torch.distributed.is_available():
        return
    # DistributedDataParallel compares the ranks' parameters by reading from the device.
    torch.distributed._verify_params_across_processes = lambda *args: None
    if run.config["processes"]:
        pretend_ranks(
            run,
            "one process of %d is estimated and the others are pretended: what communication takes "
            "outside of PyTorch's allocator is not in it",
        )
        _reduced_at_once(torch)


def _reduced_at_once(torch):
    """DistributedDataParallel's reducer waits for a result that must hold the bucket; the results of the fake
    process group do not."""
    parallel = torch.nn.parallel.DistributedDataParallel
    made = parallel.__init__

    def reduced(state, bucket):
        done = torch.futures.Future(devices=[bucket.buffer().device])
        done.set_result(bucket.buffer())
        return done

    @functools.wraps(made)
    def wrap(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.register_comm_hook(None, reduced)

    parallel.__init__ = wrap
