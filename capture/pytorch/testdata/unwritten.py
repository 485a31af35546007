"""Check that a plan can recompute attention without dropout on a GPU, and does not report it as different: it
returns a seed and an offset that it never writes.

usage: unwritten.py AGENT.PY
"""
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

with open(sys.argv[1]) as f:
    agent = {"__name__": "gmemtop_agent"}
    exec(compile(f.read(), sys.argv[1], "exec"), agent)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(64, 192), torch.nn.Linear(64, 64)

    def forward(self, x):
        q, k, v = (t.view(4, 64, 2, 32).transpose(1, 2) for t in self.qkv(x).split(64, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(4, 64, 64))


class Returned(TorchDispatchMode):
    """What attention returns, by name."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if "attention" in func._schema.name and not made:
            ops.append(func._schema.name)
            made.update({t.untyped_storage()._cdata: r.name for r, t in zip(func._schema.returns, out)
                         if isinstance(t, torch.Tensor)})
        return out


def litter(value):
    """Leave free blocks of the smallest size that contain a value."""
    blocks = [torch.full((64,), value, device="cuda") for _ in range(64)]
    del blocks


def pack(t):
    saved.append(t)
    return t


def learn(dtype, plan):
    torch.manual_seed(1)
    net = Net().to("cuda", dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    carrier = agent["Carrier"](torch, plan)
    carrier.begin()
    compared = missed = again = 0
    for step in range(3):
        x = torch.randn(4, 64, 64, device="cuda", dtype=dtype)
        litter(2 * step + 1)
        loss = net(x).square().mean()
        litter(2 * step + 2)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        _, _, took, late, seen, others = carrier.next()
        compared, missed, again = compared + seen, missed + late, again + took
    digest = [p.double().sum().item() for p in net.parameters()]
    carrier.remove()
    return digest, compared, missed, again > 0, carrier.why


for backend, dtype in ((SDPBackend.EFFICIENT_ATTENTION, torch.float32),
                       (SDPBackend.FLASH_ATTENTION, torch.bfloat16),
                       (SDPBackend.CUDNN_ATTENTION, torch.bfloat16)):
    with sdpa_kernel(backend):
        made, ops, saved = {}, [], []
        net = Net().to("cuda", dtype)
        with Returned(), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            net(torch.randn(4, 64, 64, device="cuda", dtype=dtype))
        values, names = [], []
        for n, t in enumerate(saved):
            name = made.pop(t.untyped_storage()._cdata, None)
            if name and t.untyped_storage().nbytes():
                names.append(name)
                values.append({"save": n, "bytes": t.untyped_storage().nbytes(), "how": "drop", "group": 0,
                               "slot": 0, "release": n + 1, "fetch": 0})
        plan = {"version": 1, "device": "cuda:0", "slab": 0, "values": values, "groups": [[[ops[0], 0]]]}
        del net, saved[:]
        want, got = learn(dtype, {}), learn(dtype, plan)
        random = [n for n in names if n in ("philox_seed", "philox_offset", "rng_state", "unused")]
        checks = (("it learns something else", want[0] == got[0]), ("%d missed" % got[2], not got[2]),
                  ("nothing runs again", got[3]), (got[4], not got[4]),
                  ("%d compared of %s" % (got[1], names), got[1] == 3 * (len(names) - len(random))),
                  ("no seed is saved", random))
        wrong = [what for what, ok in checks if not ok]
        print(ops[0], ", ".join(wrong) or "runs again")
