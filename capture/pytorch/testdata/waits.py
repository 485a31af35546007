"""Carry out plans on a GPU, and compare what is learnt with training without them, to the bit: parameters,
gradients, buffers, optimizer state and losses.

usage: waits.py AGENT.py [AGENT.py ...]

Prints a line for each agent: its file, and the scenarios in which it learnt something different or failed. If
a wait between an agent's streams is missing, a stand-in GPU that does work in another order than given must
show it.
"""
import contextlib
import hashlib
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

# So that gradients of weights and activations have the same size and reuse each other's memory.
BATCH, WIDTH, STEPS = 64, 64, 4


class Net(nn.Module):
    """Layers whose saved tensors are worth moving, running statistics, and, if asked for, a branch on a
    stream of its own."""

    def __init__(self, side):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.branch = nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 10)
        self.side = side
        self.register_buffer("shift", torch.ones(WIDTH))

    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = torch.sigmoid(layer(x)) * 1.5
            if k == 1:
                x = self.norm(x)
        x = torch.sigmoid(x + self.shift)
        gate = torch.sigmoid(x) * x
        other = x
        if self.side is not None:
            main = torch.cuda.current_stream()
            self.side.wait_stream(main)
            with torch.cuda.stream(self.side):
                other.record_stream(self.side)
                self.shift.mul_(1.25)  # something may still have to be recomputed from it
                other = torch.tanh(torch.sigmoid(self.branch(other)))
                other = other * torch.sigmoid(other)
            main.wait_stream(self.side)
            other.record_stream(main)
        else:
            self.shift.mul_(1.25)
            other = torch.tanh(self.branch(other))
        return self.head(torch.sigmoid(gate * other))


class Apart(nn.Module):
    """The last op to read a tensor is on another stream, and later ops of the backward pass do not wait for
    it."""

    def __init__(self, side):
        super().__init__()
        self.side, self.layers = side, nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6))
        self.first = nn.Linear(WIDTH, WIDTH)
        self.scale, self.head = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        v, main = self.first(x), torch.cuda.current_stream()
        early = (v.detach() * self.head).sum()  # a separate graph, whose backward pass runs first
        late = sum(layer(x) for layer in self.layers)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            v.record_stream(self.side)
            q = v * self.scale
        main.wait_stream(self.side)
        q.record_stream(main)
        return early, q + late


def loss_of(net, x, losses):
    if isinstance(net, Apart):
        early, out = net(x)
        losses.append(torch.autograd.grad(early, [net.head])[0])
        return out.square().mean()
    return F.cross_entropy(net(x), torch.arange(BATCH, device="cuda") % 10)


class Watch(object):
    """What an iteration saves and loads, in order, and which op made each storage."""

    def __init__(self):
        self.saves, self.loads, self.made, self.sums, self.seen = [], [], {}, {}, {}

    def saved_one(self, t, stays):
        s = t.untyped_storage()
        self.saves.append((s._cdata, s.nbytes(), s, t.is_leaf and t.requires_grad))

    def loaded(self, t):
        self.loads.append(t.untyped_storage()._cdata)


class Ops(TorchDispatchMode):
    """Numbers the forward ops of each name, as a plan does."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if torch._C._current_graph_task_id() == -1:
            name = func._schema.name
            n = self.watch.seen[name] = self.watch.seen.get(name, -1) + 1
            if isinstance(out, torch.Tensor) and name in ("aten::sigmoid", "aten::tanh", "aten::mul"):
                before = self.watch.sums.get(args[0].untyped_storage()._cdata, [])
                self.watch.made[out.untyped_storage()._cdata] = before + [[name, n]]
            elif name == "aten::add":
                self.watch.sums[out.untyped_storage()._cdata] = [[name, n]]
        return out


def plan_of(space, kind, side, drops):
    """A plan in which saved tensors leave as soon as they can and come back two loads ahead, or, if asked
    for, are dropped where one op makes them."""
    torch.manual_seed(3)
    net, watch = kind(side).cuda(), Watch()
    carrier = space["Carrier"](torch, {})
    carrier.begin()
    carrier.watch = watch
    mode = Ops(watch)
    hook = net.register_forward_pre_hook(lambda *a: mode.__enter__() and None)
    done = net.register_forward_hook(lambda *a: mode.__exit__(None, None, None))
    loss_of(net, torch.randn(BATCH, WIDTH, device="cuda"), []).backward()
    hook.remove()
    done.remove()
    carrier.remove()
    values, groups, seen, slab = [], [], set(), 0
    for n, (key, size, _, leaf) in enumerate(watch.saves):
        if key in seen or leaf or size < BATCH * WIDTH * 4 or key not in watch.loads:
            continue
        seen.add(key)
        entry = {"save": n, "bytes": size}
        if drops and key in watch.made and (len(groups) < 3 or len(watch.made[key]) > 1):
            entry.update(how="drop", group=len(groups))
            groups.append(watch.made[key])
        else:
            entry.update(how="swap", slot=slab, release=n + 1, fetch=max(watch.loads.index(key) - 2, 0))
            slab += (size + 511) & ~511
        values.append(entry)
    torch.cuda.synchronize()
    assert len(values) >= (6 if kind is Net else 1) and (not drops or groups), (values, groups)
    return {"version": 1, "device": "cuda:0", "slab": slab, "values": values, "groups": groups}


def digest(net, optimizer, losses):
    h = hashlib.sha256()
    torch.cuda.synchronize()
    for group in ([p for p in net.parameters()], [p.grad for p in net.parameters() if p.grad is not None],
                  list(net.buffers()),
                  [t for s in optimizer.state.values() for _, t in sorted(s.items())
                   if isinstance(t, torch.Tensor)], losses):
        for t in group:
            h.update(t.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]


def learn(space, plan, scenario, kind, side):
    """Train, with a plan from the second step on. Return a digest of all that was learnt, and what the plan
    moved."""
    carriers = []
    try:
        return train(space, plan, scenario, kind, side, carriers)
    finally:  # otherwise what a broken agent leaves behind would affect the next one
        for carrier in carriers:
            carrier.remove()


def train(space, plan, scenario, kind, side, carriers):
    torch.manual_seed(3)
    net, frozen = kind(side).cuda(), kind(side).cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    data = [torch.randn(BATCH, WIDTH).pin_memory() for _ in range(2)]
    carrier, loading, losses, moved, kept = None, torch.cuda.Stream(), [], [0, 0, 0, 0], None
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.cuda.stream(loading):  # the batch arrives on one of the program's own streams
            x = data[step % 2].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(loading)
        x.record_stream(torch.cuda.current_stream())
        before, kept = kept, None
        # Its backward pass runs in the next step, after its plan has ended; its weights are frozen to allow
        # that.
        if scenario == "kept" and step % 2 == 1:
            kept = loss_of(frozen, x, losses)
        loss = loss_of(net, x, losses)
        if scenario == "part":  # only part of the graph is used, and what was fetched for the rest is not
            first, = torch.autograd.grad(loss, [net.head.weight], retain_graph=True)
            del loss
            # Reuses the memory that was given back.
            churn = [torch.full((BATCH, WIDTH), float(k), device="cuda") for k in range(12)]
            loss = loss_of(net, x, losses)
            losses += churn + [first]
        if before is not None:
            before.backward()
            losses.append(torch.stack([p.grad.sum() for p in frozen.parameters()]))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if plan is None:
            continue
        if carrier is not None:
            moved = [a + b for a, b in zip(moved, carrier.next()[:4])]
            if carrier.why:
                raise RuntimeError(carrier.why)
        if carrier is not None and scenario == "kept" and step % 2 == 1:
            carrier.remove()
            carrier = None
        elif carrier is None:
            carrier = space["Carrier"](torch, plan)
            carriers.append(carrier)
            carrier.begin()
    return digest(net, optimizer, losses), moved


def main():
    spaces = {}
    for path in sys.argv[1:]:
        with open(path) as f:
            spaces[path] = {"__name__": "gmemtop_agent"}
            exec(compile(f.read(), path, "exec"), spaces[path])
    first = spaces[sys.argv[1]]
    scenarios = {"swap": (Net, False, False), "drop": (Net, True, False), "kept": (Net, False, False),
                 "part": (Net, False, False), "side": (Net, False, True),
                 "both": (Net, True, True), "apart": (Apart, False, True)}
    wanted, plans = {}, {}
    for name, (kind, drops, branch) in scenarios.items():
        side = torch.cuda.Stream() if branch else None
        plans[name] = plan_of(first, kind, side, drops), kind, side
        wanted[name], _ = learn(first, None, name, kind, side)
    for path in sys.argv[1:]:
        bad = []
        for name, (plan, kind, side) in plans.items():
            try:
                got, moved = learn(spaces[path], plan, name, kind, side)
                if got != wanted[name]:
                    bad.append(name)
                ran = moved[0] > 0 and moved[1] > 0 and (name != "drop" or moved[2] > 0)
                assert ran, "%s: %s" % (name, moved)
            except RuntimeError as e:
                bad.append("%s (%s)" % (name, str(e)[:60]))
            torch.cuda.synchronize()
        print(os.path.basename(path), "; ".join(bad) or "the same", flush=True)


if __name__ == "__main__":
    main()
