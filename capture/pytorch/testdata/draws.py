"""Check that attention without dropout can be recomputed, and that this changes none of the program's random
numbers.

usage: draws.py CARRY.PY
"""
import sys

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

torch.set_num_threads(1)
with open(sys.argv[1]) as f:
    carry = {}
    exec(compile(f.read(), sys.argv[1], "exec"), carry)


def expect(what, got, want):
    if got != want:
        print("%s: %r, not %r" % (what, got, want))
        sys.exit(1)


class Net(torch.nn.Module):
    """Attention, followed by ops that draw random numbers."""

    def __init__(self, drop):
        super().__init__()
        self.qkv, self.out, self.drop = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32), drop

    def forward(self, x):
        q, k, v = (t.view(4, 16, 2, 16).transpose(1, 2) for t in self.qkv(x).split(32, 2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop, is_causal=True)
        made.append(y.untyped_storage()._cdata)
        return F.dropout(self.out(y.transpose(1, 2).reshape(4, 16, 32)), 0.5)


class Names(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "attention" in func._schema.name:
            seen.append((func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def pack(t):
    saved.append(t)
    return t


def learn(drop, plan=None):
    torch.manual_seed(1)
    net = Net(drop)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carrier = carry["Carrier"](torch, plan or {})
    carrier.begin()
    losses, again, missed = [], 0, 0
    for _ in range(12):
        optimizer.zero_grad()
        loss = net(torch.randn(4, 16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        _, _, took, late = carrier.next()[:4]
        again, missed = again + took, missed + late
    expect("why", carrier.why, "")
    carrier.remove()
    return losses, again, missed


seen, saved, made, net = [], [], [], Net(0.0)
with Names(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
    net(torch.randn(4, 16, 32))
func, args, kwargs = seen[0]
number = [t.untyped_storage()._cdata for t in saved].index(made[0])
value = {"save": number, "bytes": saved[number].untyped_storage().nbytes(), "how": "drop", "group": 0,
         "slot": 0, "release": 2, "fetch": 0}
plan = {"version": 1, "device": "cpu", "slab": 0, "values": [value], "groups": [[[func._schema.name, 0]]]}

chance, draws = carry["chance_of"], carry["draws"]
expect("attention that drops nothing", draws(chance(func, torch), args, kwargs), False)
at, name, _ = chance(func, torch)
expect("attention that drops", draws(chance(func, torch), args[:at], dict(kwargs, **{name: 0.1})), True)
expect("dropout", draws(chance(torch.ops.aten.native_dropout.default, torch), (), {}), True)
for name in sorted(carry["ONCE"]):
    expect(name, draws(chance(getattr(torch.ops.aten, name[6:]).default, torch), (), {}), True)
expect("a product", draws(chance(torch.ops.aten.mm.default, torch), (), {}), False)

without, with_plan = learn(0.0), learn(0.0, plan)
expect("losses", with_plan[0], without[0])
expect("runs again, misses", (with_plan[1] > 0, with_plan[2]), (True, 0))

torch.manual_seed(2)
with carry["undrawn"](torch, torch.device("cpu")):
    one = torch.rand(3)
expect("what is drawn behind it", torch.rand(3).tolist(), one.tolist())
torch.manual_seed(2)
try:
    with carry["undrawn"](torch, torch.device("cpu")):
        torch.rand(3)
        raise MemoryError
except MemoryError:
    pass
expect("what is drawn behind one that failed", torch.rand(3).tolist(), one.tolist())
print("attention runs again as it was")
