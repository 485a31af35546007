"""Train, and record each training twice: as the agent describes it, with what every storage is for, and as a
CUDA allocator's history shows the same allocations, with only the bytes, the times and the Python stack of
each.

usage: history.py AGENT.py FOLDER SCENARIO[,SCENARIO...]

Writes FOLDER/NAME.jsonl and FOLDER/NAME.pickle for each scenario of train.py, or of the estimate's own
train.py if it is called plain-NAME: everything from the first weight to the end of the last step. Prints
torch's version.

Two things are as on a CUDA device although the training runs on the CPU. There, the backward pass runs on
threads of its own, whose only Python frames are those of Python code that it calls; so a stack is cut where
Python calls the engine. And memory that belongs to no tensor, such as what a kernel takes for itself, is not
seen.
"""
import importlib.util
import os
import pickle
import sys
import time
import weakref

import torch
from torch.optim import optimizer as hooks

import train

with open(sys.argv[1]) as f:
    space = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), "gmemtop_agent", "exec"), space)


def engine(code):
    return code.co_name == "_engine_run_backward" or (
        code.co_name in ("backward", "grad") and code.co_filename.endswith("torch/autograd/__init__.py"))


def stack():
    """The Python frames, innermost first, without ours."""
    inside, out, f = torch._C._current_graph_task_id() != -1, [], sys._getframe(1)
    while f is not None and not (inside and engine(f.f_code)):
        if f.f_code.co_filename not in ("gmemtop_agent", __file__):
            out.append((f.f_code.co_filename, f.f_lineno, f.f_code.co_name))
        f = f.f_back
    return tuple(out)


class Stacked(space["Storages"]):
    """Storages, with a stack for each."""

    def of(self, t, *args, **how):
        known = len(self.born)
        out = space["Storages"].of(self, t, *args, **how)
        if len(self.born) > known:
            here = stack()
            for number in range(known, len(self.born)):
                self.stacks.setdefault(number, here)
        return out


class Recorder(space["Ops"]):
    """The agent's own recorder."""

    make_storages = Stacked

    def __init__(self):
        space["Ops"].__init__(self, torch, time.perf_counter_ns, time.perf_counter_ns(),
                              space["Addresses"](), [], self.broke)
        self.storages.stacks = {}
        self.first, self.depth, self.newest_step = None, 0, self.start

    def broke(self, error):
        raise error

    def pre(self, optimizer, args, kwargs):
        if not self.stopped:
            self.depth += 1
            self.entering_optimizer(optimizer)

    def post(self, optimizer, args, kwargs):
        if self.stopped:
            return
        self.depth -= 1
        if self.depth > 0:
            return
        self.leaving_optimizer(optimizer)
        self.first = self.first or weakref.ref(optimizer)
        if self.first() is optimizer:
            now = self.clock()
            self.steps.append((self.newest_step, now))
            self.newest_step = now
            if len(self.steps) == train.STEPS:
                self.look([optimizer])
                self.end()


def history(recorder):
    """What torch.cuda.memory._snapshot() would return for an allocator that did the same."""
    stacks, events, held = {}, [], {}

    def frames(number):
        key = recorder.storages.stacks.get(number, ())
        if key not in stacks:
            stacks[key] = [{"filename": file, "line": line, "name": name} for file, line, name in key]
        return stacks[key]

    for row in recorder.storages.before + recorder.rows.list:
        if row[0] == "a" and row[2] > 0:
            _, number, size, at, address = row
            held[number] = address, size
            events.append({"action": "alloc", "addr": address, "size": size, "stream": 0,
                           "time_us": max(at - recorder.start, 0) // 1000, "frames": frames(number)})
        elif row[0] == "f" and row[1] in held:
            address, size = held.pop(row[1])
            for action in ("free_requested", "free_completed"):
                events.append({"action": action, "addr": address, "size": size, "stream": 0,
                               "time_us": (row[2] - recorder.start) // 1000, "frames": []})
    segments = []
    for number, (address, size) in held.items():
        whole = (size + 511) & ~511
        block = {"address": address, "size": whole, "requested_size": size, "state": "active_allocated",
                 "frames": frames(number)}
        segments.append({"device": 0, "address": address, "total_size": whole, "allocated_size": whole,
                         "active_size": whole, "requested_size": size, "stream": 0,
                         "segment_type": "large", "blocks": [block]})
    return {"segments": segments, "device_traces": [events]}


def plain(name):
    spec = importlib.util.spec_from_file_location("plain",
            os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "estimate",
                         "testdata", "train.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _, _, step = module.make(name, "cpu")
    for i in range(train.STEPS):
        step(i)


original = torch.autograd.backward


def backward(*args, **kwargs):
    recorder.rooting(True)
    try:
        return original(*args, **kwargs)
    finally:
        recorder.rooting(False)


torch.autograd.backward = backward
for name in sys.argv[3].split(","):
    recorder = Recorder()
    removable = [hooks.register_optimizer_step_pre_hook(recorder.pre),
                 hooks.register_optimizer_step_post_hook(recorder.post)]
    torch.manual_seed(1)
    recorder.begin()
    if name.startswith("plain-"):
        plain(name[len("plain-"):])
    else:
        getattr(train, name)(name)
    if recorder.mode is not None:
        raise RuntimeError("%s ended after %d steps of %d" % (name, len(recorder.steps), train.STEPS))
    for handle in removable:
        handle.remove()
    with open(os.path.join(sys.argv[2], name + ".jsonl"), "w") as f:
        f.writelines(recorder.pieces({"epoch_ns": 0}))
    with open(os.path.join(sys.argv[2], name + ".pickle"), "wb") as f:
        pickle.dump(history(recorder), f, protocol=4)
print("torch", torch.__version__)
