"""Check that a plan that swaps some tensors and recomputes others, including a normalisation's, leaves the
running statistics as they are without it.

usage: both.py CARRY.PY
"""
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)


class Net(torch.nn.Module):
    """Saves each convolution's output for the normalisation after it, and that one's output for the next
    layer."""

    def __init__(self):
        super().__init__()
        layers, width = [], 3
        for _ in range(3):
            layers += [torch.nn.Conv2d(width, 8, 3, padding=1), torch.nn.BatchNorm2d(8),
                       torch.nn.ReLU(inplace=True)]
            width = 8
        self.layers, self.head = torch.nn.Sequential(*layers), torch.nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


class Made(TorchDispatchMode):
    """Notes which ops made each storage, by name and number."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name
        n = count[name] = count.get(name, -1) + 1
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, torch.Tensor) and not t.is_inference():
                made.setdefault(t.untyped_storage()._cdata, []).append((name, n))
        return out


def pack(t):
    saved.append(t)
    return t


def learn(plan=None):
    """Returns each step's losses, gradients and running statistics, what it moved, and why the plan ended."""
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carrier = carry["Carrier"](torch, plan or {})
    carrier.begin()
    learnt, moved = [], []
    for _ in range(12):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 3, 12, 12)).square().mean()
        loss.backward()
        optimizer.step()
        tensors = [p.grad for p in net.parameters()] + list(net.buffers())
        learnt.append([loss.item()] + [t.double().sum().item() for t in tensors])
        moved.append(carrier.next())
    carrier.remove()
    return learnt, moved, carrier.why


def expect(what, got, want):
    if got != want:
        print("%s: %r, not %r" % (what, got, want))
        sys.exit(1)


count, made, saved, values, groups, at, seen = {}, {}, [], [], [], 0, set()
with Made(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
    Net()(torch.randn(4, 3, 12, 12))
for n, t in enumerate(saved):
    storage = t.untyped_storage()
    by, size = made.get(storage._cdata, []), storage.nbytes()
    if storage._cdata in seen or size < 1024:
        continue
    seen.add(storage._cdata)
    if any("batch_norm" in name for name, _ in by):
        values.append({"save": n, "bytes": size, "how": "drop", "group": len(groups)})
        groups.append([list(x) for x in by])
    elif any("convolution" in name for name, _ in by):
        values.append({"save": n, "bytes": size, "how": "swap", "slot": at, "release": n + 2, "fetch": 0})
        at += size
expect("what leaves", [v["how"] for v in values], ["swap", "drop"] * 3)

want, _, _ = learn()
expect("running statistics stand still", want[0][-9:] == want[1][-9:], False)
got, moved, why = learn({"version": 1, "device": "cpu", "slab": at, "values": values, "groups": groups})
expect("why", why, "")
expect("what is learnt", got, want)
expect("swapped, made again, missed", [(m[0], m[1], m[2] > 0, m[3]) for m in moved], [(at, at, True, 0)] * 12)
expect("compared, others", [m[4:6] for m in moved[:3]], [(6, 0)] * 3)
print("one plan does both")
