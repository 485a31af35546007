"""Train while everything that autograd saves waits on the host, and check that nothing else is different.

usage: offload.py AGENT.PY

Each network is trained twice, and two steps of each run are described. Both runs must learn the same to the
bit, and the descriptions must be the same: the same ops on the same storages, which come and go at the same
places. The most memory that the program's tensors take is measured separately, through the window's own weak
references.
"""
import json
import sys
import time

import torch
from torch.nn import functional as F

import train

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    agent = {"__name__": "agent"}
    exec(compile(f.read(), sys.argv[1], "exec"), agent)


class Counted(agent["Storages"]):
    """Counts the bytes that are really there, whatever the description says."""

    here = most = 0

    def of(self, t, *args, **kwargs):
        numbers = agent["Storages"].of(self, t, *args, **kwargs)
        self.look_at()
        return numbers

    def comes_back(self, number, storage):
        agent["Storages"].comes_back(self, number, storage)
        self.look_at()

    def look_at(self):
        self.here = sum(s.size for s in self.alive.values())
        self.most = max(self.most, self.here)


class Watched(agent["Ops"]):
    make_storages = Counted


def learn(make, offload, steps=5):
    """Returns the losses and gradients, the rows of steps 3 and 4, and the most bytes that were there in
    them."""
    torch.manual_seed(3)
    net, batch, autocast = make()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    learnt, rows, most, out = [], None, 0, 0
    carrier = agent["Offload"](torch, ("cpu",), None, 256) if offload else agent["Carrier"](torch, {})
    carrier.begin()
    try:
        for step in range(steps):
            window = None
            if step == 2:
                window = Watched(torch, time.perf_counter_ns, time.perf_counter_ns(), agent["Addresses"](),
                                 [optimizer], broke)
                window.begin()
                carrier.watch = carrier.window = window
            if step >= 2:
                window = window or last
            last, begin = window, time.perf_counter_ns()
            optimizer.zero_grad(set_to_none=True)
            b = batch()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = net(*b)
            loss.backward()
            learnt += [loss.item()] + [p.grad.double().sum().item() for p in net.parameters()
                                       if p.grad is not None]
            del loss, b
            optimizer.step()
            out += carrier.next()[0]
            if window is not None:
                window.steps.append((begin, time.perf_counter_ns()))
            if step == 3:
                carrier.watch = carrier.window = None
                window.look([optimizer])
                assert not window.stopped and not window.storages.away, (window.stopped, window.storages.away)
                window.end()
                text = "".join(window.pieces({"epoch_ns": 0})).splitlines()
                rows, most = [json.loads(line) for line in text], window.storages.most
    finally:
        carrier.remove()
    return learnt, rows, most, out


def broke(error):
    raise error


def what(rows):
    """Splits a description into its rows without times and made-up addresses, and its times. It leaves out
    until when the program itself holds what was saved: the agent counts references for that, and cannot for
    what waits on the host."""
    rows = [row for row in rows if row.get("name") != "gmemtop::held"]
    times = [row["t"] for row in rows[1:]]
    out, run = [], []
    for row in [{k: v for k, v in row.items() if k not in ("t", "d", "addr")} for row in rows[1:]] + [{}]:
        if row.get("k") == "free":  # blocks that are freed together are freed in any order
            run.append(row)
            continue
        out += sorted(run, key=lambda row: row["id"]) + [row]
        run = []
    return out[:-1], times, rows[0]["steps"]


class Kept(torch.nn.Module):
    """Saves things twice, views, pieces, a graph's input, and something that is changed and then never
    read."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 128), torch.nn.Linear(128, 64)

    def forward(self, x):
        u = torch.tanh(self.a(x))
        v = u.view(2, -1, 128).transpose(0, 1)
        w = (v * v).sum(1) + u[::2] * u[1::2]
        dropped = (w.exp() * w).sum()  # a graph without a backward pass
        del dropped
        return self.b(w).relu_().square().mean()


class Gates(torch.nn.Module):
    """Changes pieces of one storage in turn, each saved before the next one changes, as torch's cell does."""

    def __init__(self):
        super().__init__()
        self.cell, self.out = torch.nn.LSTMCell(64, 64), torch.nn.Linear(64, 8)

    def forward(self, x):
        state = None
        for piece in x.unbind(1):
            state = self.cell(piece, state)
        return self.out(state[0]).square().mean()


def networks():
    nn = torch.nn
    images = lambda n: lambda: (torch.randn(n, 3, 16, 16), torch.randint(0, 10, (n,)))
    tokens = lambda: (torch.randint(0, 100, (8, 32)), torch.randint(0, 100, (8, 32)))
    mlp = lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.Tanh(),
                                nn.Linear(256, 10))
    convnet = lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True),
                                    train.Residual(16), nn.MaxPool2d(2), train.Residual(16),
                                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(16, 10))
    blocks = lambda: nn.Sequential(nn.Embedding(100, 64), train.Block(64), train.Block(64),
                                   nn.Linear(64, 100))
    numbers = lambda: (torch.randn(512, 64), torch.randint(0, 10, (512,)))
    yield "mlp", lambda: (train.Loss(mlp()), numbers, False)
    yield "convnet", lambda: (train.Loss(convnet()), images(8), False)
    yield "blocks", lambda: (train.Loss(blocks()), tokens, False)
    yield "autocast", lambda: (train.Loss(blocks()), tokens, True)
    yield "gates", lambda: (Gates(), lambda: (torch.randn(64, 6, 64),), False)
    yield "kept", lambda: (Kept(), lambda: (torch.randn(512, 64),), False)


def first(a, b):
    for k, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return "row %d: %s, and %s" % (k, x, y)
    return "%d rows, and %d" % (len(a), len(b))


failed = False
for name, make in networks():
    plain, without, all_of_it, _ = learn(make, False)
    got, with_it, most, out = learn(make, True)
    rows, times, steps = what(with_it)
    want, _, _ = what(without)
    bad = []
    if plain != got:
        bad.append("learns something different")
    if rows != want:
        bad.append("is described differently: " + first(rows, want))
    if any(t < 0 for t in times) or not all(a < b for a, b in steps) or steps[0][1] > steps[1][1]:
        bad.append("has impossible times")
    if not out:
        bad.append("nothing was moved")
    print("%s: %d KiB at the most instead of %d KiB, %d KiB moved, %d rows: %s" % (name, most >> 10,
            all_of_it >> 10, out >> 10, len(rows), "; ".join(bad) or "the same"))
    # At kept's peak all of it is in use.
    failed = failed or bool(bad) or most > all_of_it or name != "kept" and most == all_of_it
sys.exit(1 if failed else 0)
