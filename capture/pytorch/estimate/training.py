"""What both estimates change in torch itself, and how they end the process.

Compiled code is left out or refused, and the gradient scaler meets no infinity. torch's fake process group
stands in for missing ranks. If values decide how many elements a result has, it gets the most that it could
have.
"""

import builtins
import functools
import inspect
import itertools
import os
import re
import sys
import threading


class Unsupported(RuntimeError):
    """The script does something that the estimate cannot follow. The text is for the user."""


MOST_LINES = 6  # that a note names
OFTEN = 10000  # how often a line gets the same truth value within a step


class Taken:
    """A process that an estimate has taken over. write() saves what was found."""

    def __init__(self, torch, folder, config):
        self.torch, self.folder, self.config, self.pid = torch, folder, config, os.getpid()
        self.notes, self.at, self.error, self.unsupported = [], {}, "", ""
        self.optimizers = False  # whether the script makes one
        self.importing = True  # until the script's import of torch has ended
        self.kernels_known = {}  # functions of torch: stand-ins that take the memory of the compiled ones
        self.inside = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self.open = builtins.open
        self.telling = -1, {}  # the step, and how often each line got a truth value in it

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def note_at(self, text, line):
        """A note about a line, one of several that it may be true of."""
        lines = self.at.setdefault(text, [])
        if os.path.basename(line) not in lines:
            lines.append(os.path.basename(line))

    def said(self):
        """All notes."""
        notes = list(self.notes)
        for text, lines in self.at.items():
            more = " and %d more" % (len(lines) - MOST_LINES) if len(lines) > MOST_LINES else ""
            notes.append("%s: %s%s" % (text, ", ".join(lines[:MOST_LINES]), more))
        return notes

    def trains(self):
        """Whether the script trains, or would have trained: one that only generates makes no optimizer."""
        return self.optimizers or self.trained() > 0

    def told(self, truth):
        """A truth value; after OFTEN times on the same line in a step, the opposite, since the line must be a
        loop that waits for it. What torch.distributions asks is whether the numbers that it got are valid:
        they are."""
        if self.asked_in("distributions"):
            return True
        if self.telling[0] != self.trained():
            self.telling = self.trained(), {}
        lines, line = self.telling[1], self.line()
        lines[line] = lines.get(line, 0) + 1
        return truth if lines[line] <= OFTEN else not truth

    def asked_in(self, package):
        """Whether code in a package of torch asks, rather than the script or a library."""
        frame, within = sys._getframe(1), self.inside + package + os.sep
        while frame is not None and frame.f_code.co_filename.startswith((self.inside, "gmemtop")):
            if frame.f_code.co_filename.startswith(within):
                return True
            frame = frame.f_back
        return False

    def line(self, frame=None):
        """The line being run, in the script or a library outside torch."""
        frame = frame or sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if not name.startswith((self.inside, "gmemtop", "<frozen")) and os.path.exists(name):
                # generated code may have no line numbers; its first line is close enough
                return "%s:%d" % (name, frame.f_lineno or frame.f_code.co_firstlineno)
            frame = frame.f_back
        return "?"

    def main_line(self):
        """The line that the main thread runs."""
        return self.line(sys._current_frames().get(threading.main_thread().ident))

    def where(self):
        """The progress of the process."""
        return {
            "rank": int(os.environ.get("RANK", "0")),
            "steps": self.trained(),
            "line": self.main_line(),
            "importing": self.importing,
        }

    def finish(self, code=0):
        """Write what was found and end the process without running the rest of the script, which would save a
        model that was never trained."""
        self.write()
        end_children()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        os._exit(code)


def end_children():
    """End the processes that load data. Otherwise they would complain at length that this one is gone."""
    import multiprocessing
    import signal

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # DataLoader raises when a worker ends
    for child in multiprocessing.active_children():
        child.kill()


LAUNCHED = "GMEMTOP_ESTIMATE_LAUNCHED"  # set in the environment of processes that a launcher starts


def launches():
    """Whether this process only starts others, which train."""
    launcher = os.path.basename(sys.argv[0] if sys.argv else "")
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    argv = getattr(sys, "orig_argv", [])
    module = spec.name if spec is not None else argv[argv.index("-m") + 1] if "-m" in argv[:-1] else ""
    return launcher in ("torchrun", "accelerate", "deepspeed", "fabric") or module.startswith(
        ("torch.distributed", "accelerate.commands", "deepspeed")
    )


def let_launch(run):
    """Let a launcher start processes on this machine; each of them is taken over separately. A launcher that
    would wait for other machines is refused, whether its command line, its environment or a file says so."""
    words = list(itertools.takewhile(lambda word: not word.endswith(".py"), sys.argv[1:]))
    # DeepSpeed's launcher reaches other machines by ssh, those below by a rendezvous
    told = re.search(r"--num[-_](?:machines|nodes)[ =](\d+)", " ".join(words))
    if told is not None:
        alone(run, int(told[1]))
    from torch.distributed.launcher import api

    launch = api.launch_agent

    @functools.wraps(launch)
    def launch_here(config, *args, **kwargs):
        alone(run, config.min_nodes)
        config.max_nodes, config.rdzv_backend, config.rdzv_endpoint = 1, "c10d", "localhost:0"
        return launch(config, *args, **kwargs)

    api.launch_agent = launch_here
    os.environ[LAUNCHED] = "1"


def alone(run, machines):
    """Refuse a launcher that starts processes on several machines."""
    if machines > 1:
        run.unsupported = (
            "the launcher waits for %d machines: let it start processes on one, or estimate one process with "
            "gmemtop estimate --world-size N -- python train.py" % machines
        )
        run.finish(1)


def steps_by_hand(run, optimizer):
    """A script without an optimizer of torch updates parameters itself: each backward pass ends a step. We
    tell run.phases() when a pass begins, since torch does not know yet when the first ops run."""
    made, backward = optimizer.__init__, run.torch.autograd.backward

    @functools.wraps(made)
    def init(self, *args, **kwargs):
        run.optimizers = True
        return made(self, *args, **kwargs)

    @functools.wraps(backward)
    def back(*args, **kwargs):
        phases = run.phases()
        was = False if phases is None else phases.rooting
        try:
            if phases is not None:
                phases.rooting = True
            backward(*args, **kwargs)
        finally:
            if phases is not None:
                phases.rooting = was
        if not run.optimizers:
            run.stepped()

    optimizer.__init__, run.torch.autograd.backward = init, back


def leave_compiling_out(run, why):
    """torch.compile returns its argument if that was asked for. Otherwise it returns a function that refuses
    to be called, since modules of libraries compile functions that a script may never use."""
    torch = run.torch

    def refused(*args, **kwargs):
        raise Unsupported(
            "the script compiles its model: %s. --eager estimates it without torch.compile" % why
        )

    def compiled(model=None, **kwargs):
        if model is None:
            return lambda f: compiled(f)
        if not isinstance(model, torch.nn.Module) and model in run.kernels_known:
            return run.kernels_known[model]
        if run.config["eager"]:
            run.note("torch.compile was left out, as asked")
            return model
        if isinstance(model, torch.nn.Module):
            refused()
        return functools.wraps(model)(lambda *args, **kwargs: refused())

    torch.compile = compiled
    torch.nn.Module.compile = lambda self, *args, **kwargs: compiled(self) and None


def scale_without_infinities(scaler):
    """Make the gradient scaler step each time, as it meets no infinity."""
    scaler._maybe_opt_step = lambda self, optimizer, state, *args, **kwargs: optimizer.step(*args, **kwargs)


def pretend_ranks(run, sentence):
    """Make process groups torch's own fake ones. The sentence is a note, with the number of processes."""
    torch = run.torch
    original = torch.distributed.init_process_group

    def init(*args, **kwargs):
        try:
            from torch.testing._internal.distributed.fake_pg import FakeStore
        except ImportError as e:
            raise Unsupported(
                "torch %s has no process group that can be pretended" % torch.__version__
            ) from e
        size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
        run.note(sentence % size)
        return original("fake", rank=rank, world_size=size, store=FakeStore())

    torch.distributed.init_process_group = torch.distributed.distributed_c10d.init_process_group = init


class OneThread:
    """A block whose ops run on one thread of the host. They are small: several threads that wait for each
    other gain little, and on a busy machine cost many times the op itself."""

    def __init__(self, torch):
        self.torch, self.before = torch, 1

    def __enter__(self):
        self.before = self.torch.get_num_threads()
        self.torch.set_num_threads(1)

    def __exit__(self, *error):
        self.torch.set_num_threads(self.before)


def tensors_in(torch, args, kwargs):
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.Tensor):
            yield x
        elif isinstance(x, (list, tuple)):
            for y in x:
                if isinstance(y, torch.Tensor):
                    yield y


def asked_as(op):
    """What a script calls an op that it reads values by: torch's own name for it may be another."""
    return "item" if op == "_local_scalar_dense" else op.strip("_").rstrip("2")


def sized_results(torch, few):
    """Ops where values decide how many elements the result has: by name, a function that makes a result
    without them. It makes the largest possible result; few, a Few, knows how many unique values there can
    be."""

    def long(t, *shape):
        return torch.empty(shape, dtype=torch.int64, device=t.device)

    def unique(t, *args, **kwargs):
        n = few.values(t)
        return t.new_empty((n,)), long(t, *t.shape), long(t, n)

    def unique_dim(t, dim=None, *args, **kwargs):
        if dim is None:
            return unique(t)
        n = t.shape[dim]
        return t.clone(), long(t, n), long(t, n)

    def repeat(repeats, *, output_size=None):
        return long(repeats, repeats.numel() if output_size is None else output_size)

    def bincount(t, weights=None, minlength=0):
        return long(t, max(minlength, 1)) if weights is None else weights.new_empty((max(minlength, 1),))

    return {
        "nonzero": lambda t: long(t, t.numel(), t.dim()),
        "masked_select": lambda t, mask: t.new_empty((torch.broadcast_shapes(t.shape, mask.shape).numel(),)),
        "_unique": lambda t, *args, **kwargs: unique(t)[:2],
        "_unique2": unique,
        "unique_dim": unique_dim,
        "unique_consecutive": lambda t, inverse=False, counts=False, dim=None: unique_dim(t, dim),
        "unique_dim_consecutive": unique_dim,
        "repeat_interleave": repeat,
        "bincount": bincount,
        "nms": lambda boxes, scores, threshold: long(boxes, boxes.shape[0]),  # torchvision's
    }


def profile_the_host_alone(run):
    """The profiler asks NVIDIA's library about the device, which ends the process: there is no device. Stacks
    and shapes would be of no use, and slow with fake tensors."""
    import torch.autograd.profiler as lower
    import torch.profiler.profiler as upper

    off = {"record_shapes": False, "profile_memory": False, "with_stack": False}
    host = [run.torch.profiler.ProfilerActivity.CPU]
    for kind, settings in (
        (lower.profile, dict(off, use_cuda=False, use_device=None)),
        (upper._KinetoProfile, dict(off, activities=host)),
    ):
        _always_with(run, kind, settings)


def _always_with(run, kind, settings):
    init = kind.__init__
    known = {k: x for k, x in settings.items() if k in inspect.signature(init).parameters}

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        run.note("the profiler records the CPU only")
        init(self, *args, **dict(kwargs, **known))

    kind.__init__ = made
