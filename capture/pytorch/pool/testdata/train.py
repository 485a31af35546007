"""Train real networks on the CPU with the pool, without it, and with it switched on and off; print what each
learnt and what the pool served.

    python train.py LIBRARY SOURCES SCENARIO,...

A scenario that needs a plan prints "plan NAME RECORDING" and reads the plan from its standard input; each
ends with "result NAME FIGURES".
"""
import ctypes
import gc
import hashlib
import json
import os
import random
import sys
import threading
import time

sys.dont_write_bytecode = True
library, sources, scenarios = sys.argv[1:4]
sys.path.insert(0, sources)

import torch
from torch import nn
from torch.nn import functional as F

import pool as live

torch.set_num_threads(1)
STEPS = 50


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.b = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + F.dropout2d(self.nb(self.b(F.relu(self.na(self.a(x))))), 0.2, self.training))


def mlp(width=96):
    model = nn.Sequential(nn.Linear(64, width), nn.GELU(), nn.Dropout(0.3), nn.Linear(width, width),
                          nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(width, 10))
    data = [(torch.randn(48, 64), torch.randint(10, (48,))) for _ in range(4)]
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), iter(data[i % 4] for i in range(1 << 20))


def resnet():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Residual(8), nn.MaxPool2d(2), Residual(8),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10))
    data = [(torch.randn(8, 3, 16, 16), torch.randint(10, (8,))) for _ in range(4)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, optimizer, iter(data[i % 4] for i in range(1 << 20))


def loader():
    model, optimizer, _ = mlp()
    data = torch.utils.data.TensorDataset(torch.randn(480, 64), torch.randint(10, (480,)))

    def batches():
        while True:
            for batch in torch.utils.data.DataLoader(data, batch_size=48, shuffle=True, num_workers=2):
                yield batch

    return model, optimizer, batches()


def digest(h, tensors):
    for t in tensors:
        h.update(t.detach().contiguous().numpy().tobytes())


def train(make, steps, boundary=None, forward=None):
    """What is learnt: a digest of loss and gradients for each step, and one of the final state."""
    torch.manual_seed(7)
    model, optimizer, batches = make()
    learnt = []
    for step in range(steps):
        x, y = next(batches)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x) if forward is None else forward(step, model, x), y)
        loss.backward()
        h = hashlib.sha256()
        digest(h, [loss] + [p.grad for p in model.parameters()])
        learnt.append(h.hexdigest())
        optimizer.step()
        del loss, x, y
        if boundary is not None:
            boundary(step)
    h = hashlib.sha256()
    digest(h, list(model.parameters()) + [t for s in optimizer.state.values() for t in s.values()
                                          if torch.is_tensor(t)])
    return learnt + [h.hexdigest()]


def found(device):
    p = live.Pool(torch, library, device)
    assert p.refusal() == "", p.refusal()
    return p.found


allocator = found("cpu")[0]


def table():
    return ctypes.c_void_p.from_address(allocator).value


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def virtual():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def tasks():
    return len(os.listdir("/proc/self/task"))


def tasks_since(before):
    """How many more threads there are than before. Those of a data loader end a moment after it."""
    for _ in range(100):
        if tasks() <= before:
            break
        time.sleep(0.05)
    return tasks() - before


plans = {}


def plan_of(name):
    """The plan of a network: records three steps, and the reader of this output makes the plan."""
    if name not in plans:
        p = live.Pool(torch, library, "cpu")
        heard = []

        def boundary(step):
            p.step()
            if step == 1:
                heard.append(p.record())
            if step == 4:
                heard.append(p.events())

        learnt = train(MAKE[name], 6, boundary)
        assert heard[0] == "", heard[0]
        left = p.remove()
        print("plan", name, json.dumps(heard[1]), flush=True)
        plans[name] = json.loads(sys.stdin.readline()), learnt, left
    return plans[name]


MAKE = {"mlp": mlp, "resnet": resnet, "loader": loader}


def armed_run(make, plan, steps=STEPS, forward=None, each=None):
    """Train with the pool from the second step on. Return what was learnt, and the last figures of the armed
    pool."""
    p = live.Pool(torch, library, "cpu")
    said, figures = [], [{}]

    def boundary(step):
        p.step()
        if step == 1:
            said.append(p.arm(plan))
        elif step > 1:
            figures[0] = p.counters()
        if each is not None:
            each(p, step)

    learnt = train(make, steps, boundary, forward)
    p.disarm()
    gc.collect()
    after = p.counters()
    return learnt, {"armed": said[0], "figures": figures[0], "after": after, "left": p.remove(),
                    "error": p.error}


def same(name):
    make, before, threads = MAKE[name], table(), tasks()
    plain = train(make, STEPS)
    plan, recorded, left = plan_of(name)
    pooled, out = armed_run(make, plan)
    chance = random.Random(3)
    p, toggles = live.Pool(torch, library, "cpu"), []

    def boundary(step):
        p.step()
        if chance.random() < 0.3:
            toggles.append(p.disarm() if p.counters()["armed"] else p.arm(plan))
        if chance.random() < 0.1:
            p.record()
        if chance.random() < 0.1:
            p.events()

    toggled = train(make, STEPS, boundary)
    gc.collect()
    out.update(recorded=recorded[:6] == plain[:6], pooled=pooled == plain, toggled=toggled == plain,
               toggles=len(toggles), refused=[t for t in toggles if t],
               recording_left=left, toggled_left=p.remove(), table=table() == before,
               threads=tasks_since(threads), differ=len(set(plain)) == len(plain))
    return out


def other():
    """One network trains with another's plan."""
    learnt, out = armed_run(resnet, plan_of("mlp")[0], 12)
    out["same"] = learnt == train(resnet, 12)
    return out


def odd():
    """Some batches have another size, as at the end of an epoch: the plan stays, and torch serves those
    steps alone. Says how many allocations of each step it served."""
    seen = []

    def forward(step, model, x):
        return model(x if step % 8 else torch.cat([x, x[:7]]))[:len(x)]

    def each(p, step):
        if step > 0:
            figures = p.counters()
            seen.append((step, figures["missed"] + figures["unplanned"] + figures["occupied"]))

    learnt, out = armed_run(mlp, plan_of("mlp")[0], 31, forward, each)
    out["torchs"] = [[step, b - a] for (_, a), (step, b) in zip(seen, seen[1:])]
    out["same"] = learnt == train(mlp, 31, None, forward)
    return out


def nonsense():
    """Plans with random places: training is unchanged, since memory is never handed out twice."""
    plan, _, _ = plan_of("resnet")
    plain, chance, kept, served, occupied = train(resnet, 8), random.Random(5), True, 0, 0
    for _ in range(8):
        entries = [[size, 64 * chance.randrange(0, 1 + (plan["arena"] - size) // 64), 0]
                   for size, _, _ in plan["entries"]]
        chance.shuffle(entries)
        learnt, out = armed_run(resnet, dict(plan, entries=entries), 8)
        kept = kept and learnt == plain and out["left"] == "" and out["armed"] == ""
        served, occupied = served + out["after"]["served"], occupied + out["after"]["occupied"]
    return {"same": kept, "served": served, "occupied": occupied}


def toggles():
    plan, _, _ = plan_of("mlp")
    plan = dict(plan, arena=plan["arena"] + (8 << 20))  # large enough to notice a hundred that stayed
    before, threads, p, said, rss = table(), tasks(), live.Pool(torch, library, "cpu"), [], []

    def boundary(step):
        p.step()
        said.append(p.disarm() if step % 2 else p.arm(plan))
        if step % 20 == 19:
            said.append(p.remove())
            rss.append(resident())

    kept = []  # keeps tensors alive, to free them elsewhere
    train(mlp, 200, boundary, lambda step, model, x: (kept.append(x + 1), model(x))[1])
    kept.clear()
    gc.collect()
    figures = p.counters()
    p.remove()
    return {"said": sorted(set(said)), "table": table() == before, "threads": tasks_since(threads),
            "grew": rss[-1] - rss[0], "figures": figures}


def outlives():
    """Tensors of the pool outlive it: they keep their memory, which is freed with the last of them."""
    plan, before = plan_of("mlp")[0], table()
    p, kept = live.Pool(torch, library, "cpu"), []

    def boundary(step):
        p.step()
        if step == 1:
            p.arm(plan)
        if step == 4:
            p.disarm()

    def forward(step, model, x):
        y = model(x)
        if step == 3:
            kept.append((y.detach(), y.detach().clone().numpy().copy(), model[0](x).detach()))
        return y

    train(mlp, 8, boundary, forward)
    gc.collect()
    live_before, left = p.counters(), p.remove()
    hooked, whole = table() != before, kept[0][0].numpy().tobytes() == kept[0][1].tobytes()
    kept.clear()
    gc.collect()
    return {"live": live_before["live"], "left": left, "hooked": hooked, "whole": whole,
            "table": table() == before, "after": p.counters()}


def raises():
    """Training goes on after exceptions in the forward and backward pass."""

    class Trouble(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            raise ValueError("backward")

    def forward(step, model, x):
        if step % 10 in (4, 7):
            try:
                y = model(x)
                if step % 10 == 4:
                    raise ValueError("forward")
                Trouble.apply(y).sum().backward()
            except ValueError:
                model.zero_grad()
        return model(x)

    learnt, out = armed_run(mlp, plan_of("mlp")[0], 30, forward)
    out["same"] = learnt == train(mlp, 30, None, forward)
    return out


def fork():
    """Forked children allocate, train, and free what they inherited."""
    codes = []

    def forward(step, model, x):
        y = model(x)
        if step in (5, 6):  # while the pool serves, and while it also records
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    F.cross_entropy(y, torch.zeros(len(y), dtype=torch.long)).backward()
                    model.zero_grad()
                    before = FORKED[0].counters()["served"]
                    refused = FORKED[0].arm(plan_of("mlp")[0])
                    del y
                    for _ in range(3):
                        model(x).sum().backward()
                        model.zero_grad()
                    FORKED[0].step()
                    FORKED[0].disarm()
                    gc.collect()
                    code = 0 if "child" in refused and before == 0 and FORKED[0].remove() != "" else 2
                finally:
                    os._exit(code)
            codes.append(os.WEXITSTATUS(os.waitpid(child, 0)[1]))
        return y

    FORKED = [None]

    def each(p, step):
        FORKED[0] = p
        if step == 5:
            p.record()
        if step == 7:
            p.events()

    learnt, out = armed_run(mlp, plan_of("mlp")[0], 12, forward, each)
    codes_pooled, codes[:] = list(codes), []
    out["codes"] = codes_pooled
    out["same"] = learnt == train(mlp, 12)
    return out


def threads():
    """Other threads allocate the same sizes, and free what the training allocated."""
    plan, stop, handed = plan_of("mlp")[0], threading.Event(), []
    sizes = sorted({size for size, _, _ in plan["entries"]})

    def work():
        mine = []
        while not stop.is_set():
            for size in sizes:
                mine.append(torch.full((size,), 1, dtype=torch.uint8))
            del mine[:-20]
            while handed:
                try:
                    handed.pop()
                except IndexError:
                    pass

    workers = [threading.Thread(target=work) for _ in range(2)]
    for w in workers:
        w.start()

    def forward(step, model, x):
        y = model(x)
        handed.append(y.detach() * 2)
        handed.append(F.relu(y.detach()))
        return y

    def ended():
        stop.set()
        for w in workers:
            w.join()
        handed.clear()

    # The threads end before we ask the pool what is left: until then they may hold what they were handed.
    try:
        learnt, out = armed_run(mlp, plan, STEPS, forward,
                                lambda p, step: ended() if step == STEPS - 1 else None)
    finally:
        ended()
    out["same"] = learnt == train(mlp, STEPS)
    return out


def refusals():
    """The pool says what is wrong, and leaves nothing behind."""
    class Torch(object):
        version, cuda = torch.version, torch.cuda

    plan, before = plan_of("mlp")[0], table()
    p = live.Pool(torch, library, "cpu")
    out = {"none": p.refusal(), "missing": live.Pool(torch, "/nowhere/pool.so", "cpu").refusal(),
           "mps": live.Pool(torch, library, "mps").refusal(),
           "cuda": live.Pool(torch, library, "cuda").refusal(),
           "cuda_record": live.Pool(torch, library, "cuda").record()}
    for name, bad in (("huge", dict(plan, arena=1 << 50)), ("empty", dict(plan, entries=[])),
                      ("outside", dict(plan, arena=64)), ("nothing", {}),
                      ("unaligned",
                       dict(plan, entries=[[s, o + 1 if o >= 0 else o, t] for s, o, t in plan["entries"]])),
                      ("negative", dict(plan, entries=[[-5, 0, 0]])),
                      ("placeless", dict(plan, entries=[[640, -1, 0]])),
                      ("stream", dict(plan, entries=[[640, 0, 9]]))):
        out[name] = p.arm(bad)
    def short(*args, **kwargs):
        raise RuntimeError("out of memory")

    p.torch, fine = Torch, p.torch
    Torch.empty, Torch.uint8, Torch.__version__ = staticmethod(short), torch.uint8, torch.__version__
    out["short"] = p.arm(plan)
    p.torch = fine
    # As large as the arena that failed: it must not be taken for the arena.
    block = torch.empty(plan["arena"], dtype=torch.uint8)
    one = (ctypes.c_int64 * 1)(64), (ctypes.c_int64 * 1)(0)
    out["taken"] = p.library.pool_arm(64, 64, 1, one[0], one[1], 1, 1)
    del block
    before_refused = virtual()
    for _ in range(50):
        p.arm(dict(plan, arena=64 << 20, entries=[[640, 1, 0]]))
    out["kept"] = virtual() - before_refused
    out["armed"] = p.counters()["armed"]
    out["arm"], out["twice"] = p.arm(plan), p.arm(plan)
    out["second"] = live.Pool(torch, library, "cpu").arm(plan)
    out["left"], out["table"] = p.remove(), table() == before
    versions = {}
    for version in ("1.13.1", "2.1.0", "2.16.0", "3.0.0"):
        Torch.__version__ = version
        versions[version] = live.Pool(Torch, library, "cpu").refusal()
    out["versions"] = versions
    Torch.__version__ = torch.__version__
    number = tuple(int(n) for n in torch.__version__.split(".")[:2])
    known = live.SLOTS["cpu"][number]
    live.SLOTS["cpu"][number] = (3,) + known[1:]
    out["moved"] = live.Pool(torch, library, "cpu").refusal()
    del live.SLOTS["cpu"][number]
    out["unnamed"] = live.Pool(torch, library, "cpu").refusal()
    live.SLOTS["cpu"][number] = known
    out["found"] = {device: found(device)[2] for device in ("cpu", "cuda")}
    out["known"] = {device: live.SLOTS[device][number] for device in ("cpu", "cuda")}
    return out


def cuda():
    """Our table in front of torch's allocator for GPUs, which exists even without a GPU. Run it in a separate
    process."""
    p = live.Pool(torch, library, "cuda")
    out = {"refused": p.refusal()}
    at = p.found[0]
    before = ctypes.c_void_p.from_address(at).value
    p._install()
    out["hooked"] = ctypes.c_void_p.from_address(at).value != before
    out["backend"] = torch.cuda.get_allocator_backend()  # a call through the table
    out["calls"] = all(p._calls())
    out["armed"] = "" if torch.cuda.is_available() else p.arm({"arena": 1 << 20, "entries": [[512, 0, 0]]})
    out["cpu"] = live.Pool(torch, library, "cpu").arm({"arena": 1 << 20, "entries": [[512, 0, 0]]})
    out["left"], out["table"] = p.remove(), ctypes.c_void_p.from_address(at).value == before
    return out


SCENARIOS = {"cuda": cuda, "other": other, "odd": odd, "nonsense": nonsense, "toggles": toggles,
             "outlives": outlives, "raises": raises, "fork": fork, "threads": threads,
             "refusals": refusals}
for scenario in scenarios.split(","):
    result = same(scenario) if scenario in MAKE else SCENARIOS[scenario]()
    print("result", scenario, json.dumps(result), flush=True)
