"""Carry out a plan on a CPU with streams that do their work as late as possible, and compare what is learnt.

usage: streams.py CARRY.PY [BREAK]

A copy on one of these streams waits in its queue until something waits for an event after it. So code that
gives memory back or reads it without having waited is caught: it reads the old bytes, or the memory is gone.
BREAK names a wait to leave out, to show that. With BREAK=memory, the device has no room for every third
tensor that is fetched ahead, so that it must come when it is needed.
"""
import contextlib
import sys
import weakref

import torch

import train

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)

wrong = []


class Event(object):
    def __init__(self, stream, count):
        self.stream, self.count = stream, count

    def run(self):
        self.stream.run(self.count)

    def wait(self, stream=None):
        if "wait" not in sys.argv[2:]:
            current[-1].wait_event(self)


class Stream(object):
    """A side stream: late."""

    def __init__(self):
        self.queue, self.done = [], 0

    def run(self, count):
        while self.done < count:
            self.done += 1
            self.queue[self.done - 1]()

    def record_event(self):
        return Event(self, len(self.queue))

    def wait_event(self, event):
        self.queue.append(event.run)

    def wait_stream(self, other):
        self.wait_event(other.record_event())


class Compute(Stream):
    """The stream that trains: it does its work at once."""

    def wait_event(self, event):
        if ("release" if event.stream is carrier.streams.out else "wait") not in sys.argv[2:]:
            event.run()


compute = Compute()
current = [compute]


@contextlib.contextmanager
def stream(s):
    current.append(s)
    yield
    current.pop()


copy_ = torch.Tensor.copy_


def late(to, source, non_blocking=False):
    on = current[-1]
    if on is compute:
        return copy_(to, source)
    # The slab stays; a tensor's memory must still be there when the copy runs.
    ends = [t if t.untyped_storage()._cdata == carrier.slab.untyped_storage()._cdata
            else weakref.ref(t.untyped_storage()) for t in (to, source)]

    def run():
        there = [e if isinstance(e, torch.Tensor) else e() for e in ends]
        if any(e is None for e in there):
            wrong.append("memory was given back before it was copied")
            return
        with torch._C._DisableTorchDispatch():
            a, b = [e if isinstance(e, torch.Tensor)
                    else torch.empty(0, dtype=torch.uint8).set_(e) for e in there]
            copy_(a, b)

    on.queue.append(run)
    return to


class Watch(object):
    """Notes which storages are saved and loaded, by size."""

    def __init__(self, own):
        self.own, self.saves, self.loads, self.first, self.count = own, [], [], {}, 0

    def saved_one(self, t, stays):
        key = t.untyped_storage()._cdata
        if key not in self.own and key not in self.first:
            self.first[key] = self.count
            self.saves.append((self.count, t.untyped_storage().nbytes(), weakref.ref(t.untyped_storage())))
        self.count += 1

    def loaded(self, t):
        self.loads.append(self.first.get(t.untyped_storage()._cdata, -1))


def net():
    torch.manual_seed(1)
    model = train.Loss(train.GPT())
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def learn(model, optimizer, steps, ended):
    torch.manual_seed(2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(*train.tokens())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        ended()
    return losses, [p.detach().clone() for p in model.parameters()]


model, optimizer = net()
watching = carry["Carrier"](torch, {})
watching.begin()
watching.watch = Watch({p.untyped_storage()._cdata for p in model.parameters()})
learn(model, optimizer, 1, watching.next)
seen = watching.watch
watching.remove()

values, at = [], 0
for n, size, _ in seen.saves:
    if size >= 1024 and n in seen.loads:
        values.append({"save": n, "bytes": size, "how": "swap", "slot": at, "release": n + 3,
                       "fetch": max(seen.loads.index(n) - 4, 0)})
        at += (size + 511) // 512 * 512

model, optimizer = net()
want = learn(model, optimizer, 6, lambda: None)

model, optimizer = net()
carrier = carry["Carrier"](torch, {"version": 1, "device": "cpu", "slab": at, "values": values, "groups": []})
carrier.begin()
carrier.streams.out, carrier.streams.back = Stream(), Stream()
carrier.streams.main, compute.device = compute, "cpu"
fetched, late_ones, bring = [], 0, carrier.fetch


def ahead(it, value, dtype):
    """Notes at which load a tensor is fetched, and at which it was planned to be."""
    global late_ones
    fetched.append((it.loaded - 1, value.entry["fetch"]))
    if "memory" in sys.argv[2:] and len(fetched) % 3 == 0 and it.loaded - 1 == value.entry["fetch"]:
        late_ones += 1
        raise torch.cuda.OutOfMemoryError("injected")
    return bring(it, value, dtype)


carrier.fetch = ahead
torch.cuda.current_stream, torch.cuda.stream, torch.Tensor.copy_ = lambda device=None: compute, stream, late
moved = []
got = learn(model, optimizer, 6, lambda: moved.append(carrier.next()))
carrier.remove()

print("swapped %d of %d, %d when they were needed, wrong: %s" % (
    len(values), len(seen.saves), late_ones, sorted(set(wrong))))
assert len(values) > 20, len(values)
assert all(m[0] == m[1] == sum(v["bytes"] for v in values) for m in moved), moved
assert sum(m[3] for m in moved) == late_ones, (late_ones, moved)
assert (late_ones > 20) == ("memory" in sys.argv[2:]), (late_ones, moved)
# ahead of the need, in the order that was recorded
assert late_ones or [at for at, _ in fetched] == [planned for _, planned in fetched], fetched
assert [tuple(m[4:6]) for m in moved] == [(len(values), 0)] * 3 + [(0, 0)] * 3, moved
same = want[0] == got[0] and all(torch.equal(a, b) for a, b in zip(want[1], got[1]))
sys.exit(0 if same and not wrong else 1)
