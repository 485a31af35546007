"""Describe training steps op by op: what each reads and writes, in which module and phase, and its time.

A memory snapshot says when blocks were alive. To plan swapping and recompute, gmemtop must also know which
ops use them; this file records that. It needs only torch, 2.2 or newer. Copy it next to your training script:

    from describe import Describe

    for step, batch in enumerate(loader):
        if step == 3:                                   # warmed up
            recorder = Describe("step.jsonl", model, optimizer)
        if step in (3, 4):
            with recorder.step():                       # two steps, to see what one leaves for the next
                train(batch)
        elif step == 5:
            recorder.close()
        else:
            train(batch)

    gmemtop compare step.jsonl --budget 12GiB

While it records, it costs some microseconds an op and changes no results. It records eager PyTorch only: it
refuses code under torch.compile, since a compiled step would run eagerly while it is recorded. On a GPU, ops
are timed with events on the current stream; memory that kernels take inside an op (workspaces) is not seen.

The file is JSON lines; the package comment of traces/described documents them.
"""

import contextlib
import json
import os
import time
import weakref

import torch
from torch.nn.modules import module as torch_module
from torch.optim import optimizer as torch_optimizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

# Ops that overwrite the whole tensor.
OVERWRITES = {"zero_", "fill_", "copy_", "normal_", "uniform_", "random_", "bernoulli_"}
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


def _tensors(tree):
    """The tensors in a tree that have their own memory, unlike sparse and fake ones."""
    return [
        t
        for t in tree_flatten(tree)[0]
        if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.device.type != "meta"
    ]


class _Mode(TorchDispatchMode):
    def __init__(self, recorder):
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.recorder._op(func, args, kwargs or {})


def one_clock(rows, ran, steps):
    """Put rows and steps on one clock that never goes back, in the order in which the host issued them.

    Changes rows and returns the steps' new bounds. All times are in nanoseconds. rows hold the host's times.
    ran has the start and duration of each op that the device timed, by id(row). steps are pairs of host
    times.

    A device runs an op later than the host issues it. If ops had the device's times and everything else the
    host's, an op could come after the free of a tensor that it reads, or in the next step. So the order is
    the host's, and the clock is that of the stream with the most ops. Ops of other streams keep their
    durations but not their starts.
    """
    counts = {}
    for row in rows:
        if id(row) in ran:
            counts[row["stream"]] = counts.get(row["stream"], 0) + 1
    main = max(counts, key=counts.get) if counts else None
    bounds, placed, now, ends = [t for step in steps for t in step], [], -1, 0

    def place():
        """The next bound, later than all earlier ones; a step ends when its last op has ended."""
        k = len(placed)
        return placed[-1] if k > 0 and bounds[k] == bounds[k - 1] else max(now + 1, ends, bounds[k])

    for row in rows:
        while len(placed) < len(bounds) and bounds[len(placed)] <= row["t"]:
            placed.append(place())
            now = placed[-1]
        timed = id(row) in ran
        start, took = ran[id(row)] if timed else (row["t"], row.get("d"))
        on_main = timed and row["stream"] == main
        now = max(now, start if on_main or not timed else row["t"])
        row["t"] = now
        if timed:
            row["d"] = took
        if on_main:
            ends = max(ends, now + max(took, 1))
    while len(placed) < len(bounds):
        placed.append(place())
        now = placed[-1]
    return [list(pair) for pair in zip(placed[::2], placed[1::2])]


class Describe:
    """Records steps of training; see the top of this file. Nothing is written before close()."""

    def __init__(self, path, model=None, optimizer=None):
        if os.path.exists(path):
            raise FileExistsError("%s exists already: remove it or name another file" % path)
        if any(
            isinstance(m, torch._dynamo.eval_frame.OptimizedModule)
            for m in ([] if model is None else model.modules())
        ):
            raise RuntimeError("the model is compiled: describe it without torch.compile")
        self.path, self.model, self.optimizer = path, model, optimizer
        self.rows, self.before, self.marks = [], [], []
        self.ids, self.sizes, self.born, self.where = {}, {}, {}, {}
        self.category = {}
        self.saved, self.backward_seen = set(), False
        self.device = "cpu"
        self.timers, self.start = [], None
        self.epoch = time.perf_counter_ns()
        self.unix = time.time_ns()
        self.modules, self.module_of, self.phase = [], {}, FORWARD
        self.names = {} if model is None else {m: n for n, m in model.named_modules()}
        for tensor in [] if model is None else list(model.parameters()) + list(model.buffers()):
            self._storage(tensor, "parameter", known=True)
        self._optimizer_state()

    # Numbers a storage. A storage object lives as long as its memory; its address may be used again
    # afterwards.
    def _storage(self, tensor, category=None, known=False):
        storage = tensor.untyped_storage()
        key = storage._cdata
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.sizes)
            self.sizes[found] = storage.nbytes()
            self.where[found] = str(tensor.device)
            if tensor.is_cuda:
                self.device = str(tensor.device)
            weakref.finalize(storage, self._freed, key, found)
            row = {"k": "alloc", "id": found, "size": self.sizes[found]}
            if known:
                self.before.append(row)
                self.born[found] = None
            else:
                row["t"] = self._now() if self.start is None else self.start
                self.rows.append(row)
                self.born[found] = self._phase()
        if category is not None:
            self.category[found] = category
        return found

    def _freed(self, key, found):
        if self.ids.get(key) == found:
            del self.ids[key]
            self.rows.append({"k": "free", "id": found, "t": self._now()})

    def _now(self):
        return time.perf_counter_ns() - self.epoch

    def _phase(self):
        return BACKWARD if torch._C._current_graph_task_id() != -1 else self.phase

    def _module(self, phase):
        if phase == BACKWARD:
            node = torch._C._current_autograd_node()
            return "" if node is None else self.module_of.get(node._sequence_nr(), "")
        if phase == FORWARD:
            name = self.modules[-1] if self.modules else ""
            # The op that made the node is the first to see its number.
            self.module_of.setdefault(torch.autograd._get_sequence_nr() - 1, name)
            return name
        return ""

    def _op(self, func, args, kwargs):
        phase = self._phase()
        if phase == BACKWARD and not self.backward_seen:
            self.backward_seen = True
            self.saved.update(i for i in self.ids.values() if self.born[i] == FORWARD)
        module = self._module(phase)
        inputs = _tensors((args, kwargs))
        read = [self._storage(t, known=True) for t in inputs]
        # a copy to the GPU reads nothing there
        cuda = any(t.is_cuda for t in inputs) or getattr(kwargs.get("device"), "type", "") == "cuda"
        if cuda:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
        start = self._now()
        out = func(*args, **kwargs)
        stop = self._now()
        if cuda:
            end.record()
        self.start = start  # what the op made counts as made when it began
        try:
            self._touched(
                func,
                args,
                kwargs,
                out,
                inputs,
                read,
                phase,
                module,
                start,
                stop,
                (begin, end) if cuda else None,
            )
        finally:
            self.start = None
        return out

    def _touched(self, func, args, kwargs, out, inputs, read, phase, module, start, stop, timer):
        outputs = _tensors(out)
        name = func._schema.name.split("::")[-1]
        mutated = []
        for k, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[k] if k < len(args) else kwargs.get(argument.name)
            mutated += [self._storage(t) for t in _tensors(value)]
        seen = set(read)
        made = []
        for t in outputs:
            known = t.untyped_storage()._cdata in self.ids
            found = self._storage(t)
            if not known or found not in seen:
                made.append(found)
        if not made and not mutated:
            return  # a view, or a query of sizes: no bytes are touched
        if (
            name in OVERWRITES
            and len(mutated) == 1
            and inputs[0].numel() * inputs[0].element_size() == self.sizes[mutated[0]]
        ):
            made, mutated = mutated + made, []
        row = {
            "k": "op",
            "t": start,
            "d": stop - start,
            "name": "aten::" + name,
            "phase": phase,
            "module": module,
            "r": sorted(set(read) - set(made) - set(mutated)),
            "w": sorted(set(made) - set(mutated)),
            "m": sorted(set(mutated)),
            "rerun": torch.Tag.nondeterministic_seeded not in func.tags,
        }
        if timer:
            row["stream"] = torch.cuda.current_stream().stream_id
            self.timers.append((row,) + timer)
        self.rows.append(row)
        if (
            name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
            and len(args) > 5
            and args[5]
            and args[3] is not None
        ):
            # It changes its running statistics, which its schema does not say. They become a separate op, so
            # that the normalisation can run again.
            stats = [self._storage(args[3]), self._storage(args[4])]
            row["r"] = sorted(set(row["r"]) - set(stats))
            self.rows.append(
                {
                    "k": "op",
                    "t": stop,
                    "d": 0,
                    "name": "running_statistics",
                    "phase": phase,
                    "module": module,
                    "r": [],
                    "w": [],
                    "m": sorted(set(stats)),
                    "rerun": False,
                }
            )

    def _optimizer_state(self):
        if self.optimizer is None:
            return
        for state in self.optimizer.state.values():
            for value in _tensors(state):
                self._storage(value, "optimizer_state", known=True)

    @contextlib.contextmanager
    def step(self):
        """Record what runs in this block as one training step."""
        hooks = [
            torch_module.register_module_forward_pre_hook(self._enter_module),
            torch_module.register_module_forward_hook(self._leave_module, always_call=True),
            torch_optimizer.register_optimizer_step_pre_hook(lambda *a: self._enter_optimizer()),
            torch_optimizer.register_optimizer_step_post_hook(lambda *a: self._leave_optimizer()),
        ]
        self.backward_seen = False
        begin = self._now()
        try:
            with _Mode(self):
                yield self
        finally:
            for hook in hooks:
                hook.remove()
            self.marks.append([begin, self._now()])

    # Module hooks return nothing: what they return would replace inputs and outputs.
    def _enter_module(self, module, inputs):
        self.modules.append(self.names.get(module, type(module).__name__))

    def _leave_module(self, module, inputs, outputs):
        if self.modules:
            self.modules.pop()

    def _enter_optimizer(self):
        self.phase = OPTIMIZER
        for parameter in [] if self.model is None else self.model.parameters():
            if parameter.grad is not None:
                self._storage(parameter.grad, "gradient")

    def _leave_optimizer(self):
        self.phase = FORWARD
        self._optimizer_state()

    def _category(self, found):
        if found in self.category:
            return self.category[found]
        born = self.born[found]
        if born is None:
            return "input"
        if found in self.saved:
            return "activation"
        return {FORWARD: "temporary", BACKWARD: "autograd_detail", OPTIMIZER: "temporary"}[born]

    def close(self):
        """Write the file, under another name until it is complete."""
        if self.timers:
            torch.cuda.synchronize()
            origin = self.timers[0][1]
            first = self.timers[0][0]["t"]
            ran = {}
            for row, begin, end in self.timers:
                start = first + int(origin.elapsed_time(begin) * 1e6)
                ran[id(row)] = start, int(begin.elapsed_time(end) * 1e6)
            self.marks = one_clock(self.rows, ran, self.marks)
        head = {
            "gmemtop": "described",
            "version": 1,
            "torch": torch.__version__,
            "device": self.device,
            "pid": os.getpid(),
            "rank": int(os.environ.get("RANK", -1)),
            "world_size": int(os.environ.get("WORLD_SIZE", -1)),
            "epoch_ns": self.unix,
            "steps": self.marks,
        }
        temporary = self.path + ".part"
        with open(temporary, "w") as f:
            for row in [head] + [dict(row, t=0) for row in self.before] + self.rows:
                if row.get("k") == "alloc":
                    row["category"], row["on"] = self._category(row["id"]), self.where[row["id"]]
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
        os.replace(temporary, self.path)
        self.ids.clear()
